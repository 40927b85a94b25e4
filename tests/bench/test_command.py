"""The worker command that is measured ends with its bench, and is missed when it dies."""

import io
import os
import signal

from django.core.management import call_command

from django_pgqueue.bench.load import QUEUE
from django_pgqueue.models import Job, Worker
from tests.support.benches import of_the_bench, real
from tests.support.waiting import eventually
from tests.support.workers import parent_of


@real
def test_worker_of_a_bench_that_was_killed_ends_and_the_next_bench_removes_its_rows(start_bench, few_pick_ups):
    bench = start_bench("--jobs", "2000", "--sleep-ms", "100")
    eventually(lambda: Job.objects.filter(queue=QUEUE, status="running").count() and "Drain" in bench.text())
    bench.process.kill()
    eventually(lambda: not Worker.objects.exists())
    assert Job.objects.filter(queue=QUEUE).count() > 1000
    call_command("pgqueue_bench", jobs=10, stdout=io.StringIO(), verbosity=0)
    assert of_the_bench() == [0, 0, 0, 0]


@real
def test_bench_whose_worker_dies_says_so_and_leaves_nothing(start_bench):
    bench = start_bench("--jobs", "2000", "--sleep-ms", "100")
    eventually(lambda: "Drain" in bench.text())
    [child] = Worker.objects.filter(name=QUEUE).values_list("pid", flat=True)
    os.kill(parent_of(child), signal.SIGKILL)
    assert bench.wait() == 1
    assert "The worker ended with exit code -9. Its last lines:" in bench.text()
    assert of_the_bench()[:3] == [0, 0, 0]
