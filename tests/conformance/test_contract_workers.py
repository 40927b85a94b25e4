"""Worker processes: told to stop, killed, frozen, and several at once."""

import datetime as dt
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from django.utils import timezone

from tests.conformance import DRIVER, needs, tasks
from tests.conformance.compat import TaskResultStatus, task_backends
from tests.workers import Worker, eventually

pytestmark = [needs.worker, needs.results]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file for whose coming tasks wait."""
    return tmp_path / "gate"


def finished(result) -> bool:
    result.refresh()
    return result.is_finished


def has_begun(trace, attempt: int = 1) -> bool:
    return bool(trace.read(what="task", label="begin", attempt=attempt))


def has_ended(trace, attempt: int) -> bool:
    return bool(trace.read(what="task", label="end", attempt=attempt))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_worker_ends_when_told_to(workers, number):
    worker = workers.serve()
    worker.signal(number)
    assert worker.wait(seconds=20) == 0, worker.text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_worker_that_is_told_to_stop_finishes_what_it_runs(workers, trace, gate, number):
    result = tasks.wait_for.enqueue(str(gate))
    worker = workers.serve()
    eventually(lambda: has_begun(trace))
    result.refresh()
    assert (result.status, result.attempts, result.is_finished) == (TaskResultStatus.RUNNING, 1, False)
    assert result.started_at is not None
    with pytest.raises(ValueError, match="Task has not finished yet"):
        _ = result.return_value
    worker.signal(number)
    gate.touch()
    assert worker.wait(seconds=30) == 0, worker.text()
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.SUCCESSFUL, 1)


def test_worker_that_is_told_twice_stops_at_once_and_says_what_became_of_its_task(workers, trace, gate):
    result = tasks.wait_for.enqueue(str(gate))
    worker = workers.serve()
    eventually(lambda: has_begun(trace))
    worker.signal(signal.SIGINT)
    eventually(lambda: DRIVER.stopping in worker.text())
    worker.signal(signal.SIGINT)
    worker.wait(seconds=20)
    assert not has_ended(trace, 1)
    result.refresh()
    assert result.status in {TaskResultStatus.FAILED, TaskResultStatus.READY}


def test_several_workers_run_every_task_once(workers, trace):
    results = [tasks.count.enqueue(number) for number in range(30)]
    for _ in range(3):
        workers.serve()
    eventually(lambda: all(map(finished, results)), seconds=60)
    assert Counter(trace.labels()) == {str(number): 1 for number in range(30)}
    assert {result.status for result in results} == {TaskResultStatus.SUCCESSFUL}
    assert {result.attempts for result in results} == {1}


@needs.defer
def test_task_starts_when_it_is_due(workers):
    due = timezone.now() + dt.timedelta(seconds=2)
    result = tasks.add.using(run_after=due).enqueue(1, b=2)
    workers.serve()
    eventually(lambda: finished(result))
    assert result.return_value == 3
    assert result.started_at >= due


def test_task_of_a_killed_worker_is_not_running_for_ever(workers, trace, gate):
    """Others notice; whether it has failed or runs again is for the backend to say."""
    result = tasks.wait_for_at_first.enqueue(str(gate))
    doomed = workers.serve()
    eventually(lambda: has_begun(trace))
    doomed.kill_group()
    workers.serve()
    eventually(lambda: finished(result), seconds=DRIVER.patience_seconds)
    assert result.attempts == len(result.worker_ids) == 1 + has_ended(trace, 2)
    if result.status is TaskResultStatus.FAILED:
        assert result.errors


@needs.retries
def test_task_of_a_killed_worker_runs_again_as_a_second_attempt(workers, trace, gate):
    result = tasks.wait_for_at_first.using(backend="retrying").enqueue(str(gate))
    doomed = workers.serve(DRIVER.retrying_serving)
    eventually(lambda: has_begun(trace))
    result.refresh()
    [killed] = result.worker_ids
    first_start = result.started_at
    doomed.kill_group()
    workers.serve(DRIVER.retrying_serving)
    eventually(lambda: finished(result), seconds=DRIVER.patience_seconds)
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 2)
    assert (result.attempts, result.worker_ids[0], len(set(result.worker_ids))) == (2, killed, 2)
    assert result.started_at == first_start < result.last_attempted_at <= result.finished_at
    ends = [(entry["status"], entry["attempts"]) for entry in trace.read(what="signal", signal="task_finished")]
    assert ends == [("SUCCESSFUL", 2)]


@needs.retries
def test_late_end_of_a_worker_that_was_given_up_changes_nothing(workers, trace, gate):
    """It is frozen until another one has run the task, and goes on then."""
    result = tasks.wait_for_at_first.using(backend="retrying").enqueue(str(gate))
    frozen = workers.serve(DRIVER.retrying_serving)
    eventually(lambda: has_begun(trace))
    os.killpg(frozen.process.pid, signal.SIGSTOP)
    other = workers.serve(DRIVER.retrying_serving)
    eventually(lambda: finished(result), seconds=DRIVER.patience_seconds)
    assert result.return_value == 2
    gate.touch()
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
    worker.wait(seconds=60)
