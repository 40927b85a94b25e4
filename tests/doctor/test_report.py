"""Each fault that is planted is found by name; nothing is found where all is well, or once it is cured."""

import contextlib
import datetime as dt
import threading
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.doctor import Level, findings, tables
from django_pgqueue.jobs.actions import KILL
from django_pgqueue.jobs.bulk_actions import begin
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import Schedule, SucceededJob
from django_pgqueue.version import VERSION
from tests.support.doctor import (
    Fault,
    found,
    found_until_cured,
    is_healthy,
    only,
    say,
)
from tests.support.schedules import make
from tests.support.waiting import PATIENCE_SECONDS, beside, eventually
from tests.support.worker_rows import ALIVE, forget_counters, worker

pytestmark = pytest.mark.django_db


def nothing(sql) -> bool:
    """Whether nothing is found, once the last session of an earlier test has told what it did."""
    forget_counters(sql)
    return findings() == []


def test_nothing_is_found_where_all_is_well(sql):
    worker()
    app.noop.enqueue_many([()] * 3)
    make("hourly")
    Schedule.objects.update(next_at=timezone.now() + ALIVE)
    eventually(lambda: nothing(sql))


@pytest.mark.django_db(transaction=True)
def test_nothing_is_found_while_a_real_worker_works_and_it_is_missed_once_it_is_gone(start_worker, sql):
    real = start_worker(LEASE_SECONDS="3").wait_until_ready()
    app.noop.enqueue_many([()] * 20)
    eventually(lambda: SucceededJob.objects.count() == 20)
    eventually(lambda: nothing(sql))
    real.kill_group()
    app.noop.enqueue_many([()])
    eventually(lambda: found("no-workers"))
    assert only("no-workers").level is Level.ERROR


def test_look_that_the_database_refuses_is_a_finding_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr(tables, "statement", lambda _name: "SELECT 1/0")
    names = {finding.name for finding in findings()}
    assert {"no-workers", "not-looked-at"} <= names


def partition_of(days: int) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date + %s", [days])
        return f"pgqueue_succeeded_jobs_{cursor.fetchone()[0]:%Y%m%d}"


def drop_tomorrow(sql) -> None:
    sql(f"DROP TABLE {partition_of(1)}")


def keep_partitions(_sql, _finding) -> None:
    def run() -> bool:
        with contextlib.suppress(CommandError):  # autovacuum is in the way, and gives way after a second
            call_command("pgqueue_retention", "run", stdout=StringIO(), stderr=StringIO())
            return True
        return False

    eventually(run)


def ask_for_what_no_worker_does(sql) -> None:
    begin(KILL, Filter(queues=("mail",)), by="ann")
    sql("UPDATE pgqueue_bulk_actions SET next_at = statement_timestamp() - interval '2 minutes'")


FAILED = (
    "INSERT INTO pgqueue_stats (minute, queue, task, failed) "
    "VALUES (date_trunc('minute', now()) - interval '2 min', 'mail', 't', 10)"
)

FAULTS: dict[str, Fault] = {
    "unknown task": (
        "unknown-tasks",
        "INSERT INTO pgqueue_jobs (task) VALUES ('gone')",
        "DELETE FROM pgqueue_jobs",
        0,
    ),
    "queue that no worker serves": (
        "queue-not-served",
        (
            "UPDATE pgqueue_workers SET queues = '[\"mail\"]'; INSERT INTO pgqueue_jobs (task) VALUES "
            "('tests.app.tasks.noop')"
        ),
        "UPDATE pgqueue_workers SET queues = '[]'",
        1,
    ),
    "no worker, and work": (
        "no-workers",
        (
            "UPDATE pgqueue_workers SET lease_until = now(); INSERT INTO pgqueue_jobs (task) VALUES "
            "('tests.app.tasks.noop')"
        ),
        "UPDATE pgqueue_workers SET lease_until = now() + interval '1 h'",
        1,
    ),
    "worker that polls": (
        "polling",
        "UPDATE pgqueue_workers SET session_pid = 0",
        "UPDATE pgqueue_workers SET session_pid = 1",
        0,
    ),
    "job that waits and waits": (
        "oldest-job",
        (
            "INSERT INTO pgqueue_jobs (task, run_at, enqueued_at) "
            "VALUES ('tests.app.tasks.noop', now() - interval '16 min', now() - interval '1 h')"
        ),
        "DELETE FROM pgqueue_jobs",
        0,
    ),
    "attempts that fail": ("failing", FAILED, "DELETE FROM pgqueue_stats", 1),
    "late schedule": (
        "schedules-late",
        lambda _sql: make("hourly", next_at=timezone.now() - dt.timedelta(minutes=2)),
        "UPDATE pgqueue_schedules SET is_enabled = false",
        1,
    ),
    "refused schedule": (
        "schedules-refused",
        lambda _sql: make("hourly", next_at=timezone.now() + ALIVE, last_error="no such task"),
        "UPDATE pgqueue_schedules SET last_error = ''",
        1,
    ),
    "missing partition": ("partitions-missing", drop_tomorrow, keep_partitions, 0),
    "changed storage options": (
        "storage-options",
        "ALTER TABLE pgqueue_jobs SET (fillfactor = 100)",
        "ALTER TABLE pgqueue_jobs SET (fillfactor = 50)",
        0,
    ),
    "workers of another version": (
        "versions-differ",
        "UPDATE pgqueue_workers SET version = '0.0.1'",
        f"UPDATE pgqueue_workers SET version = '{VERSION}'",
        0,
    ),
    "bulk action that no worker does": (
        "bulk-actions-stalled",
        ask_for_what_no_worker_does,
        "UPDATE pgqueue_bulk_actions SET ended_at = now()",
        0,
    ),
    "more slots than the server has connections": (
        "connections-short",
        "UPDATE pgqueue_workers SET concurrency = 1000",
        "UPDATE pgqueue_workers SET concurrency = 8",
        1,
    ),
}


def test_there_are_a_dozen_faults_and_more():
    assert len({name for name, *_ in FAULTS.values()}) >= 12


@pytest.mark.usefixtures("living", "storage_options")
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_found_by_name_and_silent_once_it_is_cured(fault, sql):
    name, *planted = FAULTS[fault]
    names = found_until_cured(sql, name, *planted)
    assert names == {name} or fault.startswith("missing")


@pytest.mark.usefixtures("living")
def test_no_lock_is_waited_for(sql):
    """What another session has locked is not looked at, and that is told by an exit code of its own."""
    locked, done = threading.Event(), threading.Event()

    def lock() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE pgqueue_stats IN ACCESS EXCLUSIVE MODE")
            locked.set()
            done.wait(PATIENCE_SECONDS)
        connection.close()

    with beside(lock):
        assert locked.wait(PATIENCE_SECONDS)
        try:
            text, complaint, code = say()
        finally:
            done.set()
    assert "question for failing: canceling statement due to lock timeout" in text
    assert (complaint, code) == ("Not everything could be looked at.", 2)
    eventually(lambda: is_healthy(sql))
