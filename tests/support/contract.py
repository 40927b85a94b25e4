"""Run jobs of Django's Tasks framework here and now: claim, run and ack, as a worker does, and nothing besides."""

import asyncio

from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.executor import arun, run, task_of
from django_pgqueue.jobs.failure import unknown_task
from django_pgqueue.jobs.interrupts import LaneInterrupts, ThreadInterrupts
from django_pgqueue.records import Outcome

WORKER = 7


def work(queue, name="default", *, worker_id=WORKER) -> Outcome:
    """Run the next job of a queue, in which there must be just one."""
    [job] = claim(queue, name, limit=1, worker_id=worker_id)
    task = task_of(job)
    if task is None:
        outcome = unknown_task(job)
    elif task.is_async:
        outcome = asyncio.run(_awaited(task, job))
    else:
        outcome = run(task, job, CurrentJob(job), ThreadInterrupts())
    ack.write(queue, [outcome])
    return outcome


async def _awaited(task, job) -> Outcome:
    return await arun(task, job, CurrentJob(job), LaneInterrupts(asyncio.get_running_loop()))
