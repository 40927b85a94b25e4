"""Staff can do no more in the admin than their permissions say, by any address."""

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.exceptions import SuspiciousOperation
from django.test import Client, RequestFactory

from django_pgqueue.models import Queue, Schedule

pytestmark = pytest.mark.django_db

LISTS = [made for made in admin.site._registry.values() if made.opts.app_label == "django_pgqueue"]
LISTS = [made for made in LISTS if made.opts.model_name != "overview"]  # a page, whatever its address asks for
KINDS = ("startswith", "regex", "contains", "gt", "isnull", "password__startswith", "0__gt")


def client_with(*codenames: str) -> Client:
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def test_hidden_argument_of_a_schedule_cannot_be_guessed_letter_by_letter(db):
    given = {"task": "tests.app.tasks.log_in", "kwargs": {"password": "hunter2"}}
    Schedule.objects.create(name="nightly", every_seconds=60, next_at="2030-01-01 00:00Z", **given)
    client = client_with("view_schedule")
    for letter in "hx":
        answer = client.get(f"/admin/django_pgqueue/schedule/?kwargs__password__startswith={letter}")
        assert answer.status_code == 400


@pytest.mark.parametrize("made", LISTS, ids=lambda made: made.opts.model_name)
def test_address_bar_compares_no_column_but_those_that_the_list_offers(made):
    """The view is asked directly, without the session and the user that each request would read."""
    client_with(*(f"{right}_{made.opts.model_name}" for right in ("view", "change")))
    user = User.objects.get()
    for field in made.opts.fields:
        for lookup in (field.name, *(f"{field.name}__{kind}" for kind in KINDS)):
            allowed = lookup in getattr(made, "lookups", ())
            request = RequestFactory().get(f"/admin/django_pgqueue/{made.opts.model_name}/", {lookup: "1"})
            request.user = user
            try:
                answer = made.changelist_view(request)
            except SuspiciousOperation:  # which Django answers with 400
                continue
            assert allowed or answer.status_code == 302, lookup
            assert allowed or "e=1" in answer["Location"], lookup


def test_queue_that_may_be_paused_but_not_seen_is_neither_shown_nor_limited(db):
    Queue.objects.create(name="mail")
    client = client_with("pause_queue")
    address = "/admin/django_pgqueue/queue/mail/change/"
    assert client.get(address).status_code == 403
    given = {"max_running": 1, "rate_limit": "", "rate_period_seconds": "", "rate_burst": ""}
    assert client.post(address, given).status_code == 403
    assert Queue.objects.get().max_running is None
