"""Run code of a test as that of a job which has no row, and which no worker runs."""

import asyncio
import contextlib
import contextvars
import functools
import inspect
import json
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar, cast

from asgiref.sync import async_to_sync
from django.db import transaction

from django_pgqueue.conf import conf
from django_pgqueue.jobs.context import CurrentJob, enter, entered
from django_pgqueue.jobs.enqueue import encode_arguments
from django_pgqueue.jobs.executor import acall_function, call_function
from django_pgqueue.jobs.interrupts import LaneInterrupts, ThreadInterrupts
from django_pgqueue.options import Options
from django_pgqueue.records import ClaimedJob
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.tasks import Call
from django_pgqueue.testing.selection import AnyTask, task_of

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

NO_ROW = 0  # the id of such a job


class JobBlock:
    """What ``as_job`` returns: a context manager, and a decorator of functions, ``async def`` or not."""

    def __init__(self, make: Callable[[], contextlib.AbstractContextManager[CurrentJob]]) -> None:
        self._make = make
        self._blocks: list[contextlib.AbstractContextManager[CurrentJob]] = []

    def __enter__(self) -> CurrentJob:
        block = self._make()
        current = block.__enter__()
        self._blocks.append(block)
        return current

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocks.pop().__exit__(kind, error, trace)

    def __call__(self, func: F) -> F:
        """Return ``func`` with a job of its own for each call."""
        if inspect.iscoroutinefunction(func):

            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with self._make():
                    return await func(*args, **kwargs)

            return cast("F", functools.wraps(func)(awaited))

        def called(*args: Any, **kwargs: Any) -> Any:
            with self._make():
                return func(*args, **kwargs)

        return cast("F", functools.wraps(func)(called))


def as_job(
    task: AnyTask | None = None,
    *,
    attempt: int = 1,
    metadata: Mapping[str, Any] | None = None,
    is_kill_requested: bool = False,
) -> JobBlock:
    """Let ``current_job()`` return a job in this block; or in the function that is decorated, ``async def`` or not.

    The job has no row: its id is 0, and progress and metadata that the code sets are kept in memory. Needs no database.

    Args:
        task: the task, or its name, of which the job is: gives it name, queue and ``max_attempts``. None: of no task.
        attempt: the number of the attempt, from 1.
        metadata: as ``using(metadata=…)`` would have given it.
        is_kill_requested: whether the job was asked to stop.

    Returns:
        A context manager that gives the job; its ``progress`` and ``metadata`` are what the code has set.

    Raises:
        ValueError: attempt is no whole number of 1 or more.
        TaskDoesNotExist: no task has this name.
    """

    @contextlib.contextmanager
    def block() -> Iterator[CurrentJob]:
        job = make_job(None if task is None else task_of(task), attempt=attempt, metadata=metadata)
        current = CurrentJob(job)
        current.is_kill_requested = is_kill_requested
        with entered(current):
            yield current

    return JobBlock(block)


def make_job(
    task: TaskDefinition | None, *, attempt: int, metadata: Mapping[str, Any] | None = None, **changes: Any
) -> ClaimedJob:
    """Return a job of a task, or of none, that no table has."""
    if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 1:
        raise ValueError(f"attempt is a whole number of 1 or more, not {attempt!r}.")
    options = task.options if task else Options()
    given = dict(options.metadata if metadata is None else metadata)
    values: dict[str, Any] = {
        "rank": -options.priority,
        "run_at": time.time(),
        "id": NO_ROW,
        "task": task.name if task else "",
        "args": "[]",
        "kwargs": "{}",
        "attempt": attempt,
        "max_attempts": max(options.attempts_allowed, attempt),
        "timeout_seconds": 0,
        "lost": 0,
        "flags": 0,
        "is_old": False,
        "concurrency_key": None,
        "rest": json.dumps({"metadata": given}) if given else None,
        "enqueued_at": None,
        "queue": options.queue,
        "lease_token": 0,
        "claimed_at": time.monotonic(),
    }
    return ClaimedJob(**values | changes)


def run_job(
    call: Call[R],
    *,
    attempt: int = 1,
    metadata: Mapping[str, Any] | None = None,
) -> R:
    """Run the function of a task as that of a job, here and now; no job is enqueued, and no worker is needed.

    As in a worker, arguments go through JSON, ``PGQUEUE["AROUND"]`` is around the function, that of a task with
    ``atomic=True`` has a transaction, and one that is ``async def`` an event loop. Retries, signals and time limits do
    not take part.

    Args:
        call: the task with its arguments, as ``send_receipt.bind(4711)``; also of Django's Tasks framework.
        attempt: the number of the attempt, from 1.
        metadata: as ``using(metadata=…)`` would have given it. None: as it has.

    Returns:
        What the function returns.

    Raises:
        BaseException: what the function raises: errors, and ``Discard`` and its like.
        InvalidArguments: the arguments are not JSON.
        TypeError: call is none.
        ValueError: attempt is no whole number of 1 or more.
    """
    __tracebackhide__ = True
    if not isinstance(call, Call):
        raise TypeError(
            f"call is a task with its arguments, made by bind(), as in run_job(send.bind(1)), not {call!r}."
        )
    task = call.task
    given = encode_arguments(task, call.args, call.kwargs)
    job = make_job(task, attempt=attempt, metadata=metadata, **given)
    current = CurrentJob(job)
    result: R = contextvars.copy_context().run(_arun if task.is_async else _run, task, job, current)
    return result


def _run(task: TaskDefinition, job: ClaimedJob, current: CurrentJob) -> Any:
    enter(current)
    block = transaction.atomic(using=conf.database) if task.atomic else contextlib.nullcontext()
    with block:
        return call_function(task, job, current, ThreadInterrupts(), task.adapter.begin(job) if task.adapter else None)


def _arun(task: TaskDefinition, job: ClaimedJob, current: CurrentJob) -> Any:
    async def run() -> Any:
        enter(current)
        interrupts = LaneInterrupts(asyncio.get_running_loop())
        return await acall_function(task, job, current, interrupts, task.adapter.begin(job) if task.adapter else None)

    return async_to_sync(run)()
