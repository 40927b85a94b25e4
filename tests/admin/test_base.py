"""Pages of the admin that would take long are stopped, and say so; no address compares other columns than offered."""

import contextlib

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.exceptions import SuspiciousOperation
from django.db import OperationalError, connection, transaction
from django.test import RequestFactory

import tests.app.tasks as app
from django_pgqueue.checks import check_settings
from django_pgqueue.db.queries import TookTooLong, bounded
from django_pgqueue.models import Job, Schedule, Worker
from tests.support.admin_jobs import DEAD, JOBS
from tests.support.staff import user_with

LISTS = [made for made in admin.site._registry.values() if made.opts.app_label == "pgqueue"]
PAGES = {"overview", "stage"}  # no lists, whatever their addresses ask for
LISTS = [made for made in LISTS if made.opts.model_name not in PAGES]
KINDS = ("startswith", "regex", "contains", "gt", "isnull", "password__startswith", "0__gt")


@pytest.fixture
def patience(settings) -> None:
    settings.PGQUEUE = {**settings.PGQUEUE, "READ_TIMEOUT_SECONDS": 0.05}


@pytest.fixture
def locked(other_queue):
    """Lock a table as DDL does, so that whatever reads it waits."""

    @contextlib.contextmanager
    def lock(table: str):
        holder = other_queue.autocommit()
        with holder.transaction():
            holder.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield

    return lock


def setting(name: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting(%s)", [name])
        return cursor.fetchone()[0]


@pytest.mark.parametrize("is_inside", [False, True], ids=["outermost", "in a transaction"])
def test_settings_end_with_it(transactional_db, settings, is_inside):
    settings.PGQUEUE = {**settings.PGQUEUE, "READ_TIMEOUT_SECONDS": 61.5}
    before = setting("statement_timeout"), setting("enable_seqscan")
    with transaction.atomic() if is_inside else contextlib.nullcontext():
        with bounded():
            assert (setting("statement_timeout"), setting("enable_seqscan")) == ("61500ms", "off")
        assert (setting("statement_timeout"), setting("enable_seqscan")) == before


def test_statement_that_takes_long_is_told_from_one_that_fails(db, patience, settings):
    with pytest.raises(TookTooLong), bounded(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(60)")
    settings.PGQUEUE = {**settings.PGQUEUE, "READ_TIMEOUT_SECONDS": 60}
    with pytest.raises(OperationalError, match="gone"), bounded():
        raise OperationalError("gone")
    assert setting("statement_timeout") == "0"  # and the transaction of the caller goes on


@pytest.mark.parametrize(
    "url",
    [
        JOBS,
        f"{JOBS}?status=queued",
        f"{JOBS}1/change/",
        f"{JOBS}1/history/",
        DEAD,
        f"{DEAD}1/change/",
        "/admin/pgqueue/queue/",
    ],
)
def test_page_that_takes_long_says_what_helps(admin_client, patience, locked, settings, url):
    with locked("pgqueue_jobs, pgqueue_dead_jobs, pgqueue_queues, django_admin_log"):
        response = admin_client.get(url)
    page = response.content.decode()
    assert response.status_code == 503
    assert "This took longer than 0.05 s and was stopped. Narrow the filter." in page
    assert f'<a href="{url.replace("&", "&amp;")}">Try again</a>' in page
    settings.PGQUEUE = {**settings.PGQUEUE, "READ_TIMEOUT_SECONDS": 60}
    assert admin_client.get(JOBS).status_code == 200


def test_queries_of_the_template_are_bounded_too(admin_client, patience, locked, settings):
    """Columns of a job's page are read while it is rendered."""
    worker = Worker.objects.create(supervisor_id=1, lease_until="2031-01-01T00:00Z", pid=1, concurrency=1, host="web")
    job = Job.objects.create(task="x", status="running", lease_token=9, worker_id=worker.pk)
    url = f"{JOBS}{job.pk}/change/"
    with locked("pgqueue_workers"):
        assert admin_client.get(url).status_code == 503
    settings.PGQUEUE = {**settings.PGQUEUE, "READ_TIMEOUT_SECONDS": 60}
    assert "last heartbeat" in admin_client.get(url).content.decode()


def test_action_on_a_list_that_takes_long_changes_nothing(admin_client, patience, locked):
    job_id = app.record.enqueue().id
    chosen = {"action": "kill", "index": 0, "select_across": 1, "_selected_action": job_id}
    with locked("pgqueue_jobs"):
        response = admin_client.post(JOBS, chosen)
    assert response.status_code == 503
    assert "Try again" not in response.content.decode()
    assert Job.objects.filter(pk=job_id, status="queued").exists()


def test_stopped_page_tells_nothing_to_those_who_may_not_see_it(client, django_user_model, patience, locked):
    client.force_login(django_user_model.objects.create_user("ann", is_staff=True))
    with locked("pgqueue_jobs"):
        assert client.get(JOBS).status_code == 403


def test_nothing_is_written_by_a_page_that_is_read(db):
    with transaction.atomic(), bounded():
        Job.objects.create(task="x")
    assert not Job.objects.exists()


@pytest.mark.parametrize("value", [0, -1, "2", True, None, 3601])
def test_time_limit_that_cannot_be_is_found_by_check(settings, value):
    settings.PGQUEUE = {**settings.PGQUEUE, "READ_TIMEOUT_SECONDS": value}
    [error] = check_settings()
    assert (error.id, error.msg) == ("pgqueue.E002", f"PGQUEUE['READ_TIMEOUT_SECONDS'] is {value!r}.")


@pytest.mark.parametrize(
    ("model", "title"),
    [
        ("job", "Jobs"),
        ("queue", "Queues"),
        ("worker", "Workers"),
        ("schedule", "Schedules"),
        ("bulkaction", "Bulk actions"),
    ],
)
def test_each_list_has_its_name_as_title(admin_client, model, title):
    assert f"<title>{title} |" in admin_client.get(f"/admin/pgqueue/{model}/").content.decode()


def test_hidden_argument_of_a_schedule_cannot_be_guessed_letter_by_letter(db):
    given = {"task": "tests.app.tasks.log_in", "kwargs": {"password": "hunter2"}}
    Schedule.objects.create(name="nightly", every_seconds=60, next_at="2030-01-01 00:00Z", **given)
    client = user_with("view_schedule")
    for letter in "hx":
        answer = client.get(f"/admin/pgqueue/schedule/?kwargs__password__startswith={letter}")
        assert answer.status_code == 400


@pytest.mark.django_db
@pytest.mark.parametrize("made", LISTS, ids=lambda made: made.opts.model_name)
def test_address_bar_compares_no_column_but_those_that_the_list_offers(made):
    """The view is asked directly, without the session and the user that each request would read."""
    user_with(*(f"{right}_{made.opts.model_name}" for right in ("view", "change")))
    user = User.objects.get()
    for field in made.opts.fields:
        for lookup in (field.name, *(f"{field.name}__{kind}" for kind in KINDS)):
            allowed = lookup in getattr(made, "lookups", ())
            request = RequestFactory().get(f"/admin/pgqueue/{made.opts.model_name}/", {lookup: "1"})
            request.user = user
            try:
                answer = made.changelist_view(request)
            except SuspiciousOperation:  # which Django answers with 400
                continue
            assert allowed or answer.status_code == 302, lookup
            assert allowed or "e=1" in answer["Location"], lookup
