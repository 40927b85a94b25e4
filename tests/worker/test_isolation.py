"""Jobs that were lost before run alone."""

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
    assert begun + 10 <= consumer._isolation.until <= time.monotonic() + 10
    consumer._isolation.until += 3600
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
    consumer._isolation.until = time.monotonic()
    cycle(consumer)
    assert accepted(consumer) == [*before, suspect]


def test_suspect_that_takes_long_does_not_stop_the_queue(consumer, sql):
    suspect = enqueue_suspect(sql)
    begun = time.monotonic()
    cycle(consumer)
    after = enqueued_ids(app.noop, [()])
    assert begun + 60 <= consumer._isolation.until <= time.monotonic() + 60
    consumer._isolation.until = time.monotonic()
    cycle(consumer)
    assert accepted(consumer) == [suspect, *after]


def test_suspect_that_no_slot_begins_does_not_keep_the_child_for_itself(consumer, sql):
    app.noop.enqueue_many([()] * 4)
    suspect = enqueue_suspect(sql)
    consumer._prefetch.prefetch = 10
    cycle(consumer)
    consumer._isolation.until = time.monotonic()
    cycle(consumer)
    assert accepted(consumer)[4:] == [suspect], "all slots are busy"
    consumer._prefetch.prefetch = 0
    consumer._shared.cap_lease(0)
    consumer._shared.renew_lease(now() + 60)
    cycle(consumer)
    assert Job.objects.get(pk=suspect).status == "queued"
    assert not consumer._isolation.blocks_others()


def test_suspect_that_has_not_begun_goes_back_when_the_consumer_stops(consumer, sql):
    app.noop.enqueue_many([()])
    suspect = enqueue_suspect(sql)
    cycle(consumer)
    consumer.stop()
    cycle(consumer)
    assert Job.objects.get(pk=suspect).status == "queued"
    consumer.slots.finish()
    consumer.run()
