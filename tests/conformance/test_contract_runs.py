"""Running: one worker runs all that is enqueued here, one task after the other; then each test looks at its task."""

import contextlib
import dataclasses
import datetime as dt
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from tests.conformance import DRIVER, needs, tasks
from tests.conformance.compat import TaskResultStatus, task_backends
from tests.conformance.trace import Trace

pytestmark = [needs.runs, pytest.mark.django_db]
SENDER = f"{type(task_backends['default']).__module__}.{type(task_backends['default']).__qualname__}"
NOW = timezone.now()


def calls() -> dict[str, Any]:
    """Return what to enqueue, by name."""
    found = {}
    backend = task_backends["default"]
    if backend.supports_priority:
        found |= {f"priority {low}": lambda low=low: say_with_priority(low) for low in (-100, 0)}
    found |= {
        "add": lambda: tasks.add.enqueue(1, b=2),
        "echo": lambda: tasks.echo.enqueue(1, (2, "ü"), key={"a": [None]}),
        "nothing": tasks.nothing.enqueue,
        "elsewhere": tasks.elsewhere.enqueue,
        "second": tasks.second.enqueue,
        "fail": lambda: tasks.fail.enqueue("no luck"),
        "nested class": tasks.fail_with_nested_class.enqueue,
        "leave": tasks.leave.enqueue,
        "wrong arguments": lambda: tasks.add.enqueue(1, 2, 3, nonsense=True),
        "context": lambda: tasks.look_at_context.enqueue((1, 2), key="value"),
        "another": lambda: tasks.enqueue_another.enqueue("another"),
        "aenqueued": lambda: async_to_sync(tasks.add.aenqueue)(1, b=2),
        **{f"give {kind}": lambda kind=kind: tasks.give.enqueue(kind) for kind in tasks.RETURNED},
        **{f"fail {kind}": lambda kind=kind: tasks.fail_oddly.enqueue(kind) for kind in ODD},
    }
    if backend.supports_async_task:
        from tests.conformance import async_tasks

        found |= {
            "async": lambda: async_tasks.add.enqueue(1, b=2),
            "async fail": lambda: async_tasks.fail.enqueue("no luck"),
            "async leave": async_tasks.leave.enqueue,
            "async context": lambda: async_tasks.look_at_context.enqueue(1),
        }
    if backend.supports_defer:
        found |= {
            "tomorrow": lambda: tasks.say.using(run_after=NOW + dt.timedelta(days=1)).enqueue("tomorrow"),
            "yesterday": lambda: tasks.say.using(run_after=NOW - dt.timedelta(days=1)).enqueue("yesterday"),
        }
    if not DRIVER.runs_at_once:
        found |= {
            "interrupt": tasks.interrupt.enqueue,
            **{
                f"receiver of {name}": lambda name=name: tasks.nothing.enqueue(receiver_raises_at=name)
                for name in RAISING
            },
        }
    found["last"] = lambda: tasks.say.enqueue("last")
    if backend.supports_priority:
        found["priority 100"] = lambda: say_with_priority(100)
    return found


def say_with_priority(priority: int) -> Any:
    return tasks.say.using(priority=priority).enqueue(f"priority {priority}")


ODD = ["objects", "NUL", "surrogate", "unprintable"]
RAISING = ["task_started", "task_finished"]


@dataclasses.dataclass(repr=False)
class Ran:
    enqueued: dict[str, Any]
    results: dict[str, Any]
    trace: Trace
    dead: list[str]

    def said(self, name: str, **wanted: Any) -> list[dict[str, Any]]:
        return self.trace.read(id=self.results[name].id, **wanted)

    def logged(self, name: str) -> list[dict[str, Any]]:
        wanted = f"Task id={self.results[name].id} "
        return [entry for entry in self.trace.read(what="log") if entry["message"].startswith(wanted)]


@pytest.fixture(scope="module")
def ran(batch) -> Ran:
    """Enqueue everything, run it, and ask for all results."""
    workers, trace = batch
    enqueued = {}
    for name, call in calls().items():
        with contextlib.suppress(TypeError):  # of wrong arguments, which a backend may notice
            enqueued[name] = call()
    dead = workers.until_idle()
    results = dict(enqueued)
    if not DRIVER.runs_at_once:
        results = {name: task_backends[result.backend].get_result(result.id) for name, result in enqueued.items()}
        enqueued["add"].refresh()
    return Ran(enqueued, results, trace, dead)


def succeeded(result) -> Any:
    assert [error.traceback for error in result.errors] == []
    assert result.status is TaskResultStatus.SUCCESSFUL
    return result.return_value


# Success


def test_return_value_is_in_the_result(ran):
    assert succeeded(ran.results["add"]) == 3
    assert succeeded(ran.results["aenqueued"]) == 3


def test_task_gets_the_arguments(ran):
    assert succeeded(ran.results["echo"]) == [[1, [2, "ü"]], {"key": {"a": [None]}}]


def test_task_that_returns_nothing_has_succeeded(ran):
    assert succeeded(ran.results["nothing"]) is None
    assert ran.results["nothing"].is_finished


@needs.async_tasks
def test_coroutine_function_runs(ran):
    assert succeeded(ran.results["async"]) == 3


@pytest.mark.parametrize("name", ["add", "fail"])
def test_times_are_in_order(ran, name):
    result = ran.results[name]
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.last_attempted_at == result.started_at
    assert timezone.is_aware(result.finished_at)
    assert result.finished_at - result.enqueued_at < dt.timedelta(minutes=10)


@pytest.mark.parametrize("name", ["add", "fail"])
def test_one_run_is_one_attempt_by_one_worker(ran, name):
    result = ran.results[name]
    assert result.attempts == 1
    [worker_id] = result.worker_ids
    assert isinstance(worker_id, str)
    assert 0 < len(worker_id) <= 64


@needs.results
@needs.later
def test_refreshed_result_is_as_a_new_one(ran):
    assert ran.enqueued["add"] == ran.results["add"]
    assert ran.enqueued["add"].return_value == 3


def test_return_value_becomes_what_json_has(ran):
    value = {"numbers": [1, 2.5, None, True], "text": "bytes", "deep": [[{}]]}
    assert succeeded(ran.results["give nested"]) == value


@pytest.mark.parametrize("kind", ["object", "set", "datetime"])
def test_return_value_that_json_has_no_word_for_is_a_failure(ran, kind):
    result = ran.results[f"give {kind}"]
    assert result.status is TaskResultStatus.FAILED
    assert [error.exception_class for error in result.errors] == [TypeError]


@pytest.mark.parametrize("kind", ["NaN", "NUL", "surrogate", "int key"])
def test_return_value_that_storage_may_not_have_is_kept_or_a_failure(ran, kind):
    result = ran.results[f"give {kind}"]
    assert result.is_finished
    if result.status is TaskResultStatus.SUCCESSFUL and kind != "int key":
        assert repr(result.return_value) == repr(tasks.RETURNED[kind])
    elif result.status is TaskResultStatus.SUCCESSFUL:
        assert result.return_value in ({1: "a"}, {"1": "a"})
    else:
        assert result.errors


# Failure


def test_failure_keeps_the_exception(ran):
    result = ran.results["fail"]
    assert (result.status, result.is_finished) == (TaskResultStatus.FAILED, True)
    [error] = result.errors
    assert error.exception_class is ValueError
    assert "ValueError: no luck" in error.traceback
    assert "in fail" in error.traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_failure_is_not_tried_again_unasked(ran):
    assert ran.trace.labels().count("fail") == 1


def test_class_of_an_exception_is_found_inside_another(ran):
    [error] = ran.results["nested class"].errors
    assert error.exception_class_path == "tests.conformance.tasks.Refused.Twice"


@needs.async_tasks
def test_coroutine_function_fails_alike(ran):
    result = ran.results["async fail"]
    assert result.status is TaskResultStatus.FAILED
    assert [error.exception_class for error in result.errors] == [ValueError]
    assert ran.trace.labels().count("async fail") == 1


@pytest.mark.parametrize("kind", ODD)
def test_exception_that_cannot_be_stored_is_a_failure_all_the_same(ran, kind):
    result = ran.results[f"fail {kind}"]
    assert result.status is TaskResultStatus.FAILED
    [error] = result.errors
    assert error.exception_class is (tasks.Odd if kind == "unprintable" else ValueError)


@pytest.mark.parametrize("name", ["leave", pytest.param("async leave", marks=needs.async_tasks)])
def test_task_that_exits_has_failed(ran, name):
    result = ran.results[name]
    assert result.status is TaskResultStatus.FAILED
    assert [error.exception_class for error in result.errors] == [SystemExit]


@needs.worker
def test_task_that_interrupts_has_failed(ran):
    result = ran.results["interrupt"]
    assert result.status is TaskResultStatus.FAILED
    assert [error.exception_class for error in result.errors] == [KeyboardInterrupt]


@needs.worker
def test_worker_survives_whatever_tasks_do(ran):
    assert [log.rstrip().rpartition("\n")[2] for log in ran.dead] == []


@needs.runs_at_once
def test_interrupt_reaches_who_enqueues(trace):
    with pytest.raises(KeyboardInterrupt):
        tasks.interrupt.enqueue()
    assert [entry["level"] for entry in trace.read(what="log")] == ["DEBUG", "INFO"]


def test_wrong_arguments_are_a_failure_or_refused(ran):
    if "wrong arguments" in ran.results:
        result = ran.results["wrong arguments"]
        assert result.status is TaskResultStatus.FAILED
        assert [error.exception_class for error in result.errors] == [TypeError]


def test_tasks_go_on_after_all_that(ran):
    assert succeeded(ran.results["last"]) is None
    assert [name for name, result in ran.results.items() if not result.is_finished and name != "tomorrow"] == []


# Context


def test_context_has_the_result_as_it_is_while_the_task_runs(ran):
    result = ran.results["context"]
    assert succeeded(result) == {
        "attempt": 1,
        "id": result.id,
        "status": "RUNNING",
        "task": "look_at_context",
        "args": [[1, 2]],
        "kwargs": {"key": "value"},
        "result_args": [[1, 2]],
        "result_kwargs": {"key": "value"},
        "worker_ids": result.worker_ids,
        "has_started": True,
    }


@needs.async_tasks
def test_coroutine_function_gets_the_context_too(ran):
    result = ran.results["async context"]
    assert succeeded(result) == {"attempt": 1, "id": result.id, "args": [1]}


# Which, and in which order


def test_task_of_another_queue_runs(ran):
    assert succeeded(ran.results["elsewhere"]) == "elsewhere"


def test_task_of_another_alias_runs_under_its_name(ran):
    result = ran.results["second"]
    assert succeeded(result) == "second"
    assert (result.backend, result.task.queue_name) == ("second", "second")


def test_task_enqueued_by_a_task_runs(ran):
    assert ran.trace.labels().count("another") == 1


@needs.defer
def test_task_runs_when_it_is_due_and_not_before(ran):
    assert "yesterday" in ran.trace.labels()
    assert "tomorrow" not in ran.trace.labels()
    result = ran.results["tomorrow"]
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 0)
    assert result.task.run_after == NOW + dt.timedelta(days=1)


@needs.priority
@needs.later
def test_higher_priority_runs_first(ran):
    """Enqueued first, in the middle, and last of all; enough come between that fetching ahead makes no difference."""
    labels = [label for label in ran.trace.labels() if label.startswith("priority ")]
    assert labels == ["priority 100", "priority 0", "priority -100"]


# What is said


ENDINGS = {"add": "SUCCESSFUL", "fail": "FAILED"}
if task_backends["default"].supports_async_task:
    ENDINGS |= {"async": "SUCCESSFUL", "async fail": "FAILED"}
each_ending = pytest.mark.parametrize("name", ENDINGS)
each_kind = pytest.mark.parametrize("what", ["signal", "async signal"])


@each_ending
@each_kind
def test_signals_come_once_and_in_order(ran, name, what):
    names = [entry["signal"] for entry in ran.said(name, what=what)]
    assert names == ["task_enqueued", "task_started", "task_finished"]


@each_ending
def test_signals_have_the_class_as_sender(ran, name):
    assert {entry["sender"] for entry in ran.said(name, what="signal")} == {SENDER}


@each_ending
@each_kind
def test_signals_have_the_result_as_it_is_then(ran, name, what):
    states = [(entry["status"], entry["attempts"]) for entry in ran.said(name, what=what)]
    assert states == [("READY", 0), ("RUNNING", 1), (ENDINGS[name], 1)]


@each_ending
def test_end_of_a_failure_is_told_while_the_exception_is_handled(ran, name):
    """So that receivers, as those of monitoring, find it where they look for it."""
    [entry] = ran.said(name, what="signal", signal="task_finished")
    assert entry["raised"] == ("ValueError" if ENDINGS[name] == "FAILED" else None)


@each_ending
def test_start_and_end_are_logged(ran, name):
    path = ran.results[name].task.module_path
    lines = [(entry["level"], entry["message"].partition(" ")[2].partition(" ")[2]) for entry in ran.logged(name)]
    level = "ERROR" if ENDINGS[name] == "FAILED" else "INFO"
    assert lines[-2:] == [("INFO", f"path={path} state=RUNNING"), (level, f"path={path} state={ENDINGS[name]}")]


@each_ending
def test_traceback_is_logged_with_a_failure_alone(ran, name):
    started, ended = ran.logged(name)[-2:]
    assert started["traceback"] is None
    if ENDINGS[name] == "FAILED":
        assert "ValueError: no luck" in ended["traceback"]
    else:
        assert ended["traceback"] is None


@needs.worker
@pytest.mark.parametrize("signal", RAISING)
def test_receiver_that_raises_leaves_no_task_running(ran, signal):
    assert ran.said(f"receiver of {signal}", what="signal", signal=signal)
    assert ran.results[f"receiver of {signal}"].is_finished
    assert "last" in ran.trace.labels()


@needs.worker
def test_receiver_that_raises_at_the_end_does_not_change_the_outcome(ran):
    assert succeeded(ran.results["receiver of task_finished"]) is None
