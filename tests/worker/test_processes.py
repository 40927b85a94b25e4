"""The pool of processes, and one of them seen from outside: places to be filled, turns, jobs that do not stop, ends."""

import gc
import logging
import os
import time
import weakref
from types import SimpleNamespace

import pytest

import tests.app.tasks as app
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Worker
from django_pgqueue.worker import processes
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.metrics import CommandCounters
from django_pgqueue.worker.processes import (
    STUCK_SECONDS,
    UNGUARDED,
    ProcessPool,
    Vacancy,
    WorkerProcess,
    resident_bytes,
)
from django_pgqueue.worker.shared_state import SharedState, now
from django_pgqueue.worker.timeouts import PATIENCE_SECONDS
from tests.support.claimed import job as job_of
from tests.support.stuck import settle, watch


@pytest.mark.parametrize(("exit_code", "line"), [(0, "is recycled"), (1, "ended (exit code 1) while it was replaced")])
def test_process_that_is_replaced_and_told_to_stop_has_ended_in_order(caplog, exit_code, line):
    """SIGTERM tells all processes to stop, also the one whose successor is not yet at work."""
    caplog.set_level("INFO", "django_pgqueue")
    pool = ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30)
    process = SimpleNamespace(
        pid=7, shared=SharedState(), meter=None, is_replaced=True, is_leaving=False, exit_code=exit_code
    )
    pool.living.append(process)
    pool.close()
    pool.remove(process)
    assert [record.getMessage() for record in caplog.records] == [f"Process 7 {line}"]
    os.close(pool.changed_read)
    os.close(pool._changed)


def test_process_that_ended_while_the_heart_beat_is_not_registered_again(queue, caplog):
    """It was settled and its row removed, after the heartbeat had looked who lives."""
    pool = ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30)
    process = SimpleNamespace(worker_id=4711, pid=1)
    pool.register_again(queue, process)
    assert (Worker.objects.count(), caplog.text) == (0, "")
    pool.living.append(process)
    pool.register_again(queue, process)
    assert Worker.objects.get().id == 4711
    assert "Process 1 was taken for dead and is registered again" in caplog.text


def test_process_is_among_those_that_may_run_jobs_all_the_while_it_is_parted_with(caplog):
    """``--drain`` asks at any time, and would end while its jobs run."""
    pool = ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30)
    process = SimpleNamespace(
        worker_id=4711,
        pid=1,
        exit_code=-9,
        shared=SharedState(),
        meter=None,
        is_young=False,
        is_replaced=False,
        replaces=None,
    )
    process.was_stopped, process.failures = False, 0
    pool.living.append(process)
    ids = []

    class Look(logging.Handler):
        def emit(self, record):
            ids.append(pool.worker_ids())

    look = Look()
    logging.getLogger("django_pgqueue.worker").addHandler(look)
    try:
        pool.remove(process)
    finally:
        logging.getLogger("django_pgqueue.worker").removeHandler(look)
    assert ids == [[4711]]
    assert (pool.worker_ids(), pool.living, pool.ended) == ([4711], [], [process])


@pytest.mark.parametrize(
    ("end", "is_careful"),
    [
        ({"exit_code": -9, "held": [0]}, True),
        ({"exit_code": 1, "is_young": True}, True),  # a row may end it that is not even written down
        ({"exit_code": 1}, False),
        ({"exit_code": -9, "was_stopped": True, "is_young": True, "held": [0]}, False),
        ({"exit_code": 0, "is_young": True, "held": [0]}, True),  # as a job chooses it by os._exit(0)
        ({"exit_code": 0, "has_ended_cycles": True, "is_young": True}, False),
    ],
)
def test_place_of_a_process_that_crashed_with_jobs_unbegun_gets_a_careful_one(queue, monkeypatch, end, is_careful):
    pool = ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30)
    pool._vacancies.clear()
    known = {"was_stopped": False, "is_young": False, "is_replaced": False, "failures": 0, "held": []} | end
    process = SimpleNamespace(worker_id=1, pid=1, shared=SharedState(), meter=None, replaces=None, **known)
    if "has_ended_cycles" in end:
        process.shared.end_cycles()
    process.shared.hold(process.held, [SimpleNamespace(id=1, lease_token=2) for _ in process.held])
    pool.living.append(process)
    pool.remove(process)
    monkeypatch.setattr(Vacancy, "seconds_left", lambda self: 0.0)
    filled = []
    monkeypatch.setattr(
        "django_pgqueue.worker.processes.WorkerProcess",
        lambda plan, worker_id, vacancy, meter, make: (
            filled.append(vacancy) or SimpleNamespace(shared=SharedState(), start=lambda: None, discard=lambda: None)
        ),
    )
    pool.spawn_missing(queue)
    assert [vacancy.is_careful for vacancy in filled] == [is_careful]


@pytest.mark.parametrize("step", ["__init__", "start"])
def test_process_that_cannot_be_started_leaves_no_row_and_is_tried_again_after_a_pause(queue, monkeypatch, step):
    """Nor can it be made where descriptors are short: it has a pipe."""

    def refuse(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(f"django_pgqueue.worker.processes.WorkerProcess.{step}", refuse)
    monkeypatch.setattr("django_pgqueue.worker.processes.reconnect_delay", lambda failures: 60.0)
    meters = CommandCounters()
    pool = ProcessPool(WorkerConfig(processes=2), supervisor_id=1, lease_seconds=30, counters=meters)
    for _ in range(2):
        with pytest.raises(OSError, match="Cannot allocate memory"):
            pool.spawn_missing(queue)
    assert (Worker.objects.count(), pool.living, meters._living) == (0, [], [])
    assert [vacancy.failures for vacancy in pool._vacancies] == [1, 1]
    assert pool.next_start_seconds() > 30


def test_process_that_is_made_while_the_pool_is_closed_is_given_up(queue, monkeypatch):
    meters = CommandCounters()
    pool = ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30, counters=meters)
    write_down = pool._write_down
    monkeypatch.setattr(pool, "_write_down", lambda database: pool.close() or write_down(database))
    pool.spawn_missing(queue)
    assert (Worker.objects.count(), pool.living, pool._vacancies, meters._living) == (0, [], [], [])


def test_process_at_work_does_not_keep_the_one_that_it_has_replaced(pool):
    """That one would keep the one before it: a command whose processes are recycled would grow for ever."""
    old = WorkerProcess(WorkerConfig(), 1, Vacancy())
    new = WorkerProcess(WorkerConfig(), 2, Vacancy(replaces=old))
    new.shared.count_cycle()
    pool.living.append(new)
    pool.recycle()
    assert old.is_leaving
    old.discard()
    gone = weakref.ref(old)
    del old
    gc.collect()
    assert gone() is None
    new.discard()


def test_process_that_has_stood_still_for_minutes_is_ended_and_what_it_ran_is_lost(queue, pool, clock, caplog):
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
    assert "Process 4711 is ended: for 240 s it has not finished a cycle" in caplog.text
    assert settle(pool) == {(started.id, 1, 1), (fetched.id, 0, 0)}


def test_neighbours_of_a_job_that_does_not_stop_pay_nothing_though_their_process_stands_still(
    queue, pool, clock, heartbeat_of_pool
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
        pool.remove_ignoring_stop()
        heartbeat_of_pool.pass_once()
    assert clock.seconds - begun == pytest.approx(60 + PATIENCE_SECONDS + pool.plan.shutdown_timeout_seconds, abs=2)
    process._ended_at = clock.seconds
    assert settle(pool) == {(hog_id, 1, 0), (innocent_id, 0, 0)}


# One process seen from outside


def test_exit_code_that_a_job_has_chosen_does_not_end_the_command(monkeypatch):
    """Though its process has not finished a cycle yet: what it has claimed shows that it did begin."""
    process = WorkerProcess(WorkerConfig(), 7, Vacancy())
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

    monkeypatch.setattr("django_pgqueue.worker.processes.Path.read_text", refuse)
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
    monkeypatch.setattr(processes, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(processes, "MOMENT_SECONDS", 0.0)
    process = WorkerProcess(WorkerConfig(), 7, Vacancy())
    process.shared.extend_lease(now() + 600)
    yield process
    process._orders_read.close()
    process._orders.close()


def test_process_with_more_threads_left_behind_than_it_has_slots_is_replaced(process):
    process.shared.note_abandoned_threads(8)
    assert process.excess() is None
    process.shared.note_abandoned_threads(9)
    assert process.excess() == "9 threads do not answer that async def jobs have left behind"


@pytest.mark.parametrize(
    ("exit_code", "says"), [(0, "exit code 0"), (-9, "killed by SIGKILL"), (-35, "killed by signal 35")]
)
def test_end_of_a_process_is_said_for_every_signal(exit_code, says):
    assert processes.ending(exit_code) == says


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


def test_process_is_ended_when_only_jobs_that_do_not_stop_are_left_or_others_have_had_their_time(process):
    stubborn, other = job_of(id=1, lease_token=8), job_of(id=2, lease_token=8)
    process.shared.hold([0, 1], [stubborn, other])
    process.shared.start(0)
    process.shared.start(1)
    assert not process.is_beyond_stopping({stubborn.run_id}, 0.0), "it was not told to leave"
    assert process.stop_claiming()
    assert not process.stop_claiming(), "known already"
    assert process.is_leaving
    assert not process.is_beyond_stopping({stubborn.run_id}, 600.0)
    assert process.is_beyond_stopping({stubborn.run_id}, 0.0)
    process.shared.end(1)
    assert not process.is_beyond_stopping({stubborn.run_id}, 600.0), "its outcome is to be written"
    process.shared.free([1])
    assert process.is_beyond_stopping({stubborn.run_id}, 600.0)


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
