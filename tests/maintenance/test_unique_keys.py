"""Keys that were given up at the start are taken back, and rows that reserve one are removed in time."""

import pytest
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue import Unique
from django_pgqueue.jobs import retry
from django_pgqueue.jobs.dead_letter import DeadLetter, dead_letter
from django_pgqueue.jobs.leases import release, worker_leases
from django_pgqueue.maintenance import reaper
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.maintenance.unique_keys import MOST_LOCKED, prune_reserved, reacquire_keys
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.states import DeathReason
from tests.support.unique import HOUR, claimed, enqueue, fail, succeed


def test_reserved_stands_until_its_time_is_over_and_not_longer(queue, sql):
    enqueue(unique=Unique(hold=HOUR))
    [job] = claimed(queue)
    succeed(queue, job)
    sql("UPDATE pgqueue_jobs SET run_at = now() + interval '1 min'")
    assert prune_reserved(queue) == 0
    assert not enqueue().created
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s'")
    assert promote(queue) == ({}, {})
    assert prune_reserved(queue) == 1
    assert enqueue().created


def test_prune_takes_a_bounded_slice_and_steps_over_locked_rows(queue, sql):
    sql("INSERT INTO pgqueue_jobs (task, status) SELECT 'x', 'reserved' FROM generate_series(1, 12)")
    sql("INSERT INTO pgqueue_jobs (task, status) VALUES ('due', 'scheduled')")
    with transaction.atomic():
        sql("SELECT id FROM pgqueue_jobs LIMIT 1 FOR UPDATE")
        assert (prune_reserved(queue, limit=8), prune_reserved(queue)) == (8, 3)
    assert prune_reserved(queue) == 1
    assert Job.objects.get().task == "due"


def came_back(queue, how: str, job) -> None:
    """End the run of a job so that it is to be run again."""
    match how:
        case "retry":
            fail(queue, job)
        case "release":
            release(queue, [job])
        case "reap":
            assert reaper.settle(queue, worker_leases(queue, [1])).returned == 1
        case "staff retry":
            dead_letter(queue, [DeadLetter(job.id, job.lease_token, DeathReason.EXHAUSTED, {"error": "x"})])
            retry([job.id], by="eve")


@pytest.mark.parametrize("how", ["retry", "release", "reap"])
def test_job_that_comes_back_and_finds_a_conflict_is_superseded(queue, how):
    first = enqueue("old", unique=Unique(until="start")).id
    [job] = claimed(queue)
    conflict = enqueue("new", unique=Unique(until="start"))
    assert conflict.created
    came_back(queue, how, job)
    assert reacquire_keys(queue) == (0, (("default", app.record.name),), 0, 0)
    dead = DeadJob.objects.get()
    assert (dead.id, dead.reason, dead.args) == (first, "superseded", ["old"])
    assert dead.attempts == (0 if how == "release" else 1), "given back before it began, or after"
    assert (dead.errors[-1]["kind"], dead.errors[-1]["conflict"]) == ("superseded", conflict.id)
    assert Job.objects.get().id == conflict.id
    retried = retry([first], by="eve")
    assert (retried.ids, retried.held_by) == ([], {first: conflict.id})


@pytest.mark.parametrize("how", ["retry", "release", "reap", "staff retry"])
def test_job_that_comes_back_and_finds_no_conflict_has_its_key_again(queue, how):
    first = enqueue("old", unique=Unique(until="start")).id
    [job] = claimed(queue)
    assert reacquire_keys(queue) == (0, (), 0, 0), "it runs"
    came_back(queue, how, job)
    assert reacquire_keys(queue) == (0 if how == "staff retry" else 1, (), 0, 0)
    assert enqueue("new").id == first
    assert Job.objects.get().unique_until == "start"


def test_job_that_is_claimed_before_its_key_is_taken_back_simply_runs(queue):
    enqueue("old", unique=Unique(until="start"))
    [job] = claimed(queue)
    enqueue("new", unique=Unique(until="start"), delay=HOUR)
    release(queue, [job])
    [job] = claimed(queue)
    assert reacquire_keys(queue) == (0, (), 0, 0)
    succeed(queue, job)
    assert SucceededJob.objects.get().args == ["old"]


def test_open_transaction_on_a_key_stalls_no_worker(queue):
    """An insert of the key, or taking it back, would wait for it."""
    enqueue("old", unique=Unique(until="start"))
    [job] = claimed(queue)
    with transaction.atomic():
        conflict = enqueue("new", unique=Unique(until="start")).id
        fail(queue, job, delay_seconds=0.0)
        assert reacquire_keys(queue) == (0, (), 1, 0)
        assert promote(queue).queues == {"default": 1}
        [job] = claimed(queue)
        fail(queue, job, delay_seconds=0.0)
        assert reacquire_keys(queue) == (0, (), 1, 0)
    assert reacquire_keys(queue) == (0, (("default", app.record.name),), 0, 0)
    assert Job.objects.get().id == conflict


def test_keys_that_others_keep_hide_no_others(queue, sql):
    """A pass ends after a few, and the next goes on behind them."""
    sql(
        "INSERT INTO pgqueue_jobs (task, unique_key, unique_until) "
        "SELECT 'x', 'k' || n, 'started' FROM generate_series(1, %s) AS n",
        MOST_LOCKED + 3,
    )
    last, session = Job.objects.latest("id"), queue.rows("SELECT pg_backend_pid()", {})
    with transaction.atomic():
        for number in range(1, MOST_LOCKED + 3):
            enqueue(key=f"k{number}")
        first = reacquire_keys(queue)
        assert first[:3] == (0, (), MOST_LOCKED)
        assert reacquire_keys(queue, after=first.last) == (1, (), 2, 0)
    assert queue.rows("SELECT pg_backend_pid()", {}) == session, "it is no trouble with the connection"
    assert Job.objects.get(pk=last.id).unique_until == "start"


def test_retake_goes_through_all_in_slices(queue, sql):
    sql(
        "INSERT INTO pgqueue_jobs (task, unique_key, unique_until) "
        "SELECT 'x', 'k' || n, 'started' FROM generate_series(1, 7) AS n"
    )
    first = reacquire_keys(queue, limit=4)
    assert (first.taken, first.last) == (4, Job.objects.order_by("id")[3].id)
    assert reacquire_keys(queue, after=first.last, limit=4) == (3, (), 0, 0)
