"""Run the function of a task in this thread, for a job that no worker has claimed. Writes no outcome."""

import asyncio
import contextlib
import contextvars
import json
import time
from collections.abc import Mapping
from typing import Any

from asgiref.sync import async_to_sync
from django.db import transaction

from django_pgqueue.conf import conf
from django_pgqueue.jobs.context import CurrentJob, enter
from django_pgqueue.jobs.executor import acall_function, call_function
from django_pgqueue.jobs.interrupts import LaneInterrupts, ThreadInterrupts
from django_pgqueue.options import Options
from django_pgqueue.records import ClaimedJob
from django_pgqueue.registry import TaskDefinition

NO_ROW = 0  # the id of a job that no table has


def make_job(
    task: TaskDefinition | None,
    /,
    *,
    attempt: int,
    run_at: float,
    metadata: Mapping[str, Any] | None = None,
    **changes: Any,
) -> ClaimedJob:
    """Return a job of a task, or of none, with the values of a first claim; by default no table has it."""
    if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 1:
        raise ValueError(f"attempt is a whole number of 1 or more, not {attempt!r}.")
    options = task.options if task else Options()
    given = dict(options.metadata if metadata is None else metadata)
    values: dict[str, Any] = {
        "rank": -options.priority,
        "run_at": run_at,
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
        "database": task.database if task else conf.database_here,
    }
    return ClaimedJob(**values | changes)


def call_here(task: TaskDefinition, job: ClaimedJob, current: CurrentJob) -> Any:
    """Call the function with the job's arguments; return its value, or raise its exception.

    An atomic task gets its transaction, and an ``async def`` one an event loop. There are no signals and no time limit,
    and the context of the caller stays as it is.
    """
    return contextvars.copy_context().run(_acall if task.is_async else _call, task, job, current)


def _call(task: TaskDefinition, job: ClaimedJob, current: CurrentJob) -> Any:
    enter(current)
    block = transaction.atomic(using=job.database) if task.atomic else contextlib.nullcontext()
    with block:
        return call_function(task, job, current, ThreadInterrupts(), task.adapter.begin(job) if task.adapter else None)


def _acall(task: TaskDefinition, job: ClaimedJob, current: CurrentJob) -> Any:
    async def run() -> Any:
        enter(current)
        interrupts = LaneInterrupts(asyncio.get_running_loop())
        return await acall_function(task, job, current, interrupts, task.adapter.begin(job) if task.adapter else None)

    return async_to_sync(run)()
