"""A consumer goes by the pauses and limits that it knows, and looks again in time."""

import datetime as dt
import time

from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import queues
from django_pgqueue.models import DeadJob, Job
from tests.support.consumers import cycle
from tests.support.many import enqueued_ids
from tests.support.queue_limits import HOUR, finish, pass_by, take
from tests.support.waiting import eventually


def fetch_ahead(consumer, number):
    """Let the consumer fetch that many jobs ahead, however fast it is, and keep them, however slow the test is."""
    consumer._prefetch.size.jobs = number
    consumer._prefetch.size._since += 1000
    consumer._prefetch._check_at = time.monotonic() + 1000


def look(consumer):
    """Let the consumer hear of a limit, and do what follows from it."""
    consumer.look_at_limits()
    for _ in range(2):
        cycle(consumer)


def test_consumer_gives_back_what_has_not_begun_of_a_paused_queue_and_leaves_the_rest_alone(consumer):
    fetch_ahead(consumer, 6)
    first = enqueued_ids(app.noop, [()] * 7)
    mail = enqueued_ids(app.noop.using(queue="mail"), [()] * 3)
    for _ in range(6):
        cycle(consumer)
    assert Job.objects.filter(status="running").count() == 10
    begun = {job.id for _, job in consumer.slots.accepted[:4]}
    queues.pause("default", by="ann")
    look(consumer)
    back = Job.objects.filter(status="queued")
    assert set(back.values_list("id", flat=True)) == set(first) - begun
    assert {job.attempts for job in back} == {0}
    assert set(Job.objects.filter(status="running").values_list("id", flat=True)) == begun | set(mail)
    for _ in range(len(begun | set(mail))):
        consumer.slots.finish()
        cycle(consumer)
    assert set(Job.objects.values_list("id", flat=True)) == set(first) - begun, "what ran has ended as it would have"
    queues.resume("default", by="ann")
    for _ in range(3):
        look(consumer)
    assert Job.objects.filter(status="running").count() == len(set(first) - begun)


def test_consumer_learns_of_a_pause_in_time_without_being_told(consumer):
    fetch_ahead(consumer, 4)
    app.noop.enqueue_many([()] * 8)
    for _ in range(4):
        cycle(consumer)
    assert consumer.slots.waiting()
    queues.pause("default", by="ann")
    assert consumer._patience() <= 0.7
    consumer._limits.look_at = time.monotonic()
    consumer._collect(0.0)
    consumer._cycle()
    consumer._cycle()
    assert (consumer.slots.waiting(), Job.objects.filter(status="running").count()) == (0, 4)


def test_consumer_has_no_reason_to_look_at_a_paused_queue(consumer, settings):
    settings.PGQUEUE = {"POLL_SECONDS": 60}
    app.noop.enqueue_many([()] * 20)
    cycle(consumer)
    consumer.slots.finish()
    queues.pause("default", by="ann")
    look(consumer)
    assert len(consumer.slots.accepted) == 3
    for _ in range(3):
        consumer.slots.finish()
    look(consumer)
    consumer.wake(["default"])
    consumer._collect(0.0)
    consumer._cycle()
    consumer._stats.add()
    assert consumer._patience() > 0.5
    assert Job.objects.filter(status="queued").count() == 16


def test_paused_queue_needs_no_full_scan_and_not_asked_when_it_is_announced(consumer, settings):
    settings.PGQUEUE = {"POLL_SECONDS": 60}
    app.noop.enqueue_many([()] * 20)
    cycle(consumer)
    queues.pause("default", by="ann")
    look(consumer)
    for cursor in consumer._cursors._cursors.values():
        cursor.full_scan_at = 0.0
    for _ in range(4):
        consumer.slots.finish()
    cycle(consumer)
    consumer.wake(["default"])
    consumer._collect(0.0)
    consumer._stats.add()
    assert consumer._demand()
    assert consumer._patience() > 0.5


def test_consumer_wakes_when_a_pause_ends(consumer, settings):
    settings.PGQUEUE = {"POLL_SECONDS": 60}
    app.noop.enqueue()
    queues.pause("default", by="ann", resume_at=dt.timedelta(seconds=1000))
    look(consumer)
    assert consumer._patience() > 0.5
    assert consumer._limits.due_at() > time.monotonic() + 700
    pass_by(700)
    look(consumer)
    assert consumer._limits.due_at() <= time.monotonic() + 300
    pass_by(300)
    consumer._limits._pause_ends_at = 0.0
    assert consumer._patience() == 0
    for _ in range(2):
        consumer._collect(0.0)
        consumer._cycle()
    assert len(consumer.slots.accepted) == 1


def test_consumer_fetches_nothing_ahead_from_a_limited_queue(consumer):
    fetch_ahead(consumer, 100)
    queues.limit("default", max_running=50)
    app.noop.enqueue_many([()] * 20)
    look(consumer)
    assert Job.objects.filter(status="running").count() == 4
    consumer.slots.finish()
    cycle(consumer)
    assert Job.objects.filter(status="running").count() == 4


def test_job_that_has_expired_takes_no_place_in_the_consumer(consumer):
    queues.limit("default", max_running=50)
    app.noop.enqueue_many([()] * 8)
    Job.objects.update(expires_at=timezone.now() - HOUR)
    for _ in range(3):
        look(consumer)
    assert (consumer._prefetch._limited, DeadJob.objects.filter(reason="expired").count()) == ({}, 8)


def test_consumer_that_is_kept_out_neither_waits_long_nor_asks_all_the_time(consumer, queue):
    queues.limit("default", max_running=3)
    app.noop.enqueue_many([()] * 9)
    theirs, _ = take(queue, limit=2)
    before = time.monotonic()
    look(consumer)
    assert len(consumer.slots.accepted) == 1
    assert before < consumer._limits.reopen_at() <= time.monotonic() + 0.11
    consumer.slots.finish()
    cycle(consumer)
    assert len(consumer.slots.accepted) == 1, "the next comes in with the outcome of the last"
    finish(queue, theirs)
    consumer._limits._shut.clear()
    cycle(consumer)
    assert len(consumer.slots.accepted) == 3


def test_consumer_comes_back_when_there_is_a_token(consumer):
    queues.limit("default", rate="1/1000s")
    app.noop.enqueue_many([()] * 9)
    look(consumer)
    assert len(consumer.slots.accepted) == 1
    assert time.monotonic() + 500 < consumer._limits.reopen_at() <= time.monotonic() + 1100
    consumer.slots.finish()
    cycle(consumer)
    assert consumer.slots.accepted == [], "the end of a job brings no token"


def test_consumer_obeys_a_limit_that_is_lifted(consumer):
    queues.limit("default", max_running=1)
    app.noop.enqueue_many([()] * 9)
    look(consumer)
    assert len(consumer.slots.accepted) == 1
    queues.limit("default", max_running=None)
    look(consumer)
    assert len(consumer.slots.accepted) == 4


def test_queue_that_is_full_does_not_keep_others_from_being_served(consumer):
    consumer._cursors.served = type(consumer._cursors.served).of(["default", "mail"])
    queues.limit("default", max_running=1)
    app.noop.enqueue_many([()] * 5)
    app.noop.using(queue="mail").enqueue_many([()] * 5)
    look(consumer)
    eventually(lambda: cycle(consumer) or len(consumer.slots.accepted) == 4)  # it may come round to the full one first
    assert sorted(job.queue for _, job in consumer.slots.accepted) == ["default", "mail", "mail", "mail"]
