"""Where a job runs in a test: in its thread, on its connections, between savepoints where a transaction is open."""

import asyncio
import contextlib
import contextvars
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_pgqueue.db.notify import WakeUp
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.executor import arun, run
from django_pgqueue.jobs.failure import failure
from django_pgqueue.jobs.interrupts import LaneBorder, ThreadBorder
from django_pgqueue.records import ClaimedJob, Fate, Outcome
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.testing.connection import is_broken, is_of_test

logger = logging.getLogger("django_pgqueue.jobs")

AnyTask = TaskDefinition


class Performance(NamedTuple):
    """What a run came to, and what it has raised."""

    outcome: Outcome
    error: BaseException | None


def perform(task: AnyTask, job: ClaimedJob, current: CurrentJob) -> Performance:
    """Run a job as a slot of a worker does, then what it has left for after its commit.

    In a test's transaction a handler that breaks it is rolled back as a whole, so that the test can go on; any other
    that fails keeps what it has written, as without a transaction.
    """
    inside = [connection for connection in connections.all(initialized_only=True) if connection.in_atomic_block]
    before = [len(connection.run_on_commit) for connection in inside]
    with _savepoints(inside):
        performance = _call_async(task, job, current) if task.is_async else _call(task, job, current)
    left = [one for one in zip(inside, before, strict=True) if len(one[0].run_on_commit) > one[1]]
    try:
        with _savepoints([connection for connection, _ in left]):
            for connection, number in left:
                _run_hooks(connection, number)
    except Exception as error:  # noqa: BLE001 - as if the handler had raised it, whose commit it follows
        outcome = performance.outcome
        is_over = outcome.fate not in (Fate.SUCCEEDED, Fate.REPEATED)
        return Performance(outcome if is_over else failure(task, job, error, current), performance.error or error)
    return performance


class _ThreadBorder(ThreadBorder):
    """One that sees what a run raises: it is left inside the ``except``."""

    raised: BaseException | None = None

    def leave(self) -> None:
        super().leave()
        self.raised = sys.exception() or self.raised


class _LaneBorder(LaneBorder):
    """The same for ``async def`` tasks, whose border is left in a ``finally``."""

    raised: BaseException | None = None

    def leave(self) -> None:
        super().leave()
        self.raised = sys.exception() or self.raised


def _call(task: AnyTask, job: ClaimedJob, current: CurrentJob) -> Performance:
    border = _ThreadBorder()
    outcome = run(task, job, current, border)
    return Performance(outcome, border.raised)


def _call_async(task: AnyTask, job: ClaimedJob, current: CurrentJob) -> Performance:
    """Run it in an event loop of its own; the sync code that it calls, as the ORM, comes back to this thread."""

    async def perform() -> Performance:
        border = _LaneBorder(asyncio.get_running_loop())
        outcome = await arun(task, job, current, border)
        return Performance(outcome, border.raised)

    call: Callable[[], Performance] = async_to_sync(perform)
    return contextvars.copy_context().run(call)  # which would bring the run's context variables back otherwise


@contextlib.contextmanager
def _savepoints(inside: list[BaseDatabaseWrapper]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for connection in inside:
            stack.enter_context(_savepoint(connection))
        yield


@contextlib.contextmanager
def _savepoint(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Roll back to here if the transaction is broken at the end. Durable blocks may be opened as in the test itself."""
    block: Any = transaction.atomic(using=connection.alias)
    block._from_testcase = all(map(is_of_test, connection.atomic_blocks))  # noqa: SLF001 - there is no other way to say so
    with block:
        yield
        if is_broken(connection):
            transaction.set_rollback(True, using=connection.alias)


def _run_hooks(connection: BaseDatabaseWrapper, number: int) -> None:
    """Run what was registered by ``on_commit`` behind the first ``number``; wake-ups have nobody to wake."""
    while len(connection.run_on_commit) > number:
        entry: Any = connection.run_on_commit.pop(number)
        _, hook, is_robust = entry
        if isinstance(hook, WakeUp):
            continue
        try:
            hook()
        except Exception:
            if not is_robust:
                raise
            logger.exception("A callback of on_commit failed")
