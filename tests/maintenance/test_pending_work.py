import datetime as dt

import pytest

import tests.app.tasks as app
from django_pgqueue.jobs.ack import write
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.pending_work import PendingWork, pending_work
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.records import Fate, Outcome
from tests.support.waiting import eventually


def test_nothing_is_to_be_done_for_an_empty_table_nor_for_what_waits_for_its_time(queue):
    assert pending_work(queue) == PendingWork()
    app.noop.using(run_at=dt.timedelta(hours=1)).enqueue()
    app.noop.using(queue="mail", expires=60).enqueue()
    assert pending_work(queue) == PendingWork()


def test_next_job_that_is_due_soon_is_told(queue, sql):
    app.noop.using(run_at=dt.timedelta(seconds=1)).enqueue()

    def due_in_a_second() -> bool:
        sql("UPDATE pgqueue_jobs SET run_at = now() + interval '1 s'")
        seconds = pending_work(queue).due_seconds
        assert seconds <= 1
        return seconds > 0  # unless that second went by between the two statements

    eventually(due_in_a_second)
    sql("DELETE FROM pgqueue_jobs")
    app.noop.using(run_at=dt.timedelta(milliseconds=1)).enqueue()
    while (seconds := pending_work(queue).due_seconds) > 0:
        assert seconds <= 0.001
    promote(queue)
    assert pending_work(queue).due_seconds is None


@pytest.mark.parametrize("status", ["scheduled", "queued", "waiting"])
def test_jobs_that_expire_are_found_until_they_run(queue, sql, status):
    app.noop.using(expires=60, concurrency_key="k").enqueue()
    sql("UPDATE pgqueue_jobs SET status = %s, concurrency_slot = 1, expires_at = now()", status)
    assert pending_work(queue).has_expired


def test_running_and_started_jobs_and_reserved_are_found(queue, sql):
    app.noop.using(unique_key="k", unique_scope="start").enqueue()
    app.noop.using(unique_key="period", unique_for=60).enqueue()
    first, second = claim(queue, "default", limit=2, worker_id=1)
    assert pending_work(queue) == PendingWork(has_running=True)
    write(queue, [Outcome(first, Fate.RELEASED), Outcome(second, Fate.SUCCEEDED)])
    assert pending_work(queue) == PendingWork(has_started=True)
    sql("UPDATE pgqueue_jobs SET run_at = now() WHERE status = 'reserved'")
    assert pending_work(queue) == PendingWork(has_started=True, has_reserved=True)


def test_waiting_jobs_are_found(queue):
    app.noop.using(concurrency_key="k").enqueue()
    assert pending_work(queue) == PendingWork(has_waiting=True)
