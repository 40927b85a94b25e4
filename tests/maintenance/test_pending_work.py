"""Pending work: one statement says which passes have anything to do, and whether a command is drained."""

import datetime as dt
import math

import pytest

import tests.app.tasks as app
from django_pgqueue import Unique, batch, chain, queues, workflow
from django_pgqueue.jobs import kill
from django_pgqueue.jobs.ack import write
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.maintenance.pending_work import PendingWork, is_drained, oldest_runnable, pending_work
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.maintenance.stages import move_slices, sweep_stages
from django_pgqueue.models import Job
from django_pgqueue.records import Fate, Outcome
from tests.support.waiting import eventually


def test_nothing_is_to_be_done_for_an_empty_table_nor_for_what_waits_for_its_time(queue):
    assert pending_work(queue) == PendingWork()
    app.noop.using(delay=dt.timedelta(hours=1)).enqueue()
    app.noop.using(queue="mail", expires=60).enqueue()
    assert pending_work(queue) == PendingWork()


def test_next_job_that_is_due_soon_is_told(queue, sql):
    app.noop.using(delay=dt.timedelta(seconds=1)).enqueue()

    def due_in_a_second() -> bool:
        sql("UPDATE pgqueue_jobs SET run_at = now() + interval '1 s'")
        seconds = pending_work(queue).due_seconds
        assert seconds <= 1
        return seconds > 0  # unless that second went by between the two statements

    eventually(due_in_a_second)
    sql("DELETE FROM pgqueue_jobs")
    app.noop.using(delay=dt.timedelta(milliseconds=1)).enqueue()
    while (seconds := pending_work(queue).due_seconds) > 0:
        assert seconds <= 0.001
    promote(queue)
    assert pending_work(queue).due_seconds is None


def test_next_that_is_due_is_the_first_that_is_still_ahead():
    """What is due already does not end a pause: its service knows when to try again."""
    assert PendingWork().next_seconds() == math.inf
    assert PendingWork(due_seconds=-1.0, tick_seconds=0.0).next_seconds() == math.inf
    assert PendingWork(due_seconds=-1.0, tick_seconds=0.5, bulk_action_seconds=0.2).next_seconds() == 0.2


@pytest.mark.parametrize("status", ["scheduled", "queued", "limited"])
def test_jobs_that_expire_are_found_until_they_run(queue, sql, status):
    app.noop.using(expires=60, limit_key="k").enqueue()
    sql("UPDATE pgqueue_jobs SET status = %s, concurrency_slot = 1, expires_at = now()", status)
    assert pending_work(queue).has_expired


def test_running_and_started_jobs_and_reserved_are_found(queue, sql):
    app.noop.using(unique_key="k", unique=Unique(until="start")).enqueue()
    app.noop.using(unique_key="period", unique=Unique(hold=60)).enqueue()
    first, second = claim(queue, "default", limit=2, worker_id=1)
    assert pending_work(queue) == PendingWork(has_running=True)
    write(queue, [Outcome(first, Fate.RELEASED), Outcome(second, Fate.SUCCEEDED)])
    assert pending_work(queue) == PendingWork(has_started=True)
    sql("UPDATE pgqueue_jobs SET run_at = now() WHERE status = 'reserved'")
    assert pending_work(queue) == PendingWork(has_started=True, has_reserved=True)


def test_queued_jobs_are_found_for_idle_workers_alone(queue):
    assert (pending_work(queue).has_queued, pending_work(queue, is_idle=True).has_queued) == (None, False)
    app.noop.enqueue()
    assert (pending_work(queue).has_queued, pending_work(queue, is_idle=True).has_queued) == (None, True)


def test_waiting_jobs_are_found(queue):
    app.noop.using(limit_key="k").enqueue()
    assert pending_work(queue) == PendingWork(has_limited=True)


def test_drained_means_nothing_claimable_due_or_running_here(queue, sql):
    def drained(queues=(), worker_ids=()):
        return is_drained(queue, served=QueueSelector.of(queues), worker_ids=worker_ids)

    assert drained()
    job_id = app.noop.using(queue="mail").enqueue().id
    assert not drained()
    assert drained(queues=["default"])
    assert not drained(queues=["mail"])
    assert not drained(queues=["d*", "m*"])
    assert drained(queues=["-mail"])
    sql("INSERT INTO pgqueue_queues (name, paused_at) VALUES ('mail', now())")
    assert drained(), "paused"
    sql("UPDATE pgqueue_queues SET resume_at = statement_timestamp()")
    assert not drained()
    claim(queue, "mail", limit=1, worker_id=3)
    assert drained(worker_ids=[4])
    assert not drained(worker_ids=[3])
    sql(
        "UPDATE pgqueue_jobs SET status = 'scheduled', lease_token = 0, run_at = now() + interval '1 h' WHERE id = %s",
        job_id,
    )
    assert drained()
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s'")
    assert not drained()


@pytest.mark.django_db
def test_oldest_job_is_found_among_priorities_and_queues(queue_of_ages):
    assert oldest_runnable(queue_of_ages, QueueSelector()) == pytest.approx(500, abs=30)
    assert oldest_runnable(queue_of_ages, QueueSelector(["a"])) == pytest.approx(300, abs=30)
    assert oldest_runnable(queue_of_ages, QueueSelector(["c", "unknown"])) == 0.0
    assert oldest_runnable(queue_of_ages, QueueSelector(["*"], ["b*", "c"])) == pytest.approx(300, abs=30)


@pytest.mark.parametrize("options", [{"fair_key": "a"}, {"head_start": 3600}])
def test_job_has_not_waited_for_longer_than_it_has_been_there(queue, sql, options):
    app.noop.using(**options).enqueue()
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 hour', enqueued_at = now() - interval '5 s'")
    assert oldest_runnable(queue, QueueSelector()) == pytest.approx(5, abs=30)


@pytest.mark.django_db
@pytest.mark.parametrize("limits", [{"max_running": 1}, {"rate": 1}])
def test_job_of_a_limited_queue_does_not_make_a_worker_unready(queue_of_ages, limits):
    queues.limit("b", **limits)
    assert oldest_runnable(queue_of_ages, QueueSelector()) == pytest.approx(300, abs=30)
    queues.limit("b", **dict.fromkeys(limits))
    assert oldest_runnable(queue_of_ages, QueueSelector()) == pytest.approx(500, abs=30)


@pytest.fixture
def queue_of_ages(queue, sql):
    """Fill three queues with jobs whose age does not follow their priority; those of the last may not run yet."""
    sql(
        "INSERT INTO pgqueue_jobs (task, queue, priority, run_at, enqueued_at) "
        "SELECT 'x', queue, priority, now() - make_interval(secs => seconds), now() - interval '1 h' FROM (VALUES "
        "('a', 9, 100), ('a', 9, 200), ('a', 0, 300), ('a', -9, 50), ('b', 5, 40), ('b', -5, 500), ('c', 0, -900)"
        ") AS job (queue, priority, seconds)"
    )
    return queue


def test_workflow_with_a_stage_that_was_killed_is_not_drained(queue):
    handle = batch([app.noop.bind()] * 2, then=app.noop.bind()).enqueue()
    kill([Job.objects.order_by("id").first().id])
    [job] = claim(queue, "default", limit=1, worker_id=1)
    assert is_drained(queue, served=QueueSelector.of(["none"]), worker_ids=[])
    assert handle.kill(stage="members")
    while move_slices(queue).moved:
        pass
    write(queue, [Outcome(job, Fate.SUCCEEDED)])
    assert not is_drained(queue, served=QueueSelector.of(["none"]), worker_ids=[])
    sweep_stages(queue)
    assert handle.status() == "failed"
    assert is_drained(queue, served=QueueSelector.of(["none"]), worker_ids=[])


def test_workflow_with_stages_that_are_left_for_later_is_not_drained(queue):
    with workflow("wide") as flow:
        first = flow.add_many([], name="first", sealed=False)
        for number in range(520):
            flow.add(app.noop.bind(), after=first, name=f"s{number}")
    assert is_drained(queue, served=QueueSelector.of(["none"]), worker_ids=[])
    flow.handle.seal("first")
    assert not is_drained(queue, served=QueueSelector.of(["none"]), worker_ids=[])
    move_slices(queue)
    assert is_drained(queue, served=QueueSelector.of(["none"]), worker_ids=[])


def test_workflow_whose_next_stage_is_still_to_be_opened_is_not_drained(queue):
    def drained() -> bool:
        return is_drained(queue, served=QueueSelector.of(["none"]), worker_ids=[])

    chain(app.noop.bind(), [app.noop.bind()] * 1001).enqueue()
    assert drained()
    [job] = claim(queue, "default", limit=1, worker_id=1)
    write(queue, [Outcome(job, Fate.SUCCEEDED)])
    assert not drained()
    sweep_stages(queue)
    assert not drained()
    move_slices(queue)
    assert drained()
