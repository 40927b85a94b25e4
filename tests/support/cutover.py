"""The other queue of a switch is a list here, in which calls lie as JSON; ours is the real one."""

import asyncio
import json
from io import StringIO

from asgiref.sync import sync_to_async
from django.core.management import CommandError, call_command
from django.db import connections

import tests.app.tasks as app
from django_pgqueue.contrib.cutover import old_side
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.executor import run
from django_pgqueue.jobs.interrupts import ThreadInterrupts
from django_pgqueue.models import Job
from tests.app.models import Mark

BOTH = ["old_leads", "new_leads"]


class OtherQueue:
    """Calls that lie in a list until they are run, and their failures."""

    def __init__(self, func=app.act) -> None:
        self.calls: list[str] = []
        self.errors: list[Exception] = []
        self._run = old_side(func)

    def delay(self, *args, **kwargs) -> None:
        self.calls.append(json.dumps([args, kwargs]))

    def drain(self) -> int:
        done = 0
        while self.calls:
            args, kwargs = json.loads(self.calls.pop(0))
            try:
                self._run(*args, **kwargs)
            except ValueError as error:
                self.errors.append(error)
            done += 1
        return done


def work(queue, task=app.switched) -> int:
    """Run what is queued on our side, once each."""
    jobs = claim(queue, "default", limit=100, worker_id=1)
    ack.write(queue, [run(task, job, CurrentJob(job), ThreadInterrupts()) for job in jobs])
    return len(jobs)


def in_a_loop(coroutine):
    """Run it in an event loop, and close what its thread for sync code has opened."""

    async def run_and_close():
        try:
            return await coroutine
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(run_and_close())


def ran_by_us() -> list[bool]:
    return [job_id != 0 for job_id in Mark.objects.order_by("id").values_list("job_id", flat=True)]


def report(*words) -> tuple[list[dict], str]:
    """Return the rows of the report, and what it says against flipping."""
    out, problem = StringIO(), ""
    try:
        call_command("pgqueue_cutover", "--json", *words, stdout=out)
    except CommandError as error:
        problem = str(error)
    return json.loads(out.getvalue()), problem


def row_of(stage, **changes):
    leads = stage.removesuffix("_leads")
    others = ("old_succeeded", "old_failed", "new_succeeded", "new_failed", "compared", "differing", "missing")
    numbers = dict.fromkeys(others, 0) | {"old_arrived": 1, "new_arrived": 1, f"{leads}_succeeded": 1}
    return {"task": app.switched.name, "stage": stage, **numbers, **changes}


def promoted(queue) -> int:
    Job.objects.update(status="queued")
    return work(queue)
