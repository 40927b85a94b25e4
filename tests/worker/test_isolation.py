"""Suspects run alone, and a process whose predecessor crashed claims one job at a time."""

import time

import tests.app.tasks as app
from django_pgqueue.models import Job
from django_pgqueue.worker.shared_state import now
from tests.support.consumers import accepted, cycle
from tests.support.many import enqueued_ids


def enqueue_suspect(sql) -> int:
    [suspect] = enqueued_ids(app.noop, [()])
    sql("UPDATE pgqueue_jobs SET lost = 2 WHERE id = %s", suspect)
    return suspect


def test_job_that_was_lost_twice_runs_alone(consumer, sql, caplog):
    before = enqueued_ids(app.noop, [()] * 2)
    suspect = enqueue_suspect(sql)
    begun = time.monotonic()
    cycle(consumer)
    assert begun + 10 <= consumer._prefetch.isolation.until <= time.monotonic() + 10
    consumer._prefetch.isolation.until += 3600
    assert accepted(consumer) == before, "it waits until nothing else runs"
    after = enqueued_ids(app.noop, [()] * 2)
    cycle(consumer)
    assert accepted(consumer) == before, "and nothing else begins"
    consumer.slots.finish()
    cycle(consumer)
    assert accepted(consumer) == before[1:]
    consumer.slots.finish()
    cycle(consumer)
    assert accepted(consumer) == [suspect]
    cycle(consumer)
    assert accepted(consumer) == [suspect]
    assert f"Job {suspect} (tests.app.tasks.noop) was lost 2 times: it runs alone" in caplog.text
    consumer.slots.finish()
    cycle(consumer)
    assert accepted(consumer) == after


def test_suspects_run_one_after_the_other(consumer, sql):
    suspects = [enqueue_suspect(sql), enqueue_suspect(sql)]
    cycle(consumer)
    assert accepted(consumer) == suspects[:1]
    cycle(consumer)
    assert accepted(consumer) == suspects[:1]
    other = Job.objects.get(pk=suspects[1])
    assert (other.status, other.attempts) == ("queued", 0), "another process may be free for it"
    consumer.slots.finish()
    cycle(consumer)
    assert accepted(consumer) == suspects[1:]


def test_suspect_begins_beside_jobs_that_do_not_end(consumer, sql):
    before = enqueued_ids(app.noop, [()])
    suspect = enqueue_suspect(sql)
    cycle(consumer)
    consumer._prefetch.isolation.until = time.monotonic()
    cycle(consumer)
    assert accepted(consumer) == [*before, suspect]


def test_suspect_that_takes_long_does_not_stop_the_queue(consumer, sql):
    suspect = enqueue_suspect(sql)
    begun = time.monotonic()
    cycle(consumer)
    after = enqueued_ids(app.noop, [()])
    assert begun + 60 <= consumer._prefetch.isolation.until <= time.monotonic() + 60
    consumer._prefetch.isolation.until = time.monotonic()
    cycle(consumer)
    assert accepted(consumer) == [suspect, *after]


def test_suspect_that_no_slot_begins_does_not_keep_the_child_for_itself(consumer, sql):
    app.noop.enqueue_many([()] * 4)
    suspect = enqueue_suspect(sql)
    consumer._prefetch.size.jobs = 10
    cycle(consumer)
    consumer._prefetch.isolation.until = time.monotonic()
    cycle(consumer)
    assert accepted(consumer)[4:] == [suspect], "all slots are busy"
    consumer._prefetch.size.jobs = 0
    consumer._shared.cap_lease(0)
    consumer._shared.renew_lease(now() + 3600)
    cycle(consumer)
    assert Job.objects.get(pk=suspect).status == "queued"
    assert not consumer._prefetch.isolation.blocks_others()


def test_suspect_that_has_not_begun_goes_back_when_the_consumer_stops(consumer, sql):
    app.noop.enqueue_many([()])
    suspect = enqueue_suspect(sql)
    cycle(consumer)
    consumer.stop()
    cycle(consumer)
    assert Job.objects.get(pk=suspect).status == "queued"
    consumer.slots.finish()
    consumer.run()


def test_careful_consumer_claims_the_next_job_when_the_last_one_has_ended_or_runs_for_a_second(consumer):
    consumer._prefetch._careful_until = time.monotonic() + 3600
    consumer._prefetch.size.jobs = 8
    consumer._prefetch.size._since += 3600
    ids = enqueued_ids(app.noop, [()] * 10)
    consumer._prefetch._found_at = time.monotonic() + 3600
    cycle(consumer)
    cycle(consumer)
    consumer._prefetch._found_at = time.monotonic() + 3600
    consumer._shared.start(consumer.slots.accepted[0][0])
    cycle(consumer)
    assert accepted(consumer) == ids[:1], "one at a time"
    consumer.slots.finish()
    cycle(consumer)
    assert accepted(consumer) == ids[1:2], "it has ended"
    for number in (2, 3, 4, 5):
        consumer._prefetch._found_at = time.monotonic() - 1
        cycle(consumer)
        assert accepted(consumer) == ids[1:number], "one that was not begun is waited for"
        assert consumer._patience() < 0.1, "and it looks soon whether it was"
        consumer._shared.start(consumer.slots.accepted[-1][0])
        cycle(consumer)
    consumer._prefetch._found_at = time.monotonic() - 1
    cycle(consumer)
    assert accepted(consumer) == ids[1:5], "none is fetched ahead"
    consumer._prefetch._careful_until = 0.0
    consumer._prefetch.size.jobs = 8
    cycle(consumer)
    cycle(consumer)
    assert accepted(consumer) == ids[1:]
