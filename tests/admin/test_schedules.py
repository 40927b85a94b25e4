"""The list and the pages of schedules."""

import contextlib
import datetime as dt
import re

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import periodic
from django_pgqueue.admin.forms import ScheduleForm
from django_pgqueue.db.queries import bounded, statement
from django_pgqueue.models import DeadJob, Job, Schedule
from django_pgqueue.schedules import periodic as timetable
from django_pgqueue.schedules.enqueuer import fire_due
from tests.support.admin_schedules import LIST, entered, page
from tests.support.plans import nodes_of
from tests.support.schedules import HOUR, RECORD, START, make
from tests.support.staff import SUCCEEDED, confirm, messages_of, tick, user_with

pytestmark = pytest.mark.django_db

ALL = ("view", "add", "change", "delete", "pause", "run")


@pytest.fixture
def staff(db) -> Client:
    return user_with(*(f"{what}_schedule" for what in ALL))


def test_list_shows_when_schedules_run_and_what_became_of_the_last_job(staff, queue):
    make("a", cron="30 2 * * *", timezone="Asia/Tokyo", last_error="No luck.")
    make("b", is_enabled=False, paused_by="eve", last_job_id=app.noop.enqueue().id)
    make("c", source="code")
    text = staff.get(LIST).content.decode()
    for words in ("30 2 * * * (Asia/Tokyo)", "passed over", "every 1:00:00", "paused by eve", "queued", "none yet"):
        assert words in text
    assert "code, but not this one" in text
    assert staff.get(LIST, {"q": "zzz"}).context["cl"].result_count == 0


def test_cron_entries_are_said_in_words(staff):
    make("a", cron="30 2 * * mon-fri", timezone="Asia/Tokyo")
    nickname = make("b", cron="@daily")
    assert "At 02:30 on Monday through Friday" in staff.get(LIST).content.decode()
    assert "At 00:00 every day" in staff.get(page(nickname)).content.decode()


@pytest.mark.parametrize(("seconds", "is_late"), [(0, False), (90, True)])
def test_schedule_that_is_late_says_so(staff, seconds, is_late):
    make("a")
    Schedule.objects.update(next_at=timezone.now() - dt.timedelta(seconds=seconds))
    assert (">late<" in staff.get(LIST).content.decode()) is is_late
    assert (">late<" in staff.get(page(Schedule.objects.get())).content.decode()) is is_late
    Schedule.objects.update(is_enabled=False)
    assert ">late<" not in staff.get(LIST).content.decode()


@pytest.fixture
def with_runs(sql) -> Schedule:
    """A schedule with jobs that have succeeded, 1 to 30, one that is dead and one that is queued; others have more."""
    schedule = make("a", last_job_id=app.noop.enqueue().id)
    Job.objects.update(id=1000)
    Schedule.objects.update(last_job_id=1000)
    sql(SUCCEEDED, schedule.pk, 1, 30)
    sql(SUCCEEDED, schedule.pk + 1, 500, 510)
    error = [{"error": "<b>Bad", "message": "secret"}]
    DeadJob.objects.create(
        id=40, schedule_id=schedule.pk, run_at=START, enqueued_at=START, reason="exhausted", errors=error, task="t"
    )
    return Schedule.objects.get()


def test_page_shows_what_became_of_the_latest_jobs(with_runs):
    text = user_with("view_schedule", "view_deadjob", "view_job").get(page(with_runs)).content.decode()
    table = text[text.index('data-pgqueue-live="runs"') :]
    ids = re.findall(r'<th scope="row">(?:<a href="[^"]*">)?(\d+)', table)
    assert ids == ["1000", "40", *map(str, range(30, 12, -1))]
    assert '<a href="/admin/pgqueue/job/1000/change/">1000</a>' in table
    assert '<a href="/admin/pgqueue/deadjob/40/change/">40</a>' in table
    assert "exhausted" in table
    assert "&lt;b&gt;Bad" in table
    assert "secret" not in table
    assert "<td>30 s</td>\n<td>12 s</td>" in table


def test_jobs_of_a_schedule_lead_nowhere_for_a_user_who_may_not_see_them(with_runs):
    text = user_with("view_schedule").get(page(with_runs)).content.decode()
    assert '/change/">1000' not in text
    assert ">1000<" in text


def test_jobs_of_a_schedule_are_found_by_its_indexes(with_runs, sql):
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, run_at, enqueued_at, reason, queue, task) "
        "SELECT number, now(), now(), 'exhausted', 'q', 't' FROM generate_series(10000, 12000) AS number"
    )
    sql("ANALYZE pgqueue_dead_jobs")
    parameters = {"schedule_id": with_runs.pk, "last_job_id": 1000, "limit": 20}
    with bounded(), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {statement('schedule_runs')}", parameters)
        [(plan,)] = cursor.fetchall()
    read = [node for node in nodes_of(plan) if "Relation Name" in node]
    assert {node["Node Type"] for node in read} == {"Index Scan"}
    assert "pgqueue_dead_jobs_schedule" in {node["Index Name"] for node in read}


def test_page_shows_the_next_five_runs_and_why_the_last_tick_became_no_job(staff):
    row = make(cron="30 2 * * *", timezone="Europe/Berlin", next_at=dt.datetime(2026, 3, 28, 1, 30, tzinfo=dt.UTC))
    Schedule.objects.update(last_error="<b>No luck.</b>", last_at=START)
    text = staff.get(page(row)).content.decode()
    for shown in ("2026-03-28 02:30:00+01:00", "2026-03-29 03:00:00+02:00", "2026-04-01 02:30:00+02:00"):
        assert shown in text
    assert "2026-04-02" not in text
    assert "&lt;b&gt;No luck." in text


@pytest.mark.django_db(transaction=True)
def test_change_writes_what_was_changed_and_nothing_that_a_worker_has_just_moved_on(queue, monkeypatch):
    staff = user_with(*(f"{what}_schedule" for what in ALL))
    row = make(last_error="No luck.")
    clean = ScheduleForm.clean

    def fire_meanwhile(form):
        fire_due(queue, now=START)
        return clean(form)

    monkeypatch.setattr(ScheduleForm, "clean", fire_meanwhile)
    staff.post(page(row), entered(args='["y"]'))
    changed = Schedule.objects.get()
    assert (changed.args, changed.next_at, changed.last_at) == (["y"], START + HOUR, START)
    assert (changed.last_error, changed.edited_at) == ("", None)
    staff.post(page(row), entered(args='["y"]', every_seconds="", cron="0 0 1 1 *"))
    changed = Schedule.objects.get()
    assert (changed.next_at.month, changed.next_at.day, changed.every_seconds) == (1, 1, None)


def test_schedule_of_code_keeps_name_and_task_and_says_that_edits_win(staff, monkeypatch):
    monkeypatch.setattr(timetable, "_declared", {})
    periodic(every=HOUR, name="hourly")(app.record)
    row = make(source="code")
    staff.post(page(row), entered(name="other", task="tests.app.tasks.noop", every_seconds="60"))
    changed = Schedule.objects.get()
    assert (changed.name, changed.task, changed.every_seconds) == ("hourly", RECORD, 60)
    assert changed.edited_at
    assert "code, edited here: the edits win" in staff.get(page(row)).content.decode()
    assert messages_of(confirm(staff, f"{LIST}restore/", row.pk)) == ["1 schedule was restored."]
    assert Schedule.objects.get().edited_at is None


def test_what_the_code_declares_is_not_deleted(staff, monkeypatch):
    monkeypatch.setattr(timetable, "_declared", {})
    row, mine = make(source="code"), make("mine")
    assert staff.post(f"{LIST}{mine.pk}/delete/", {"post": "yes"}).status_code == 302
    periodic(every=HOUR, name="hourly")(app.record)
    assert staff.post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    tick(staff, LIST, "delete_selected", row.pk, post="yes")
    assert list(Schedule.objects.values_list("name", flat=True)) == ["hourly"]


@pytest.mark.parametrize(
    ("permissions", "refused"),
    [
        ((), ["", "add/", "{}/change/", "pause/", "resume/", "run/", "restore/", "{}/delete/"]),
        (("view",), ["add/", "pause/", "resume/", "run/", "restore/", "{}/delete/"]),
        (("view", "run"), ["add/", "pause/", "resume/", "restore/"]),
        (("view", "pause"), ["add/", "run/", "restore/"]),
        (("view", "change"), ["add/", "run/", "pause/", "resume/"]),
    ],
)
def test_each_action_needs_its_permission(permissions, refused):
    row = make()
    client = user_with(*(f"{what}_schedule" for what in permissions))
    for address in refused:
        data = {"ids": str(row.pk), "confirmed": "yes", "filters": ""}
        assert client.post(f"{LIST}{address.format(row.pk)}", data).status_code == 403, address
    assert client.post(page(row), entered(every_seconds="60")).status_code == (302 if "change" in permissions else 403)


def test_viewer_sees_and_cannot_change():
    row = make(task="tests.app.tasks.log_in", args=["ann", "hunter2"])
    text = user_with("view_schedule").get(page(row)).content.decode()
    assert "hunter2" not in text
    assert "<textarea" not in text
    assert 'class="pgqueue-action"' not in text


def test_nothing_selected_changes_nothing(staff):
    assert messages_of(confirm(staff, f"{LIST}run/")) == ["Nothing was selected, so nothing was changed."]


@pytest.mark.parametrize("value", ["[" + "1" * 5000 + "]", "[" * 100_000])
def test_json_that_cannot_be_read_is_said_at_its_field(staff, value):
    form = staff.post(f"{LIST}add/", entered(args=value)).context["adminform"].form
    assert form.errors["args"] == ["That cannot be read: a number is too long, or it is nested too deeply."]


def test_options_that_cannot_be_stored_and_names_that_are_too_long_are_refused(staff):
    sent = entered(name="x" * 201, options='{"metadata": {"a": "\\u0000"}}')
    errors = staff.post(f"{LIST}add/", sent).context["adminform"].form.errors
    assert set(errors) == {"name", "options"}
    assert not Schedule.objects.exists()


def test_sensitive_values_in_metadata_are_not_shown_and_cannot_be_edited(staff):
    made = make(options={"metadata": {"api_token": "hunter2", "shop": 7}, "queue": "mail"})
    html = staff.get(page(made)).content.decode()
    assert "hunter2" not in html
    assert "[redacted]" in html
    staff.post(page(made), entered(cron="@daily", every_seconds="", options="{}"))
    made.refresh_from_db()
    assert (made.cron, made.options["metadata"]["api_token"]) == ("@daily", "hunter2")


def test_error_of_a_middleware_keeps_one_schedule_from_being_run_and_no_other(staff, settings):
    class Refusing:
        def enqueue(self, jobs):
            if jobs.task == RECORD:
                raise PermissionError("hunter2")
            return contextlib.nullcontext()

    settings.PGQUEUE = {**settings.PGQUEUE, "MIDDLEWARE": [Refusing]}
    refused, good = make("refused"), make("good", task="tests.app.tasks.noop", args=[])
    response = confirm(staff, f"{LIST}run/", refused.pk, good.pk)
    assert [job.schedule_id for job in Job.objects.all()] == [good.pk]
    [_, said] = messages_of(response)
    assert "Code of the project raised PermissionError." in said
    assert "hunter2" not in said
