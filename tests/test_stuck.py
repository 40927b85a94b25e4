"""A process whose consumer does not turn, because a job lets no other thread run: what its supervisor does about it."""

from types import SimpleNamespace

import pytest

import tests.app.tasks as app
from django_pgqueue.jobs import leases
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job
from django_pgqueue.worker.child import ChildConfig
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.health import STUCK_SECONDS
from django_pgqueue.worker.heartbeat import Heartbeat, HeartbeatMonitor, Liveness
from django_pgqueue.worker.maintenance import MaintenanceRunner
from django_pgqueue.worker.processes import ProcessPool
from django_pgqueue.worker.shared_state import now
from django_pgqueue.worker.supervisor import Supervisor
from django_pgqueue.worker.timeouts import PATIENCE_SECONDS
from django_pgqueue.worker.worker_process import WorkerProcess

LEASE_SECONDS = 30


class Clock:
    """The monotonic clock of the supervisor's main thread."""

    seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("django_pgqueue.worker.worker_process.time", made)
    return made


@pytest.fixture
def pool(queue, clock):
    """A command with one process, which is not started: the test writes its shared, and it cannot be killed."""
    made = ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=LEASE_SECONDS)
    worker_id = made._write_down(queue)
    process = WorkerProcess(ChildConfig(worker_id, (), 8, 1), WorkerConfig())
    process.pid, process._process = 4711, SimpleNamespace(kill=lambda: killed.append(process), exitcode=None)
    killed = made.killed = []
    made.living.append(process)
    process.shared.extend_lease(now() + LEASE_SECONDS)
    yield made
    process._orders_read.close()
    process._orders.close()


@pytest.fixture
def heartbeat(pool):
    made = Heartbeat("default", pool, Liveness(changed=lambda: None), told_to_stop=lambda by: None)
    yield made
    made.database.close()


def watch(pool, clock, seconds: float) -> None:
    """Let the main thread look after its processes once a second, for so long."""
    for _ in range(round(seconds)):
        clock.seconds += 1
        pool.remove_stuck()


def test_only_a_process_that_has_turned_and_does_not_any_more_is_stuck(pool, clock):
    [process] = pool.living
    watch(pool, clock, 100)
    assert process.unturned_seconds == 0, "it is still starting"
    process.shared.count_cycle()
    watch(pool, clock, 10)
    assert process.unturned_seconds == 9
    process.shared.count_cycle()
    watch(pool, clock, 1)
    assert process.unturned_seconds == 0


def test_process_whose_first_turn_does_not_end_counts_while_a_job_runs_in_it(pool, clock):
    """The first job of a process may hold the interpreter just as well as any other. Probes hear of no work yet."""
    [process] = pool.living
    watch(pool, clock, 100)
    process.shared.start(0)
    watch(pool, clock, 10)
    assert (process.unturned_seconds, process.is_at_work) == (10, False)
    process.shared.end(0)
    watch(pool, clock, 1)
    assert process.unturned_seconds == 0


def test_time_in_which_the_supervisor_was_frozen_too_does_not_count(pool, clock):
    [process] = pool.living
    process.shared.count_cycle()
    watch(pool, clock, 5)
    clock.seconds += 100_000
    watch(pool, clock, 1)
    assert process.unturned_seconds < 10
    assert pool.killed == []


def settle(pool) -> set[tuple]:
    """Let housekeeping settle what the process has left that was ended; return what stands in the rows of its jobs."""
    [process] = pool.killed
    pool.living.remove(process)
    pool.ended.append(process)
    process.close = lambda: None
    maintenance = MaintenanceRunner(
        "default", pool, HeartbeatMonitor(LEASE_SECONDS), wake=lambda queues: None, drained=None
    )
    try:
        maintenance.settle_ended()
    finally:
        maintenance.database.close()
    return {(row.id, row.attempts, row.lost) for row in Job.objects.all()}


def test_process_that_has_not_turned_for_minutes_is_ended_and_what_it_ran_is_lost(queue, pool, clock, caplog):
    """Once, and before a probe takes the whole command for dead. Its attempt counts: it must not do so for ever."""
    [process] = pool.living
    app.noop.enqueue()
    app.noop.enqueue()
    started, fetched = claim(queue, "default", limit=2, worker_id=process.worker_id)
    process.shared.hold([0, 1], [started, fetched])
    process.shared.start(0)
    process.shared.count_cycle()
    watch(pool, clock, 200)
    assert pool.killed == []
    watch(pool, clock, STUCK_SECONDS - 201)
    assert pool.killed == [process]
    assert "Process 4711 is ended: for 240 s it has not turned" in caplog.text
    assert settle(pool) == {(started.id, 1, 1), (fetched.id, 0, 0)}


def test_stop_gives_attempts_back_where_a_process_has_not_turned_for_a_lease(queue, pool, clock):
    """Its consumer may as well wait for the database, as cannot be told from outside, while the jobs do well."""
    [process] = pool.living
    job_id = app.noop.enqueue().id
    process.shared.hold([0], claim(queue, "default", limit=1, worker_id=process.worker_id))
    process.shared.start(0)
    process.shared.count_cycle()
    watch(pool, clock, LEASE_SECONDS + 30)
    supervisor = Supervisor(WorkerConfig())
    supervisor.pool = pool
    supervisor._press_to_stop(0.0)
    assert settle(pool) == {(job_id, 0, 0)}


def test_process_that_was_ended_as_if_it_had_crashed_stays_so_though_it_is_ended_again(pool, clock):
    """It may take a while to be gone, while a command that stops ends what has not stopped in time."""
    [process] = pool.living
    process.shared.count_cycle()
    watch(pool, clock, STUCK_SECONDS)
    assert pool.killed == [process]
    process.kill()
    assert not process.was_stopped


def test_neighbours_of_a_job_that_does_not_stop_pay_nothing_though_their_process_does_not_turn(
    queue, pool, clock, heartbeat
):
    """Which job it is that does not stop is known: it has failed by its time limit."""
    [process] = pool.living
    hog_id, innocent_id = app.noop.using(timeout=60).enqueue().id, app.noop.enqueue().id
    hog, innocent = claim(queue, "default", limit=2, worker_id=process.worker_id)
    process.shared.hold([0, 1], [hog, innocent])
    process.shared.start(0)
    process.shared.start(1)
    process.shared.limit(0, hog.run_id, clock.seconds + 60)
    process.shared.count_cycle()
    begun = clock.seconds
    while not pool.killed and clock.seconds < begun + STUCK_SECONDS:
        watch(pool, clock, 1)
        pool.remove_deaf()
        heartbeat.pass_once()
    assert clock.seconds - begun == pytest.approx(60 + PATIENCE_SECONDS + pool.plan.grace_seconds, abs=2)
    process._ended_at = clock.seconds
    assert settle(pool) == {(hog_id, 1, 0), (innocent_id, 0, 0)}


def test_process_that_does_not_turn_begins_nothing_and_what_it_has_fetched_goes_back(
    queue, pool, clock, heartbeat, caplog
):
    [process] = pool.living
    jobs = [app.noop.enqueue().id for _ in range(2)]
    once = app.noop.using(max_attempts=1).enqueue().id
    running, fetched, only_once = claim(queue, "default", limit=3, worker_id=process.worker_id)
    assert [job.id for job in (running, fetched, only_once)] == [*jobs, once]
    process.shared.hold([0, 1, 2], [running, fetched, only_once])
    process.shared.start(0)
    process.shared.count_cycle()
    heartbeat.pass_once()
    watch(pool, clock, LEASE_SECONDS)
    heartbeat.pass_once()
    assert process.shared.is_lease_valid(), "it has turned within a lease"
    assert set(Job.objects.values_list("status", flat=True)) == {"running"}
    watch(pool, clock, 2)
    heartbeat.pass_once()
    heartbeat.pass_once()
    assert not process.shared.is_lease_valid()
    rows = {row.id: (row.status, row.attempts, row.lost) for row in Job.objects.all()}
    assert rows == {running.id: ("running", 1, 0), fetched.id: ("queued", 0, 0), once: ("running", 1, 0)}
    assert caplog.text.count("Process 4711 has not turned") == 1
    assert f"while it runs job {running.id} (tests.app.tasks.noop)" in caplog.text
    assert leases.worker_leases(queue, [process.worker_id])
    # It turns again: it has to give back what it believes to have, before it begins anything.
    process.shared.count_cycle()
    watch(pool, clock, 1)
    heartbeat.pass_once()
    assert (process.shared.has_lease_lapsed(), process.shared.is_lease_valid()) == (True, False)
    process.shared.accept_lapse()
    assert process.shared.is_lease_valid()
