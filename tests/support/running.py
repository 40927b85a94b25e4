"""Run jobs on the way that workers do, in this thread."""

import asyncio

from asgiref.sync import sync_to_async
from django.db import connections

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.executor import arun, run, task_of
from django_pgqueue.jobs.interrupts import LaneInterrupts, ThreadInterrupts
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.records import ClaimedJob, Outcome
from django_pgqueue.signals import announce_deaths, deaths


def run_claimed(queue: QueueConnection, name: str = "default", *, limit: int = 1) -> list[Outcome]:
    """Claim what is due on a queue, run it, and write down what it came to."""
    promote(queue)
    outcomes = [run_one(job) for job in claim(queue, name, limit=limit, worker_id=1)]
    ack.write(queue, outcomes)
    announce_deaths(deaths(outcomes, stale=()))
    return outcomes


def run_one(job: ClaimedJob) -> Outcome:
    task = task_of(job)
    if task.is_async:
        return asyncio.run(_awaited(task, job))
    return run(task, job, CurrentJob(job), ThreadInterrupts())


async def _awaited(task, job: ClaimedJob) -> Outcome:
    """Close what the loop's thread for sync code has opened."""
    try:
        border = LaneInterrupts(asyncio.get_running_loop())
        return await asyncio.create_task(arun(task, job, CurrentJob(job), border))
    finally:
        await sync_to_async(connections.close_all)()
