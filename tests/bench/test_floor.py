"""The bare statements claim and ack what is on the queue of the bench, and measure that."""

import pytest

from django_pgqueue.bench import floor
from django_pgqueue.bench.floor import ROUND_TRIPS, BareLoop
from django_pgqueue.bench.load import QUEUE, BenchFailed
from django_pgqueue.models import FinishedJob, Job

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def make_loop(monkeypatch):
    """Make loops that take three jobs at once."""
    monkeypatch.setattr(floor, "BATCH", 3)
    made = []

    def make(*, history: bool) -> BareLoop:
        made.append(BareLoop("default", history=history))
        return made[-1]

    yield make
    for loop in made:
        loop.close()


def enqueue(number: int, queue: str = QUEUE) -> None:
    Job.objects.bulk_create(Job(task="x", queue=queue) for _ in range(number))


@pytest.mark.parametrize("history", [False, True])
def test_jobs_of_the_bench_alone_are_claimed_and_acked(make_loop, history):
    enqueue(7)
    enqueue(2, "mail")
    shares = []
    measured = make_loop(history=history).drain(jobs=7, progress=shares.append)
    assert (measured.jobs, measured.batch) == (7, 3)
    assert (measured.claim.samples, measured.ack.samples) == (3, 3)
    assert measured.jobs_per_second > 0
    assert measured.claim_us_per_job > 0
    assert measured.ack_us_per_job > 0
    assert shares == pytest.approx([3 / 7, 6 / 7, 1])
    assert list(Job.objects.values_list("queue", "status")) == [("mail", "queued")] * 2
    assert FinishedJob.objects.count() == (7 if history else 0)


def test_jobs_that_another_worker_took_are_missed(make_loop):
    enqueue(4)
    with pytest.raises(BenchFailed, match=r"Only 4 of 5 jobs were there to claim: is another worker serving"):
        make_loop(history=False).drain(jobs=5, progress=lambda _: None)


def test_distance_of_the_server_is_measured_without_the_first_round_trip(make_loop):
    measured = make_loop(history=False).round_trip()
    assert measured.samples == ROUND_TRIPS - 1
    assert 0 < measured.p50_ms <= measured.p99_ms
