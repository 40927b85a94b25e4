"""One process seen from outside: its turns, jobs that do not stop, its memory, its end."""

import time
from types import SimpleNamespace

import pytest

from django_pgqueue.worker import worker_process as process_module
from django_pgqueue.worker.child import ChildConfig
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.health import STUCK_SECONDS
from django_pgqueue.worker.shared_state import now
from django_pgqueue.worker.worker_process import UNGUARDED, WorkerProcess, resident_bytes
from tests.support.claimed import job as job_of
from tests.support.stuck import watch


def test_exit_code_that_a_job_has_chosen_does_not_end_the_command(monkeypatch):
    """Though its process has not finished a cycle yet: what it has claimed shows that it did begin."""
    process = WorkerProcess(ChildConfig(7, (), 2, 1), WorkerConfig())
    monkeypatch.setattr(process, "_process", SimpleNamespace(exitcode=UNGUARDED))
    try:
        assert process.is_unguarded
        process.shared.hold([0], [SimpleNamespace(id=1, lease_token=2)])
        assert not process.is_unguarded
    finally:
        process.discard()


@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError, PermissionError, OSError])
def test_memory_that_the_system_does_not_tell_is_no_trouble(monkeypatch, error):
    def refuse(_):
        raise error

    monkeypatch.setattr("django_pgqueue.worker.worker_process.Path.read_text", refuse)
    assert resident_bytes(1) == 0


def test_only_a_process_that_has_finished_a_cycle_and_does_not_any_more_is_stuck(pool, clock):
    [process] = pool.living
    watch(pool, clock, 100)
    assert process.stalled_seconds == 0, "it is still starting"
    process.shared.count_cycle()
    watch(pool, clock, 10)
    assert process.stalled_seconds == 9
    process.shared.count_cycle()
    watch(pool, clock, 1)
    assert process.stalled_seconds == 0


def test_process_whose_first_turn_does_not_end_counts_while_a_job_runs_in_it(pool, clock):
    """The first job of a process may hold the interpreter just as well as any other. Probes hear of no work yet."""
    [process] = pool.living
    watch(pool, clock, 100)
    process.shared.start(0)
    watch(pool, clock, 10)
    assert (process.stalled_seconds, process.is_at_work) == (10, False)
    process.shared.end(0)
    watch(pool, clock, 1)
    assert process.stalled_seconds == 0


def test_time_in_which_the_supervisor_was_frozen_too_does_not_count(pool, clock):
    [process] = pool.living
    process.shared.count_cycle()
    watch(pool, clock, 5)
    clock.seconds += 100_000
    watch(pool, clock, 1)
    assert process.stalled_seconds < 10
    assert pool.killed == []


def test_process_that_was_ended_as_if_it_had_crashed_stays_so_though_it_is_ended_again(pool, clock):
    """It may take a while to be gone, while a command that stops ends what has not stopped in time."""
    [process] = pool.living
    process.shared.count_cycle()
    watch(pool, clock, STUCK_SECONDS)
    assert pool.killed == [process]
    process.kill()
    assert not process.was_stopped


@pytest.fixture
def process(monkeypatch):
    """A process that is not started, whose shared state the test writes; its supervisor has no patience with it."""
    monkeypatch.setattr(process_module, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(process_module, "MOMENT_SECONDS", 0.0)
    process = process_module.WorkerProcess(ChildConfig(7, (), 2, 1), WorkerConfig())
    process.shared.extend_lease(now() + 600)
    yield process
    process._orders_read.close()
    process._orders.close()


def test_outcome_that_waits_to_be_written_is_no_job_that_does_not_stop(process):
    """As while the database is away: the process must live to write it."""
    late, killed = job_of(id=1, lease_token=8), job_of(id=2, lease_token=8)
    process.shared.hold([0, 1], [late, killed])
    process.killed = frozenset({killed.run_id})
    process.shared.limit(0, late.run_id, time.monotonic() - 1)
    assert process.ignoring_stop() == set(), "not begun"
    process.shared.start(0)
    process.shared.start(1)
    assert process.ignoring_stop() == {late.run_id, killed.run_id}
    process.shared.end(0)
    process.shared.end(1)
    assert process.ignoring_stop() == set()
    assert process.shared.started() == {late.run_id, killed.run_id}


def test_time_limit_of_the_last_job_in_a_cell_is_not_that_of_the_next(process):
    first, second = job_of(id=1, lease_token=8), job_of(id=2, lease_token=8)
    process.shared.hold([0], [first])
    process.shared.limit(0, first.run_id, time.monotonic() - 1)
    process.shared.hold([0], [second])
    process.shared.start(0)
    assert process.overdue() == set()


def test_process_is_ended_when_only_deaf_jobs_are_left_or_others_have_had_their_time(process):
    deaf, other = job_of(id=1, lease_token=8), job_of(id=2, lease_token=8)
    process.shared.hold([0, 1], [deaf, other])
    process.shared.start(0)
    process.shared.start(1)
    assert not process.is_beyond_stopping({deaf.run_id}, 0.0), "it was not told to leave"
    assert process.stop_claiming()
    assert not process.stop_claiming(), "known already"
    assert process.is_leaving
    assert not process.is_beyond_stopping({deaf.run_id}, 600.0)
    assert process.is_beyond_stopping({deaf.run_id}, 0.0)
    process.shared.end(1)
    assert not process.is_beyond_stopping({deaf.run_id}, 600.0), "its outcome is to be written"
    process.shared.free([1])
    assert process.is_beyond_stopping({deaf.run_id}, 600.0)


def test_shutdown_timeout_of_a_process_to_be_ended_does_not_run_out_while_the_database_is_away(process):
    other = job_of(id=2, lease_token=8)
    process.shared.hold([0], [other])
    process.shared.start(0)
    process.stop_claiming()
    process._given_up_at -= 1000
    assert process.is_beyond_stopping({5}, 600.0)
    process.shared.extend_lease(0.0)
    process.stop_claiming()
    assert not process.is_beyond_stopping({5}, 600.0)
