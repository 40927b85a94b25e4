"""A bench measures all that its report has, and leaves nothing behind."""

import io
import json
from pathlib import Path

import pytest
from django.core.management import call_command

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
    assert cpu > 0 if Path("/proc/self/stat").exists() else cpu is None, "it is told on Linux only"
    assert of_the_bench() == [0, 0, 0, 0]


@real
def test_coroutines_with_arguments_and_history_are_measured_too(few_pick_ups):
    out = io.StringIO()
    options = {"jobs": 40, "is_async": True, "history": True, "payload": 3000, "as_json": True}
    call_command("pgqueue_bench", **options, stdout=out, stderr=io.StringIO())
    report = json.loads(out.getvalue())
    assert report["enqueued"]["wal_bytes_per_job"] > 3000
    assert report["drained"]["wal_bytes_per_job"] > 3000  # the row in the history
    assert of_the_bench() == [0, 0, 0, 0]
