"""Staff in the admin: who they are, what they press, what they are told."""

from django.contrib.auth.models import Permission, User
from django.test import Client


def user_with(*codenames: str, name: str = "") -> Client:
    user = User.objects.create_user(name or f"ann {len(codenames)}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def tick(client: Client, url: str, action: str, *ids: int, **extra):
    """Choose an action in the list."""
    data = {"action": action, "index": 0, "select_across": 0, "_selected_action": ids, **extra}
    return client.post(url, data)


def confirm(client: Client, url: str, *ids: int, **extra):
    """Press the button of the confirmation."""
    return client.post(url, {"ids": ",".join(map(str, ids)), "confirmed": "yes", "filters": "", **extra}, follow=True)


def messages_of(response) -> list[str]:
    return [str(message) for message in response.context["messages"]]


SUCCEEDED = """
INSERT INTO pgqueue_succeeded_jobs (
    id, succeeded_at, enqueued_at, run_at, first_started_at, started_at, worker_id, schedule_id, run_seconds, priority,
    attempts, lost, queue, task, backend, args, kwargs, metadata, errors
)
SELECT
    number, now(), now(), now() - interval '90 s', now(), now() - interval '60 s', 0, %s, 12.0, 0, 1, 0, 'q', 't', '',
    '[]', '{}', '{}', '[]'
FROM generate_series(%s, %s) AS number
"""
