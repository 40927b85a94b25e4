"""Jobs between claim and written outcome: cells, locked rows, two runs of one job."""

import time

import pytest
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.records import Fate
from django_pgqueue.states import DeathReason
from django_pgqueue.worker.shared_state import CAPACITY
from tests.support.consumers import cycle
from tests.support.many import enqueued_ids


def test_marks_tell_what_is_held_and_what_was_started(consumer):
    app.noop.enqueue_many([()] * 2)
    cycle(consumer)
    shared = consumer._shared
    held = {job.id ^ job.lease_token for _, job in consumer.slots.accepted}
    assert shared.held() - {0} == held
    assert shared.started() == set()
    cell, job = consumer.slots.accepted[0]
    shared.start(cell)
    assert shared.started() == {job.id ^ job.lease_token}
    consumer.slots.finish()
    consumer.slots.finish()
    cycle(consumer)
    assert shared.held() == {0}
    assert len(consumer._in_flight._free) == CAPACITY


def test_locked_row_stays_in_the_buffer_and_the_others_are_written(consumer):
    ids = enqueued_ids(app.noop, [()] * 4)
    cycle(consumer)
    for _ in range(4):
        consumer.slots.finish()
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=ids[0])
        before = time.monotonic()
        cycle(consumer)
        assert SucceededJob.objects.count() == 3
        assert [outcome.job.id for outcome in consumer._in_flight._blocked.values()] == [ids[0]]
        until = consumer._in_flight.blocked_until
        assert before < until <= time.monotonic() + 0.1, "it must neither wait for the row nor ask without a pause"
    consumer._in_flight.blocked_until = 0.0
    cycle(consumer)
    assert (SucceededJob.objects.count(), consumer._in_flight.unwritten, consumer._in_flight._blocked) == (4, {}, {})


def test_outcome_that_waits_for_a_locked_row_is_counted_once_it_is_written(consumer):
    ids = enqueued_ids(app.noop, [()] * 2)
    cycle(consumer)
    for _ in ids:
        consumer.slots.finish()
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=ids[0])
        for _ in range(3):
            cycle(consumer)
            consumer._in_flight.blocked_until = 0.0
        assert consumer._shared.finished() == 1
    cycle(consumer)
    assert consumer._shared.finished() == 2


def test_error_of_a_refused_outcome_is_stored_without_the_row_that_it_quotes(consumer):
    app.noop.using(metadata={"note": "of no concern"}).enqueue()
    cycle(consumer)
    consumer.slots.finish(Fate.RELEASED, delay_seconds=3e11)  # later than any job may be due
    cycle(consumer)
    cycle(consumer)
    [error] = DeadJob.objects.get().errors
    assert "violates check constraint" in error["message"]
    assert "concern" not in error["message"]


def test_outcome_that_cannot_even_be_buried_is_left_to_its_lease(consumer, sql):
    [job_id] = enqueued_ids(app.noop, [()])
    cycle(consumer)
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, run_at, enqueued_at, reason, queue, task) "
        "VALUES (%s, now(), now(), 'lost', 'q', 't')",
        job_id,
    )
    consumer.slots.finish(fate=Fate.DIED, reason=DeathReason.EXHAUSTED, error={"kind": "failed", "error": "x"})
    for _ in range(3):
        cycle(consumer)
    assert Job.objects.get(pk=job_id).status == "running"
    assert consumer._in_flight.unwritten == {}
    assert CAPACITY - consumer._in_flight.free() == 1, (
        "the supervisor must not take it for a claim that was never answered"
    )


def test_old_run_of_a_job_ends_beside_the_new_one(consumer, sql):
    """The job lost its lease, and this very process claimed it again while the old run went on."""
    app.noop.enqueue_many([()])
    cycle(consumer)
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    cycle(consumer)
    assert len(consumer.slots.accepted) == 2
    consumer.slots.finish(result='"old"')
    cycle(consumer)
    assert CAPACITY - consumer._in_flight.free() == 1
    assert SucceededJob.objects.count() == 0
    consumer.slots.finish(result='"new"')
    cycle(consumer)
    assert SucceededJob.objects.get().result == "new"
    assert len(consumer._in_flight._free) == CAPACITY


@pytest.mark.parametrize("first", ["old", "new"])
def test_both_runs_of_a_job_may_end_before_one_flush(consumer, sql, first):
    app.noop.enqueue_many([()])
    cycle(consumer)
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    cycle(consumer)
    if first == "new":
        consumer.slots.accepted.reverse()
    for result in (first, {"old": "new", "new": "old"}[first]):
        consumer.slots.finish(result=f'"{result}"')
    cycle(consumer)
    cycle(consumer)
    assert SucceededJob.objects.get().result == "new"
    assert len(consumer._in_flight._free) == CAPACITY
