"""Tasks of the benchmarks."""

import json
import logging
import socket
import time
from pathlib import Path

from django.db import connection

from benchmarks.models import Place, Visit
from django_pgqueue import current_job, task

logger = logging.getLogger(__name__)


@task
def noop(*payload: object) -> None:
    pass


@task
async def anoop(*payload: object) -> None:
    pass


@task
def chat() -> None:
    """Log ten lines."""
    for number in range(10):
        logger.info("line %d of a job", number)


@task
def visit(number: int) -> None:
    Visit.objects.create(path=f"/{number}/")


@task(atomic=True)
def visit_atomically(number: int) -> None:
    Visit.objects.create(path=f"/{number}/")


@task
def visit_and_rest(seconds: float) -> None:
    Visit.objects.create(path="/")
    time.sleep(seconds)


@task(atomic=True)
def visit_and_rest_atomically(seconds: float) -> None:
    Visit.objects.create(path="/")
    time.sleep(seconds)


@task
async def avisit(number: int) -> None:
    await Visit.objects.acreate(path=f"/{number}/")


@task
def rest(microseconds: int) -> None:
    time.sleep(microseconds / 1e6)


@task
def spin(flag: str) -> None:
    """Keep a core busy in pure Python for as long as the file is there."""
    while Path(flag).exists():
        for _ in range(100_000):
            pass


marks: dict[str, int] = {}
"""Instants of the last pick-up; kept by the workers of ``benchmarks.marked`` alone."""


@task
def report_start(address: str) -> None:
    """Send the instant, by the clock that all processes share, to a socket; with it those of the steps before."""
    started = time.monotonic_ns()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(json.dumps({**marks, "started": started}).encode(), address)


ENTER = """
WITH entered AS (
    INSERT INTO benchmarks_place AS place (key, job_id) VALUES (%(key)s, %(job)s)
    ON CONFLICT (key) DO UPDATE SET job_id = EXCLUDED.job_id
    WHERE place.job_id = EXCLUDED.job_id OR NOT EXISTS (SELECT FROM pgqueue_jobs AS job WHERE job.id = place.job_id)
    RETURNING key
)
INSERT INTO benchmarks_start (key, job_id, is_breach) VALUES (%(key)s, %(job)s, NOT EXISTS (SELECT FROM entered))
"""
"""Take the place of a key, or write down that another job has it. What a killed worker left there is no other job."""


@task
def exclusive(key: str) -> None:
    """Run alone of all jobs with this key, and find out if it is not so."""
    job_id = current_job().id
    with connection.cursor() as cursor:
        cursor.execute(ENTER, {"key": key, "job": job_id})
    Place.objects.filter(key=key, job_id=job_id).delete()
