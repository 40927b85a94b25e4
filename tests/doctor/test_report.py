"""Findings of the health panel: each is planted, and none is there where all is well."""

import datetime as dt

import pytest
from django.db import connection
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import doctor, enqueue_many, pause_queue
from django_pgqueue.doctor import Level, findings, tables
from django_pgqueue.doctor.finding import View
from django_pgqueue.maintenance.vacuum import SnapshotHolder
from django_pgqueue.models import FinishedJob, Schedule
from tests.support.schedules import make
from tests.support.waiting import eventually
from tests.support.worker_rows import ALIVE, forget_counters, forget_others, worker

pytestmark = pytest.mark.django_db


def found(name: str) -> list[doctor.Finding]:
    return [finding for finding in findings() if finding.name == name]


def only(name: str) -> doctor.Finding:
    [finding] = found(name)
    assert finding.what
    assert finding.remedy
    return finding


def nothing(sql) -> bool:
    """Whether nothing is found, once the last session of an earlier test has told what it did."""
    forget_counters(sql)
    return findings() == []


def test_nothing_is_found_where_all_is_well(sql):
    worker()
    enqueue_many(app.noop, [()] * 3)
    make("hourly")
    Schedule.objects.update(next_at=timezone.now() + ALIVE)
    eventually(lambda: nothing(sql))


@pytest.mark.django_db(transaction=True)
def test_nothing_is_found_while_a_real_worker_works_and_it_is_missed_once_it_is_gone(start_worker, sql):
    real = start_worker(LEASE_SECONDS="3").wait_until_ready()
    enqueue_many(app.noop, [()] * 20)
    eventually(lambda: FinishedJob.objects.count() == 20)
    eventually(lambda: nothing(sql))
    real.kill_group()
    enqueue_many(app.noop, [()])
    eventually(lambda: found("no-workers"))
    assert only("no-workers").level is Level.ERROR


def test_no_worker_is_worse_while_jobs_wait():
    assert only("no-workers").level is Level.WARNING
    enqueue_many(app.noop.using(queue="mail"), [()])
    assert only("no-workers").level is Level.ERROR
    assert "mail" in only("no-workers").what
    worker(lease_until=timezone.now() - ALIVE)
    assert only("no-workers")
    worker()
    assert not found("no-workers")


def test_queue_that_no_living_worker_serves_is_named():
    worker(queues=["default", "m*", "-mail"])
    enqueue_many(app.noop.using(queue="mail"), [()] * 3)
    enqueue_many(app.noop.using(queue="music"), [()])
    finding = only("queue-not-served")
    assert (finding.facts["queues"], finding.level) == (["mail"], Level.ERROR)
    assert "mail (3)" in finding.what
    pause_queue("mail", by="ann")
    assert not found("queue-not-served")


def test_many_queues_are_one_finding():
    worker(queues=["default"])
    for number in range(8):
        enqueue_many(app.noop.using(queue=f"q{number}"), [()])
    finding = only("queue-not-served")
    assert "8 queues" in finding.what
    assert "q4 (1) and 3 more" in finding.what
    assert len(finding.facts["queues"]) == 8


def test_workers_that_poll_although_jobs_are_announced_are_found(settings):
    worker()
    worker(session_pid=0, supervisor_id=2)
    worker(session_pid=0, supervisor_id=2)
    worker(session_pid=0, supervisor_id=3, started_at=timezone.now())
    assert "1 of 3" in only("polling").what
    settings.PGQUEUE = {**settings.PGQUEUE, "NOTIFY": False}
    assert not found("polling")


@pytest.mark.parametrize(("minutes", "is_found"), [(14, False), (16, True)])
def test_job_that_waits_too_long_is_found_where_its_queue_is_served(sql, minutes, is_found):
    enqueue_many(app.noop, [()] * 2)
    sql("UPDATE pgqueue_jobs SET run_at = statement_timestamp() - make_interval(mins => %s)", minutes)
    assert not found("oldest-job")
    worker()
    assert bool(found("oldest-job")) is is_found


@pytest.mark.parametrize(("succeeded", "failed", "is_found"), [(5, 5, True), (6, 5, False), (0, 9, False)])
def test_queue_whose_attempts_mostly_fail_is_found(sql, succeeded, failed, is_found):
    sql(
        "INSERT INTO pgqueue_stats (minute, queue, task, succeeded, failed) VALUES "
        "(date_trunc('minute', statement_timestamp()) - interval '2 minutes', 'mail', 't', %s, %s)",
        succeeded,
        failed,
    )
    assert bool(found("failing")) is is_found
    if is_found:
        assert "mail (50 % of 10)" in only("failing").what


def test_unknown_tasks_are_found_among_queued_and_scheduled_jobs(sql):
    enqueue_many(app.noop, [()] * 3)
    assert not found("unknown-tasks")
    sql("INSERT INTO pgqueue_jobs (task) VALUES ('gone.a'), ('gone.a')")
    sql("INSERT INTO pgqueue_jobs (task, status, run_at) VALUES ('<gone>.b', 'scheduled', now() + interval '1 min')")
    finding = only("unknown-tasks")
    assert set(finding.facts["tasks"]) == {"gone.a", "<gone>.b"}
    assert "3 jobs" in finding.what


def test_schedule_that_is_late_is_found_unless_it_is_paused():
    make("hourly")
    Schedule.objects.update(next_at=timezone.now() - dt.timedelta(seconds=30))
    assert not found("schedules-late")
    Schedule.objects.update(next_at=timezone.now() - dt.timedelta(seconds=70))
    assert "hourly" in only("schedules-late").what
    Schedule.objects.update(is_enabled=False)
    assert not found("schedules-late")


def test_schedule_whose_tick_was_refused_is_found():
    make("hourly", last_error="no such task")
    assert "hourly" in only("schedules-refused").what


@pytest.mark.django_db(transaction=True)
def test_old_snapshot_is_found_with_whose_it_is(elsewhere, monkeypatch):
    assert not found("old-snapshot")
    monkeypatch.setattr(tables, "OLD_SECONDS", 0)
    finding = only("old-snapshot")
    assert finding.facts["application"] == "report"
    assert finding.facts["user"] == connection.settings_dict["USER"]
    assert "idle in transaction" in finding.what
    assert f"pg_terminate_backend({finding.facts['handle']})" in finding.remedy


MANY = tables.MANY_DEAD_ROWS


@pytest.mark.parametrize(
    ("seconds", "dead", "is_found"),
    [
        (tables.OLD_SECONDS, 0, True),
        (tables.OLD_SECONDS - 1, 10**9, False),
        (None, MANY, True),
        (None, MANY - 1, False),
    ],
)
def test_who_tells_no_time_is_judged_by_the_dead_rows(seconds, dead, is_found, monkeypatch):
    monkeypatch.setattr(tables, "MANY_DEAD_ROWS", MANY)
    holder = SnapshotHolder("1", "replication slot standby_1", "slot", "standby_1", seconds)
    assert tables._is_old(holder, dead) is is_found


@pytest.mark.django_db(transaction=True)
def test_dead_rows_are_found_once_there_are_many(sql, monkeypatch):
    monkeypatch.setattr(tables, "MANY_DEAD_ROWS", 20)

    def dead_rows() -> list[doctor.Finding]:
        enqueue_many(app.noop, [()] * 20)
        sql("DELETE FROM pgqueue_jobs")
        sql("SELECT pg_stat_force_next_flush()")
        sql("SELECT 1")
        return found("dead-rows")  # not if an autovacuum, for rows of tests before, has just begun anew

    [finding] = eventually(dead_rows)
    assert finding.facts["dead"] >= 20
    monkeypatch.setattr(tables, "MANY_DEAD_ROWS", 1_000_000)
    assert not found("dead-rows")


def test_days_without_a_partition_are_named(sql):
    [(today,)] = sql("SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date")
    assert not found("partitions-missing")
    sql(f"DROP TABLE IF EXISTS pgqueue_finished_jobs_{today + dt.timedelta(7):%Y%m%d}")  # made before midnight?
    assert not found("partitions-missing")
    sql(f"DROP TABLE pgqueue_finished_jobs_{today + dt.timedelta(1):%Y%m%d}")
    assert str(today + dt.timedelta(1)) in only("partitions-missing").what


@pytest.mark.django_db(transaction=True)
def test_rows_in_the_default_partition_are_found(sql):
    forget_others(sql)
    assert not found("default-partition")
    sql(
        "INSERT INTO pgqueue_finished_jobs (id, finished_at, enqueued_at, run_at, first_started_at, started_at, "
        "worker_id, run_seconds, priority, attempts, lost, queue, task, backend, args, kwargs, metadata, errors) "
        "VALUES (1, '2001-01-01', now(), now(), now(), now(), 0, 1, 0, 1, 0, 'q', 't', '', '[]', '{}', '{}', '[]')"
    )
    sql("SELECT pg_stat_force_next_flush()")
    sql("SELECT 1")
    assert only("default-partition").facts == {"rows": 1}


def test_changed_storage_options_are_found(sql):
    sql("ALTER TABLE pgqueue_jobs SET (fillfactor = 90)")
    finding = only("storage-options")
    assert "fillfactor = 90" in finding.what
    assert finding.remedy.endswith("ALTER TABLE pgqueue_jobs SET (fillfactor = 50);")
    sql("ALTER TABLE pgqueue_jobs SET (fillfactor = 50, autovacuum_enabled = off)")
    assert "autovacuum_enabled = on" in only("storage-options").remedy


def test_server_without_autovacuum_is_found(monkeypatch):
    options, _is_on, rows = tables._storage(View("default", []))
    monkeypatch.setattr(tables, "_storage", lambda _view: (options, False, rows))
    assert "no autovacuum" in only("autovacuum-off").what


@pytest.mark.parametrize(("minutes", "word"), [(10, "ahead"), (-10, "behind")])
def test_clock_that_differs_from_the_databases_is_found(monkeypatch, minutes, word):
    now = timezone.now
    monkeypatch.setattr(tables.timezone, "now", lambda: now() + dt.timedelta(minutes=minutes))
    finding = only("clocks-differ")
    assert word in finding.what
    assert "10 min" in finding.what


def test_look_that_the_database_refuses_is_a_finding_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr(tables, "statement", lambda _name: "SELECT 1/0")
    names = {finding.name for finding in findings()}
    assert {"no-workers", "not-looked-at"} <= names
