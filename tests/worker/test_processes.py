"""The pool of processes: places to be filled, processes that are replaced, ended or stuck."""

import logging
import os
from types import SimpleNamespace

import pytest

import tests.app.tasks as app
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Worker
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.health import STUCK_SECONDS
from django_pgqueue.worker.metrics import CommandCounters
from django_pgqueue.worker.processes import ProcessPool, Vacancy
from django_pgqueue.worker.shared_state import SharedState
from django_pgqueue.worker.timeouts import PATIENCE_SECONDS
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
    briefs = []
    monkeypatch.setattr(
        "django_pgqueue.worker.processes.WorkerProcess",
        lambda brief, plan, **more: briefs.append(brief) or SimpleNamespace(shared=SharedState(), start=lambda: None),
    )
    pool.spawn_missing(queue)
    assert [brief.is_careful for brief in briefs] == [is_careful]


@pytest.mark.parametrize("step", ["__init__", "start"])
def test_process_that_cannot_be_started_leaves_no_row_and_is_tried_again_after_a_pause(queue, monkeypatch, step):
    """Nor can it be made where descriptors are short: it has a pipe."""

    def refuse(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(f"django_pgqueue.worker.worker_process.WorkerProcess.{step}", refuse)
    monkeypatch.setattr("django_pgqueue.worker.processes.reconnect_delay", lambda failures: 60.0)
    meters = CommandCounters()
    pool = ProcessPool(WorkerConfig(processes=2), supervisor_id=1, lease_seconds=30, counters=meters)
    for _ in range(2):
        with pytest.raises(OSError, match="Cannot allocate memory"):
            pool.spawn_missing(queue)
    assert (Worker.objects.count(), pool.living, meters._living) == (0, [], [])
    assert [vacancy.failures for vacancy in pool._vacancies] == [1, 1]
    assert pool.next_start_seconds() > 30


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
        pool.remove_deaf()
        heartbeat_of_pool.pass_once()
    assert clock.seconds - begun == pytest.approx(60 + PATIENCE_SECONDS + pool.plan.shutdown_timeout_seconds, abs=2)
    process._ended_at = clock.seconds
    assert settle(pool) == {(hog_id, 1, 0), (innocent_id, 0, 0)}
