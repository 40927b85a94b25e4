"""Rows of workers: alive, silent, elsewhere; as they are registered, and forgotten."""

import datetime as dt
import threading

import pytest
from django.db import connection, connections
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.jobs import leases as worker_rows
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.reaper import reap_lost
from django_pgqueue.maintenance.vacuum import oldest_snapshot
from django_pgqueue.models import Worker
from django_pgqueue.version import VERSION
from tests.support.many import enqueued_ids
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.workers import until_alone

ALIVE = dt.timedelta(minutes=5)


def worker(**values) -> Worker:
    """Note a worker process that is alive and listens."""
    return Worker.objects.create(
        **{
            "supervisor_id": 1,
            "started_at": timezone.now() - ALIVE,
            "lease_until": timezone.now() + ALIVE,
            "pid": 4711,
            "session_pid": 4712,
            "concurrency": 8,
            "host": "shop-1",
            "version": VERSION,
            **values,
        }
    )


COUNTED = ("pgqueue_jobs", "pgqueue_succeeded_jobs_default")


def forget_counters(sql) -> None:
    """Let the server begin to count anew: what other tests did in the same tables is none of this one's business.

    What ANALYZE has found in a transaction of theirs stays when that is rolled back.
    """
    sql("ANALYZE pgqueue_succeeded_jobs_default")
    sql("SELECT pg_stat_force_next_flush()")  # else this session may tell of that later
    sql("SELECT pg_stat_clear_snapshot()")
    for table in COUNTED:
        sql("SELECT pg_stat_reset_single_table_counters(%s::regclass)", table)


def forget_others(sql) -> None:
    """Begin to count anew when no session is left that could tell of earlier tests; while no other session is open."""
    until_alone(sql)
    forget_counters(sql)


@pytest.fixture
def elsewhere():
    """A transaction of another session, with a snapshot."""
    ready, done = threading.Event(), threading.Event()

    def hold():
        other = connections.create_connection("default")
        other.settings_dict = {**connection.settings_dict, "OPTIONS": {"application_name": "report"}}
        with other.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("SELECT 1 FROM pgqueue_jobs")
            ready.set()
            done.wait(PATIENCE_SECONDS)
        other.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert ready.wait(PATIENCE_SECONDS)
    eventually(
        lambda: oldest_snapshot(CallerConnection()).name.endswith("(report)")
    )  # autovacuum may hold an older one
    yield
    done.set()
    thread.join(PATIENCE_SECONDS)


def register(queue, **changes) -> int:
    values = {
        "supervisor_id": 1,
        "host": "web1",
        "name": "",
        "version": "1",
        "concurrency": 8,
        "queues": (),
        "lease_seconds": 30,
    }
    return worker_rows.register(queue, **values | changes)


@pytest.fixture
def lost(queue, sql):
    """Claim jobs for a worker that then falls silent; return their ids."""

    def make(number=1, **options):
        ids = enqueued_ids(app.noop.using(**options), [()] * number)
        worker_id = register(queue)
        worker_rows.heartbeat(queue, {worker_id: 4711}, lease_seconds=30)
        claim(queue, "default", limit=1000, worker_id=worker_id)
        sql("UPDATE pgqueue_jobs SET lease_until = now() - interval '1 s'")
        sql("UPDATE pgqueue_workers SET lease_until = now() - interval '1 s'")
        return ids

    return make


def running_workers(database) -> list[int]:
    """Return the processes that run jobs, dead or alive."""
    rows = database.rows("SELECT DISTINCT worker_id FROM pgqueue_jobs WHERE status = 'running'", {})
    return [worker_id for (worker_id,) in rows]


def reap_all(database):
    """Settle what has no lease, as of whichever process."""
    return reap_lost(database, running_workers(database))


def silence(sql, session_pid, seconds=60):
    sql(
        "UPDATE pgqueue_workers SET lease_until = now() + interval '1 min', session_pid = %s, "
        "heartbeat_at = now() - make_interval(secs => %s)",
        session_pid,
        seconds,
    )
