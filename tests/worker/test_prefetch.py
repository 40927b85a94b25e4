"""Number of jobs that a consumer fetches ahead, and those that go back."""

from types import SimpleNamespace

import pytest

import tests.app.tasks as app
from django_pgqueue.models import Job
from django_pgqueue.worker.prefetch import PrefetchSize
from tests.support.consumers import cycle


def test_jobs_fetched_ahead_go_back_when_no_slot_begins_them(consumer, monkeypatch):
    app.noop.enqueue_many([()] * 20)
    consumer._prefetch.size.jobs = 10
    consumer._prefetch.size._since += 3600  # the speed of this machine is not to matter
    cycle(consumer)
    cycle(consumer)
    assert len(consumer.slots.accepted) == 10, "in halves of the work ahead; too little room is left for another one"
    monkeypatch.setattr("django_pgqueue.worker.prefetch.STALLED_SECONDS", 0.0)
    for _ in range(4):
        consumer._prefetch._check_at = 0.0
        cycle(consumer)
    assert len(consumer.slots.accepted) == 4
    assert Job.objects.filter(status="queued", attempts=0).count() == 16


def test_only_what_is_not_begun_goes_back(consumer):
    """As when slots for plain tasks are all busy, and those for async ones go on."""
    app.noop.enqueue_many([()] * 8)
    consumer._prefetch.size.jobs = 4
    consumer._prefetch.size._since += 3600
    cycle(consumer)
    cycle(consumer)
    first = [job for _, job in consumer.slots.accepted[4:6]]
    consumer._prefetch._check_at = 0.0
    consumer._prefetch._unbegun = {job.run_id for job in first}
    consumer._prefetch.release_stalled()
    consumer._prefetch._check_at += 3600
    cycle(consumer)
    assert {job.id for _, job in consumer.slots.accepted}.isdisjoint({job.id for job in first})
    assert sorted(Job.objects.filter(status="queued", attempts=0).values_list("id", flat=True)) == [
        job.id for job in first
    ]


def test_job_that_was_only_just_handed_over_has_not_stalled(consumer):
    """However long nothing happened before."""
    consumer._prefetch._check_at -= 60
    consumer.slots.concurrency = 0  # every accepted job counts as waiting for a slot
    consumer._prefetch.size.jobs = 4
    app.noop.enqueue_many([()] * 2)
    cycle(consumer)
    assert len(consumer.slots.accepted) == 2
    consumer._prefetch._check_at = 0.0
    cycle(consumer)
    assert len(consumer.slots.accepted) == 2
    assert Job.objects.filter(status="running", attempts=1).count() == 2


@pytest.fixture
def clock(monkeypatch):
    """The clock of ``PrefetchSize``, which stands still until the test moves it."""
    hands = [0.0]
    monkeypatch.setattr("django_pgqueue.worker.prefetch.time", SimpleNamespace(monotonic=lambda: hands[0]))
    return hands


def test_prefetch_follows_the_speed_of_the_jobs(clock):
    size = PrefetchSize()
    clock[0] += 1.0
    size.measure(seconds=0.005, finished=10_000)
    assert 250 < size.jobs < 350, "about 30 ms of 10,000 jobs a second"
    clock[0] += 1.0
    size.measure(seconds=0.005, finished=100)
    assert 120 < size.jobs < 180, "what is fast for a moment is not believed for long"
    size.forget()
    assert size.jobs == 0


def test_speed_is_known_within_few_jobs_after_an_idle_time(clock):
    size = PrefetchSize()
    size.measure(seconds=0.005, finished=31)
    assert size.jobs == 0
    size.measure(seconds=0.005, finished=1)
    assert size.jobs > 0
