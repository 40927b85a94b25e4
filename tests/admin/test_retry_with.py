"""The page that retries a dead job with changed arguments."""

import json
import re
import threading
from html import unescape

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.test import Client

import tests.app.tasks as app
from django_pgqueue import registry
from django_pgqueue.jobs import retry
from django_pgqueue.jobs.routing import shard_key_of, slot_of
from django_pgqueue.keys import KeysBy
from django_pgqueue.models import DeadJob, Job
from tests.support.hostile import EVIL, must_be_text
from tests.support.retrying import dead
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.django_db

DEAD = "/admin/pgqueue/deadjob/"
JOBS = "/admin/pgqueue/job/"


def client_with(*codenames: str) -> Client:
    user = User.objects.create_user(f"ann {len(codenames)}", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def staff(db) -> Client:
    return client_with("view_job", "view_deadjob", "change_deadjob", "delete_deadjob")


def test_page_says_where_it_is(staff):
    job_id = dead(app.record, "x")
    page = staff.get(address(job_id)).content.decode()
    way = re.search(r'class="breadcrumbs".*?</(?:div|nav|ol)>', page, re.DOTALL)[0]
    for words in (DEAD, f"{DEAD}{job_id}/change/", "Job queue", "Dead jobs", "Retry with changed arguments"):
        assert words in way


def address(job_id: int) -> str:
    return f"{DEAD}{job_id}/retry_with/"


def form_of(client: Client, job_id: int) -> dict[str, str]:
    """Return what the form holds, as a browser would send it."""
    form = client.get(address(job_id)).context["form"]
    return {name: form.initial[name] for name in ("args", "kwargs", "queue", "priority", "form")}


def send(client: Client, job_id: int, **changed):
    """Fill in the form, and say yes."""
    return client.post(address(job_id), {**form_of(client, job_id), "confirmed": "yes", **changed}, follow=True)


def messages_of(response) -> list[str]:
    return [re.sub("<[^>]+>", "", str(message)) for message in response.context["messages"]]


def test_form_shows_the_arguments_exactly_and_without_secrets(staff):
    old = dead(
        app.log_in, "naïve ✓ </textarea><script>", password="open-sesame", payload={"n": 12345678901234567890123}
    )
    html = staff.get(address(old)).content.decode()
    assert "sesame" not in html
    assert "[redacted 1]" in html
    assert "12345678901234567890123" in html
    assert "naïve ✓ &lt;/textarea&gt;&lt;script&gt;" in html
    assert f'href="{DEAD}{old}/retry_with/"' in staff.get(f"{DEAD}{old}/change/").content.decode()
    assert "tests.app.tasks.log_in(user: str, password: str, payload: dict | None = None)" in unescape(html)
    assert not Job.objects.exists()


def test_sensitive_value_is_kept_or_replaced(staff):
    old = dead(app.log_in, "ann", password="open-sesame")
    send(staff, old, args='["bob"]')
    kept = Job.objects.get()
    assert (kept.args, kept.kwargs) == (["bob"], {"password": "open-sesame"})
    send(staff, old, kwargs='{"password": "another"}')
    assert Job.objects.exclude(pk=kept.pk).get().kwargs == {"password": "another"}


def test_confirmation_shows_what_changes_and_nothing_is_done_before(staff):
    old = dead(app.log_in, "ann", password="open-sesame")
    data = {**form_of(staff, old), "args": '["bob"]', "queue": "bulk", "priority": "5"}
    response = staff.post(address(old), data)
    html = response.content.decode()
    assert response.context["is_asked"]
    assert [name for name, *_ in response.context["changes"]] == ["Positional arguments", "Queue", "Priority"]
    assert "sesame" not in html
    assert "The dead job stays" in html
    assert not Job.objects.exists()
    back = staff.post(address(old), {**data, "back": "yes"})
    assert '["bob"]' in back.context["form"]["args"].value()
    assert not Job.objects.exists()


def test_retry_leads_to_the_new_job_and_stands_in_the_log_of_both(staff):
    old = dead()
    response = send(staff, old, args='["new"]', queue="bulk", priority="5")
    new = Job.objects.get()
    assert response.redirect_chain == [(f"{JOBS}{new.pk}/change/", 302)]
    assert messages_of(response) == [
        f"Job {new.pk} was enqueued in place of the dead job {old}, which stays where it is."
    ]
    assert (new.args, new.queue, new.priority) == (["new"], "bulk", 5)
    assert [(entry.object_id, entry.change_message) for entry in LogEntry.objects.order_by("pk")] == [
        (str(old), f"Retried with changed arguments as job {new.pk}."),
        (str(new.pk), f"Retried with changed arguments from job {old}."),
    ]
    html = staff.get(f"{DEAD}{old}/change/").content.decode()
    assert "has retried it with changed arguments, as job" in html
    assert f'href="{JOBS}{new.pk}/change/"' in html
    assert f'href="{JOBS}{old}/change/"' in response.content.decode(), "its parent"


def test_dead_job_is_purged_where_that_is_wanted(staff):
    old = dead()
    response = send(staff, old, removes="on")
    assert "which was purged" in messages_of(response)[0]
    assert not DeadJob.objects.exists()
    assert Job.objects.count() == 1
    assert "and purged" in LogEntry.objects.order_by("pk")[0].change_message


def test_form_that_is_sent_twice_makes_one_job(staff):
    old = dead()
    data = {**form_of(staff, old), "confirmed": "yes"}
    staff.post(address(old), data)
    response = staff.post(address(old), data, follow=True)
    new = Job.objects.get()
    assert messages_of(response)[1:] == [
        f"This form was sent before, and has made job {new.pk}. Nothing was done again."
    ]
    assert LogEntry.objects.count() == 2


def test_form_that_is_sent_twice_at_once_makes_one_job(transactional_db):
    staff = client_with("view_job", "view_deadjob", "change_deadjob")
    old = dead()
    data = {**form_of(staff, old), "confirmed": "yes"}
    clients = [Client() for _ in range(4)]
    for client in clients:
        client.cookies.update(staff.cookies)
    barrier = threading.Barrier(len(clients), timeout=PATIENCE_SECONDS)

    def press(client: Client) -> None:
        try:
            barrier.wait()
            client.post(address(old), data)
        finally:
            connection.close()

    threads = [threading.Thread(target=press, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert Job.objects.count() == 1


def test_holder_of_the_unique_key_is_linked_and_nothing_is_lost(staff):
    old = dead(app.record.using(unique_key="u"))
    holder = app.record.using(unique_key="u").enqueue().id
    response = send(staff, old, args='["typed"]')
    assert (
        f'<a href="{JOBS}{holder}/change/">{holder}</a> has the unique key that the new one would have'
        in response.content.decode()
    )
    assert response.context["form"]["args"].value() == '["typed"]'
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("args", "[1,", "It is no JSON: Expecting value at line 1, column 4."),
        ("args", "{}", "It must be a JSON array"),
        ("kwargs", "[]", "It must be a JSON object"),
        ("kwargs", '{"lable": 1}', "got an unexpected keyword argument"),
        ("args", "[1, 2]", "too many positional arguments"),
        ("args", "[NaN]", "which JSON has no word for"),
        ("args", '["a\\u0000b"]', "NUL"),
        ("args", '["\\ud800"]', "lone surrogate"),
        ("args", "[" * 100_000, "That cannot be read"),
        ("queue", "", "required"),
        ("queue", "q" * 129, "at most 128"),
        ("priority", "101", "less than or equal to 100"),
        ("priority", "x", "whole number"),
    ],
)
def test_what_cannot_be_is_told_at_its_field(staff, field, value, words):
    old = dead()
    form = send(staff, old, **{field: value}).context["form"]
    assert list(form.errors) == [field]
    assert words in form.errors[field][0]
    assert not Job.objects.exists()


def test_arguments_that_are_too_large_are_refused(staff, settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "MAX_PAYLOAD_BYTES": 1000}
    form = send(staff, dead(), args=json.dumps(["x" * 2000])).context["form"]
    assert "more than PGQUEUE" in form.errors["args"][0]


def test_placeholder_in_the_wrong_place_is_told_of(staff):
    old = dead(app.log_in, "ann", password="open-sesame")
    form = send(staff, old, args='["[redacted 1]"]').context["form"]
    assert "is where its value would be seen" in form.non_field_errors()[0]
    assert not Job.objects.exists()


def test_keys_that_cannot_be_computed_are_told_of_without_secrets(staff, monkeypatch):
    monkeypatch.setattr(app.log_in, "keys_by", KeysBy(unique=lambda user, password: {"ann": "key"}[user + password]))
    form = send(staff, dead(app.log_in.using(unique_key="u"), "ann", ""), args='["ann", "sesame"]').context["form"]
    assert form.non_field_errors() == ["The task cannot compute its keys of these arguments: KeyError."]
    assert not Job.objects.exists()


def test_unknown_task_cannot_be_retried_so(staff):
    old = dead()
    DeadJob.objects.update(task="gone.tasks.<b>x")
    for response in (staff.get(address(old)), staff.post(address(old), {"args": "[]", "confirmed": "yes"})):
        html = response.content.decode()
        assert "does not know the task gone.tasks.&lt;b&gt;x" in html
        assert "<textarea" not in html
    assert not Job.objects.exists()


@pytest.mark.parametrize("evil", EVIL, ids=["script", "quotes", "ends", "rtl", "emoji", "control", "format", "long"])
def test_whatever_a_job_holds_is_shown_as_text_and_comes_back_as_it_was(staff, evil):
    old = dead(app.record, evil)
    DeadJob.objects.update(queue=evil[:100])
    data = form_of(staff, old)
    must_be_text(staff.get(address(old)).content.decode(), json.dumps(evil, ensure_ascii=False))
    changed = {**data, "kwargs": "{}", "args": json.dumps([f"{evil}+"]), "queue": f"{evil[:100]}+"}
    must_be_text(staff.post(address(old), changed).content.decode(), f"{evil[:100]}+")
    wrong = {**data, "args": f"[{json.dumps(evil)}, 1]"}
    must_be_text(staff.post(address(old), wrong).content.decode())
    staff.post(address(old), {**data, "confirmed": "yes"})
    assert (Job.objects.get().args, Job.objects.get().queue) == ([evil], evil[:100])


def test_get_never_changes_anything(staff):
    old = dead()
    staff.get(address(old), {**form_of(staff, old), "confirmed": "yes"})
    assert not Job.objects.exists()


def test_only_those_who_may_get_the_form_or_send_it(staff):
    old = dead()
    data = {**form_of(staff, old), "confirmed": "yes"}
    viewer = client_with("view_job", "view_deadjob", "retry_deadjob")
    assert "/retry_with/" not in viewer.get(f"{DEAD}{old}/change/").content.decode()
    assert viewer.get(address(old)).status_code == 403
    assert viewer.post(address(old), data).status_code == 403
    assert Client().post(address(old), data).status_code == 302, "to the login"
    assert not Job.objects.exists()


def test_no_user_purges_by_a_forged_form():
    changer = client_with("view_job", "view_deadjob", "change_deadjob")
    old = dead()
    assert "removes" not in changer.get(address(old)).context["form"].fields
    data = {**form_of(changer, old), "confirmed": "yes", "removes": "on"}
    assert changer.post(address(old), data).status_code == 403
    assert DeadJob.objects.count() == 1
    assert not Job.objects.exists()


def test_job_that_is_not_dead_any_more_is_followed(staff):
    old = dead()
    data = {**form_of(staff, old), "confirmed": "yes"}
    retry([old], by="eve")
    for response in (staff.get(address(old), follow=True), staff.post(address(old), data, follow=True)):
        assert response.redirect_chain[-1][0] == f"{JOBS}{old}/change/"
    assert Job.objects.count() == 1


def test_retry_and_its_log_are_one_transaction(staff, monkeypatch):
    old = dead()
    data = {**form_of(staff, old), "confirmed": "yes"}
    monkeypatch.setattr(LogEntry, "save", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        staff.post(address(old), data)
    assert not Job.objects.exists()
    assert len(DeadJob.objects.get().errors) == 1


def test_confirmation_says_nothing_of_whether_a_sensitive_value_was_guessed(staff):
    old = dead(app.log_in, "ann", password="open-sesame")
    for guess in ("open-sesame", "open-barley"):
        data = {**form_of(staff, old), "kwargs": f'{{"password": "{guess}"}}'}
        assert [name for name, *_ in staff.post(address(old), data).context["changes"]] == ["Keyword arguments"]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_job_whose_new_key_belongs_on_another_database_is_refused(far, staff, monkeypatch):
    """A second job of the key could live there."""
    task = app.record.using(queue="spread", unique="label")
    monkeypatch.setitem(registry._registry, task.name, task)
    slots = {label: slot_of(shard_key_of(task, (label,), {})) for label in map(str, range(100))}
    here, there = min(slots, key=slots.get), max(slots, key=slots.get)
    old = dead(task, here)
    form = send(staff, old, args=f'["{there}"]').context["form"]
    assert form.errors["__all__"] == ["Jobs with these arguments are on the database other: enqueue a new one."]
    assert not Job.objects.exists()
    send(staff, old)
    assert Job.objects.get().args == [here]
