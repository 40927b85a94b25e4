"""Claimed jobs, also such as no table has, and what a run of them came to."""

import asyncio

from django_pgqueue import tasks
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.executor import arun, run
from django_pgqueue.jobs.interrupts import LaneInterrupts, ThreadInterrupts
from django_pgqueue.records import KEEP_RESULT, ClaimedJob


def job(args="[]", kwargs="{}", **changes) -> ClaimedJob:
    values = {
        "id": 1,
        "lease_token": 2,
        "task": "t",
        "args": args,
        "kwargs": kwargs,
        "queue": "default",
        "attempt": 1,
        "max_attempts": 3,
        "rank": 0,
        "run_at": 0.0,
        "is_old": False,
        "timeout_seconds": 0,
        "flags": KEEP_RESULT,
        "lost": 0,
        "concurrency_key": None,
        "rest": None,
        "enqueued_at": None,
        "claimed_at": 0.0,
        "database": "default",
    }
    return ClaimedJob(**values | changes)


def outcome_of(func, given=None, current=None, **options):
    given = given or job()
    current = current or CurrentJob(given)
    task = tasks.make(func, name="t", **options)
    if task.is_async:
        return asyncio.run(awaited(task, given, current))
    return run(task, given, current, ThreadInterrupts())


async def awaited(task, given, current):
    return await arun(task, given, current, LaneInterrupts(asyncio.get_running_loop()))


def raising(error):
    def func():
        raise error

    return func


def claim_one(queue):
    [job] = claim(queue, "default", limit=1, worker_id=1)
    return job
