"""Jobs that are measured with a worker are watched until they are gone, and trouble on the way is told."""

import io
import os
import signal

import pytest
from django.core.management import call_command

from django_pgqueue.bench import drain
from django_pgqueue.bench.drain import Drain, beside_backlog, pick_ups
from django_pgqueue.bench.report import QUEUE, BenchFailed, Load
from django_pgqueue.bench.room import BenchQueue, Seed
from django_pgqueue.bench.tasks import Board
from django_pgqueue.models import Job, Worker
from tests.support.benches import of_the_bench, real
from tests.support.waiting import eventually
from tests.support.workers import parent_of

pytestmark = pytest.mark.django_db(transaction=True)

LOAD = Load(jobs=5, processes=1, concurrency=2)


class Command:
    """Stands for the worker command, which takes a process of its own to start; ``work`` is done at each look at it."""

    def __init__(self, work) -> None:
        self.pid = os.getpid()
        self.check = work

    def last_lines(self) -> str:
        return "(its last lines)"


@pytest.fixture
def drain_by(tmp_path):
    def make(work, load=LOAD) -> Drain:
        board = Board.make(tmp_path / "board", size=load.jobs + beside_backlog(load))
        return Drain(load, Seed(load, BenchQueue("default", is_shared=False, other_workers=0)), board, Command(work))

    return make


def take_all(made: Drain) -> None:
    """Do with the jobs that are there what a worker does: note each on the board, and remove it."""
    for job in Job.objects.filter(queue=QUEUE):
        made.board.note(job.args[0], attempt=2 if job.args[0] == 0 else 1)
        job.delete()


def ignore(share: float) -> None: ...


def test_backlog_is_measured_from_its_commit_to_the_end_of_the_last_job(drain_by):
    seeding, draining = [], []
    made = drain_by(lambda: take_all(made))
    enqueued, drained = made.backlog(seeding.append, draining.append)
    assert seeding == [1.0]
    assert draining[-1] == 1.0
    assert enqueued.jobs_per_second > 0
    assert drained.wait.samples == LOAD.jobs
    assert drained.wait.p99_ms <= drained.seconds * 1000
    assert drained.jobs_per_second == pytest.approx(LOAD.jobs / drained.seconds, rel=0.05)
    assert drained.reaped_leases == 1, "one was started in its second attempt"


def test_jobs_that_vanish_without_a_run_are_no_measurement(drain_by):
    made = drain_by(lambda: Job.objects.all().delete())
    with pytest.raises(BenchFailed, match=r"5 of 5 jobs are gone and were not run\. Were they killed\?"):
        made.backlog(ignore, ignore)


def test_command_that_has_ended_ends_the_measurement(drain_by):
    def fail():
        raise BenchFailed("The worker ended with exit code 1.")

    with pytest.raises(BenchFailed, match="exit code 1"):
        drain_by(fail).backlog(ignore, ignore)


def test_halt_is_told_with_the_last_lines_of_the_worker(drain_by, monkeypatch):
    monkeypatch.setattr(drain, "STALL_SECONDS", 0.0)
    made = drain_by(lambda: None)
    with pytest.raises(
        BenchFailed, match=r"No job was finished for \d+ s\. The worker's last lines:\n\(its last lines\)"
    ):
        made.backlog(ignore, ignore)


def test_worker_that_would_take_the_jobs_is_named_at_a_halt(drain_by, monkeypatch, register):
    monkeypatch.setattr(drain, "STALL_SECONDS", 0.0)
    register()  # all queues
    with pytest.raises(BenchFailed, match="Workers that serve all queues would take the bench's jobs"):
        drain_by(lambda: None).backlog(ignore, ignore)


def test_processes_that_take_no_job_are_counted(drain_by, monkeypatch):
    monkeypatch.setattr(drain, "START_SECONDS", 0.0)
    made, shares = drain_by(lambda: take_all(made), Load(jobs=5, processes=2, concurrency=1)), []
    with pytest.raises(BenchFailed, match="After 0 s only 1 of 2 worker processes have run a job"):
        made.warm_up(shares.append)
    assert shares == [0.5]


def test_single_jobs_are_picked_up_one_after_the_other(drain_by):
    made, shares = drain_by(lambda: take_all(made)), []
    measured = made.pick_up(shares.append)
    assert measured.samples == LOAD.jobs
    assert measured.p50_ms > 0
    assert shares == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1])


def test_board_has_room_for_what_is_run_besides_the_backlog():
    assert pick_ups(Load(jobs=1000)) == drain.PICK_UPS
    assert pick_ups(LOAD) == LOAD.jobs
    assert beside_backlog(Load(jobs=1000, processes=30, concurrency=8)) == 480
    assert beside_backlog(Load(jobs=1000)) == drain.PICK_UPS


# The worker command


@real
def test_worker_of_a_bench_that_was_killed_ends_and_the_next_bench_removes_its_rows(start_bench, few_pick_ups):
    bench = start_bench("--jobs", "2000", "--sleep", "1s")
    eventually(lambda: Job.objects.filter(queue=QUEUE, status="running").count() and "Drain" in bench.text())
    bench.process.kill()
    eventually(lambda: not Worker.objects.exists())
    assert Job.objects.filter(queue=QUEUE).count() > 1000
    call_command("pgqueue_bench", jobs=10, stdout=io.StringIO(), verbosity=0)
    assert of_the_bench() == [0, 0, 0, 0]


@real
def test_bench_whose_worker_dies_says_so_and_leaves_nothing(start_bench):
    bench = start_bench("--jobs", "2000", "--sleep", "1s")
    eventually(lambda: "Drain" in bench.text())
    child = eventually(Worker.objects.filter(name=QUEUE).exclude(pid=0).first).pid  # which a heartbeat names
    os.kill(parent_of(child), signal.SIGKILL)
    assert bench.wait() == 1
    assert "The worker ended with exit code -9. Its last lines:" in bench.text()
    assert of_the_bench()[:3] == [0, 0, 0]
