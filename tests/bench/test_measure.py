"""A bench and its bare loop measure all that its report has, and leave nothing behind."""

import io
import json
from pathlib import Path

import pytest
from django.core.management import call_command

from django_pgqueue.bench import measure
from django_pgqueue.bench.measure import ROUND_TRIPS, BareLoop
from django_pgqueue.bench.report import QUEUE, BenchFailed
from django_pgqueue.models import Job, SucceededJob
from tests.support.benches import WHOLE, of_the_bench, real


@real
def test_bench_measures_and_leaves_nothing(start_bench):
    bench = start_bench("--jobs", "1000", "--processes", "2", "--concurrency", "2", "--json", command=WHOLE)
    assert bench.wait() == 0, bench.text()
    report = json.loads(bench.out.read_text())
    assert report["load"]["jobs"] == 1000
    assert report["floor"]["jobs_per_second"] > 0
    assert report["floor"]["claim"]["samples"] == report["floor"]["ack"]["samples"] == 2
    assert 0 < report["pick_up"]["samples"] <= 200  # as many as there is time for
    assert report["drained"]["wait"]["samples"] == 1000
    assert 0 < report["drained"]["wait"]["p50_ms"] <= report["drained"]["seconds"] * 1000
    assert report["drained"]["jobs_per_second"] == pytest.approx(1000 / report["drained"]["seconds"], rel=0.01)
    assert report["drained"]["wal_bytes_per_job"] > 0
    assert report["enqueued"]["wal_bytes_per_job"] > 0
    assert report["drained"]["reaped_leases"] == 0
    assert report["ratio_to_slots"] is None
    assert (report["is_beside_jobs"], report["other_workers"]) == (False, 0)
    cpu = report["drained"]["worker_cpu_us_per_job"]
    assert cpu > 0 if Path("/proc/self/stat").exists() else cpu is None, "it is known on Linux only"
    assert of_the_bench() == [0, 0, 0, 0]


@real
def test_coroutines_with_arguments_and_history_are_measured_too(few_pick_ups):
    out = io.StringIO()
    options = {"jobs": 40, "is_async": True, "history": True, "payload": 3000, "json": True}
    call_command("pgqueue_bench", **options, stdout=out, stderr=io.StringIO())
    report = json.loads(out.getvalue())
    assert report["enqueued"]["wal_bytes_per_job"] > 3000
    assert report["drained"]["wal_bytes_per_job"] > 3000  # the row in the history
    assert of_the_bench() == [0, 0, 0, 0]


pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def make_loop(monkeypatch):
    """Make loops that take three jobs at once."""
    monkeypatch.setattr(measure, "BATCH", 3)
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
    assert SucceededJob.objects.count() == (7 if history else 0)


def test_jobs_that_another_worker_took_are_missed(make_loop):
    enqueue(4)
    with pytest.raises(BenchFailed, match=r"Only 4 of 5 jobs were there to claim: is another worker serving"):
        make_loop(history=False).drain(jobs=5, progress=lambda _: None)


def test_distance_of_the_server_is_measured_without_the_first_round_trip(make_loop):
    measured = make_loop(history=False).round_trip()
    assert measured.samples == ROUND_TRIPS - 1
    assert 0 < measured.p50_ms <= measured.p99_ms
