"""Worker processes: told to stop, killed, frozen, and several at once."""

import contextlib
import dataclasses
import datetime as dt
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tests.conformance import DRIVER, needs, tasks
from tests.conformance.compat import TaskResultStatus, task_backends
from tests.conformance.trace import Trace
from tests.support.waiting import eventually
from tests.support.workers import Worker

pytestmark = [needs.worker, needs.results]


@pytest.fixture
def limits(tmp_path: Path) -> Path:
    """A file for whose coming tasks wait."""
    return tmp_path / "limits"


def finished(result) -> bool:
    result.refresh()
    return result.is_finished


def has_begun(trace, attempt: int = 1) -> bool:
    return bool(trace.read(what="task", label="begin", attempt=attempt))


def has_ended(trace, attempt: int) -> bool:
    return bool(trace.read(what="task", label="end", attempt=attempt))


def test_idle_worker_ends_when_told_to(workers):
    worker = workers.serve()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0, worker.text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_worker_that_is_told_to_stop_finishes_what_it_runs(workers, trace, limits, number):
    result = tasks.wait_for.enqueue(str(limits))
    worker = workers.serve()
    eventually(lambda: has_begun(trace))
    result.refresh()
    assert (result.status, result.attempts, result.is_finished) == (TaskResultStatus.RUNNING, 1, False)
    assert result.started_at is not None
    with pytest.raises(ValueError, match="Task has not finished yet"):
        _ = result.return_value
    worker.signal(number)
    eventually(lambda: DRIVER.stopping in worker.text())
    limits.touch()
    assert worker.wait() == 0, worker.text()
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.SUCCESSFUL, 1)


def test_worker_that_is_told_twice_stops_at_once_and_says_what_became_of_its_task(workers, trace, limits):
    result = tasks.wait_for.enqueue(str(limits))
    worker = workers.serve()
    eventually(lambda: has_begun(trace))
    worker.signal(signal.SIGINT)
    eventually(lambda: DRIVER.stopping in worker.text())
    worker.signal(signal.SIGINT)
    worker.wait()
    assert not has_ended(trace, 1)
    result.refresh()
    assert result.status in {TaskResultStatus.FAILED, TaskResultStatus.READY}


def test_several_workers_run_every_task_once(workers, trace):
    results = [tasks.count.enqueue(number) for number in range(30)]
    for _ in range(3):
        workers.serve(LEASE_SECONDS="60")  # more than a pause: else one takes another for dead
    eventually(lambda: all(map(finished, results)))
    assert Counter(trace.labels()) == {str(number): 1 for number in range(30)}
    assert {result.status for result in results} == {TaskResultStatus.SUCCESSFUL}
    assert {result.attempts for result in results} == {1}


@needs.defer
def test_task_starts_when_it_is_due(workers):
    workers.serve()
    due = timezone.now() + dt.timedelta(seconds=1)
    result = tasks.add.using(run_after=due).enqueue(1, b=2)
    eventually(lambda: finished(result))
    assert result.return_value == 3
    assert result.started_at >= due


# Killed


@dataclasses.dataclass(repr=False)
class Killed:
    running: dict[str, Any]
    results: dict[str, Any]
    trace: Trace


@pytest.fixture(scope="module")
def killed(batch, tmp_path_factory) -> Killed:
    """Kill a worker while it runs a task of each alias, and wait until another one has seen to them.

    One worker for both would be enough, but not every backend's worker serves several aliases.
    """
    workers, trace = batch
    limits = str(tmp_path_factory.mktemp("killed") / "limits")
    aliases = {"default": DRIVER.serving}
    if DRIVER.retrying is not None:
        aliases["retrying"] = DRIVER.retrying_serving
    serving = sorted(set(aliases.values()))
    results = {alias: tasks.wait_for_at_first.using(backend=alias).enqueue(limits) for alias in aliases}
    doomed = [workers.serve(options) for options in serving]
    eventually(lambda: len(trace.read(what="task", label="begin", attempt=1)) == len(results))
    running = {alias: task_backends[alias].get_result(result.id) for alias, result in results.items()}
    others = [workers.serve(options) for options in serving]
    for worker in doomed:
        worker.kill_group()
    with contextlib.suppress(AssertionError):  # a test says so
        eventually(lambda: all(map(finished, results.values())))
    for worker in others:
        worker.kill_group()
    return Killed(running, results, trace)


@pytest.mark.django_db
def test_task_of_a_killed_worker_is_not_running_for_ever(killed):
    """Others notice; whether it has failed or runs again is for the backend to say."""
    result = killed.results["default"]
    assert result.is_finished
    if result.status is TaskResultStatus.FAILED:
        assert (result.attempts, result.worker_ids) == (1, killed.running["default"].worker_ids)
        assert result.errors
    else:
        assert (result.attempts, len(result.worker_ids)) == (2, 2)


@needs.retries
@pytest.mark.django_db
def test_task_of_a_killed_worker_runs_again_as_a_second_attempt(killed):
    running, result = killed.running["retrying"], killed.results["retrying"]
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 2)
    assert (result.attempts, result.worker_ids[0], len(set(result.worker_ids))) == (2, running.worker_ids[0], 2)
    assert running.started_at == result.started_at < result.last_attempted_at <= result.finished_at
    ends = killed.trace.read(what="signal", signal="task_finished", id=result.id)
    assert [(entry["status"], entry["attempts"]) for entry in ends] == [("SUCCESSFUL", 2)]


@needs.retries
def test_late_end_of_a_worker_that_was_given_up_changes_nothing(workers, trace, limits):
    """It is frozen until another one has run the task, and goes on then."""
    result = tasks.wait_for_at_first.using(backend="retrying").enqueue(str(limits))
    frozen = workers.serve(DRIVER.retrying_serving)
    eventually(lambda: has_begun(trace))
    other = workers.serve(DRIVER.retrying_serving)
    os.killpg(frozen.process.pid, signal.SIGSTOP)
    eventually(lambda: finished(result))
    assert result.return_value == 2
    limits.touch()
    os.killpg(frozen.process.pid, signal.SIGCONT)
    eventually(lambda: has_ended(trace, 1) or frozen.process.poll() is not None)
    stop(frozen)
    stop(other)
    late = task_backends["retrying"].get_result(result.id)
    assert late == result
    assert (late.status, late.return_value, late.attempts) == (TaskResultStatus.SUCCESSFUL, 2, 2)


def stop(worker: Worker) -> None:
    """Tell a worker to stop and wait until it has written what it had to."""
    if worker.process.poll() is None:
        worker.signal(signal.SIGTERM)
    worker.wait()
