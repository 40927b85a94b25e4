"""``TaskResult`` of a job, and tasks found by the path in a row.

A name comes out of the database. So nothing is imported because of it, and no code of a module runs: only the
attribute of the module with this name counts, and only if it is a task of the framework.
"""

import dataclasses
import datetime as dt
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from django_pgqueue import jobs
from django_pgqueue.conf import conf
from django_pgqueue.exceptions import JobDied, JobExpired, JobKilled, JobLost, JobSuperseded, TaskDoesNotExist
from django_pgqueue.framework import AnyTask, AnyTaskResult, Task, TaskError, TaskResultStatus
from django_pgqueue.jobs.handle import JobHandle
from django_pgqueue.jobs.lookup import JobState
from django_pgqueue.records import ClaimedJob
from django_pgqueue.states import ATTEMPTS, DEAD, ENDS, SUCCEEDED, EntryKind, Status

UNKNOWN_WORKER = "unknown"  # of an attempt that the history lacks: it keeps the first and the last ten


def seek(name: str) -> AnyTask | None:
    """Return the task of the framework that a dotted name leads to, or None."""
    path, _, attribute = name.rpartition(".")
    module = sys.modules.get(path)
    if not isinstance(module, ModuleType):
        return None
    # Past a module that loads itself, or others, when it is asked for an attribute.
    found = ModuleType.__getattribute__(module, "__dict__").get(attribute)
    return found if isinstance(found, Task) else None


class PgQueueTaskResult(AnyTaskResult):
    """The state of a job, and the ways to wait for its end."""

    __slots__ = ()

    @property
    def job(self) -> JobHandle[Any]:
        """The job's handle, for what the framework has no word for: ``state()`` has its progress and metadata."""
        given = self.task.get_backend().options.get("database")
        return jobs.get(self.id, database=conf.database_of(int(self.id), given))

    def result(self, timeout: float | dt.timedelta | None = None) -> Any:
        """Return what the task returned and refresh this; with a timeout, wait for its end: see ``JobHandle.result``.

        Args:
            timeout: seconds above 0, or a timedelta. None: do not wait.

        Raises:
            JobNotFinished: it has not ended yet, and there is no timeout.
            TimeoutError: it has not ended by then. It goes on.
            JobDied: it has FAILED; this has its errors.
            JobNotCommitted: it was enqueued in the transaction that the caller is in, and has not been run there.
            InvalidOption: the timeout is not above 0.
            JobDoesNotExist, ResultNotKept: it has succeeded, and its result is not kept.
        """
        try:
            value = self.job.result(timeout)
        except JobDied:
            self.refresh()
            raise
        self.refresh()
        return value

    async def aresult(self, timeout: float | dt.timedelta | None = None) -> Any:  # noqa: ASYNC109 - as result()
        """Do what ``result`` does from async code; waiting keeps no thread busy."""
        try:
            value = await self.job.aresult(timeout)
        except JobDied:
            await self.arefresh()
            raise
        await self.arefresh()
        return value


STATUSES = {  # all others are READY: to be run, if perhaps not yet
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.RESERVED: TaskResultStatus.SUCCESSFUL,
    SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    DEAD: TaskResultStatus.FAILED,
}

EXCEPTIONS = {  # for entries of the history where no exception was raised
    EntryKind.LOST: JobLost,
    EntryKind.EXPIRED: JobExpired,
    EntryKind.UNKNOWN_TASK: TaskDoesNotExist,
    EntryKind.KILLED: JobKilled,
    EntryKind.SUPERSEDED: JobSuperseded,
}


def task_result_of(state: JobState, task: AnyTask, *, backend: str) -> PgQueueTaskResult:
    """Return the ``TaskResult`` of a job."""
    result = PgQueueTaskResult(
        task=task,
        id=str(state.id),
        status=STATUSES.get(state.status, TaskResultStatus.READY),
        enqueued_at=state.enqueued_at,
        started_at=state.started_at,
        finished_at=state.ended_at,
        last_attempted_at=state.last_attempted_at,
        args=state.args,
        kwargs=state.kwargs,
        backend=backend,
        errors=errors_of(state.errors),
        worker_ids=worker_ids(state.errors, state.attempts, current=state.worker_id),
    )
    if state.succeeded:
        object.__setattr__(result, "_return_value", state.result)
    return result


def worker_ids(history: Iterable[Any], attempts: int, *, current: int | None) -> list[str]:
    """Return the worker of each attempt that counts; ``current`` made the last one, where that is not history."""
    told = (entry for entry in history if isinstance(entry, dict) and isinstance(entry.get("attempt"), int))
    known = {entry["attempt"]: entry["worker_id"] for entry in told if "worker_id" in entry}
    if current is not None:
        known.setdefault(attempts, current)  # one that history has: by now another worker has found the job expired
    return [str(known.get(attempt, UNKNOWN_WORKER)) for attempt in range(1, attempts + 1)]


def errors_of(history: Iterable[Any]) -> list[TaskError]:
    """Return the failures in the history of a job: no notes of staff, nor what SQL has put there that is no entry."""
    return [error_of(entry) for entry in history if EntryKind.of(entry) in ATTEMPTS | ENDS]


def error_of(entry: Mapping[str, Any]) -> TaskError:
    """Return one failure, with the path of a class that can be imported where the exception's own can."""
    kind = EntryKind.of(entry)
    exception = EXCEPTIONS.get(kind) if kind else None
    name = f"{exception.__module__}.{exception.__qualname__}" if exception else str(entry.get("error"))
    path = name if "." in name else f"builtins.{name}"
    return TaskError(exception_class_path=path, traceback=str(entry.get("traceback") or _summary(entry)))


def _summary(entry: Mapping[str, Any]) -> str:
    return ": ".join(str(entry[part]) for part in ("error", "message", "worker") if entry.get(part))


def run_after(run_at: dt.datetime | None, enqueued_at: dt.datetime | None) -> dt.datetime | None:
    """Return what ``run_after`` a job stands for: none where it was due at once. A scheduled retry has one too."""
    return None if run_at == enqueued_at else run_at


def restored(task: AnyTask, **changes: Any) -> AnyTask:
    """Return the same task with other fields. It may be invalid by now, as when its queue is gone from ``QUEUES``."""
    made: AnyTask = object.__new__(type(task))
    for field in dataclasses.fields(task):
        object.__setattr__(made, field.name, changes.get(field.name, getattr(task, field.name)))
    return made


def task_of(job: JobState | ClaimedJob, task: AnyTask, *, backend: str, run_at: Any, enqueued_at: Any) -> AnyTask:
    """Return the task with the options that a job of it was enqueued with."""
    return restored(
        task,
        priority=job.priority,
        queue_name=job.queue,
        backend=backend,
        run_after=run_after(run_at, enqueued_at),
    )


def gone(name: str) -> AnyTask:
    """Return what stands for a task whose function is gone: it has a name and a path, and cannot be called."""
    made: AnyTask = object.__new__(Task)
    fields = {
        "func": _function_that_is_gone(name),
        "priority": 0,
        "backend": "",
        "queue_name": "",
        "run_after": None,
        "takes_context": False,
    }
    for field, value in fields.items():
        object.__setattr__(made, field, value)
    return made


@functools.lru_cache(maxsize=1000)  # so that two results of one job are equal
def _function_that_is_gone(name: str) -> Callable[..., Any]:
    def function(*_args: Any, **_kwargs: Any) -> Any:
        raise TaskDoesNotExist(
            f"{name!r} is no task any more: its function was removed or renamed, or its module is gone."
        )

    function.__module__, _, function.__qualname__ = name.rpartition(".")
    function.__name__ = function.__qualname__
    return function
