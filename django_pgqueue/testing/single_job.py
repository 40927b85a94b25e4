"""Run code of a test as that of a job which has no row, and which no worker runs."""

import contextlib
import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar, cast

from django_pgqueue.jobs.context import CurrentJob, entered
from django_pgqueue.jobs.direct_run import call_here, make_job
from django_pgqueue.jobs.enqueue import encode_arguments
from django_pgqueue.tasks import Call
from django_pgqueue.testing.selection import AnyTask, task_of

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


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
        job = make_job(None if task is None else task_of(task), attempt=attempt, run_at=time.time(), metadata=metadata)
        current = CurrentJob(job)
        current.is_kill_requested = is_kill_requested
        with entered(current):
            yield current

    return JobBlock(block)


def run_job(
    call: Call[R],
    *,
    attempt: int = 1,
    metadata: Mapping[str, Any] | None = None,
) -> R:
    """Run the function of a task as that of a job, here and now; no job is enqueued, and no worker is needed.

    As in a worker, arguments go through JSON, ``PGQUEUE["MIDDLEWARE"]`` is around the function, that of a task with
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
    key = task.keys_of(call.args, call.kwargs).concurrency
    job = make_job(task, attempt=attempt, run_at=time.time(), metadata=metadata, concurrency_key=key, **given)
    result: R = call_here(task, job, CurrentJob(job))
    return result
