"""Tasks for the tests. Each writes what it did into tests.app.models.Mark, on the caller's own connection."""

import asyncio
import os
import sys
import time

from django.db import connection, transaction

from django_pgqueue import Discard, RetryLater, current_job, task
from tests.app.models import Mark


def mark(label: str = "") -> None:
    job = current_job()
    assert job is not None
    Mark.objects.create(job_id=job.id, attempt=job.attempt, pid=os.getpid(), label=label)


@task
def noop() -> None:
    pass


@task
def record(label: str = "") -> str:
    mark(label)
    return f"recorded {label}"


@task
async def arecord(label: str = "") -> str:
    job = current_job()
    assert job is not None
    await Mark.objects.acreate(job_id=job.id, attempt=job.attempt, pid=os.getpid(), label=label)
    return f"recorded {label}"


@task(max_attempts=3, backoff=0)
def fail(message: str = "no luck") -> None:
    mark(message)
    raise ValueError(message)


@task(max_attempts=3, backoff=0)
def fail_until(attempt: int) -> None:
    job = current_job()
    mark()
    if job.attempt < attempt:
        raise ValueError(f"not before attempt {attempt}")


@task
def discard() -> None:
    raise Discard("no such order")


@task
def retry_later(seconds: float) -> None:
    mark()
    if Mark.objects.filter(job_id=current_job().id).count() < 2:
        raise RetryLater(seconds, "the shop is closed")


@task(atomic=True)
def record_atomic(label: str = "") -> None:
    mark(label)


@task(max_attempts=1)
def sleep_once(seconds: float) -> None:
    mark("start")
    time.sleep(seconds)
    mark("end")


@task
def sleep(seconds: float) -> None:
    mark("start")
    time.sleep(seconds)
    mark("end")


@task
async def asleep(seconds: float) -> None:
    await Mark.objects.acreate(job_id=current_job().id, label="start")
    await asyncio.sleep(seconds)
    await Mark.objects.acreate(job_id=current_job().id, label="end")


@task
def until_cancelled(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    mark("start")
    while not current_job().is_cancelled:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    raise RuntimeError("cancelled")


@task
def leave_transaction_open() -> None:
    mark("before")
    transaction.set_autocommit(False)
    mark("inside")


@task
def backend_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


@task(max_attempts=1)
def call_exit() -> None:
    mark()
    raise SystemExit(3)


@task(keep=False)
def unkept() -> None:
    mark()


@task
def parent() -> None:
    noop.enqueue()


@task(aliases=["tests.app.tasks.old_name"])
def renamed() -> None:
    mark()


@task(max_attempts=1)
async def exit_in_a_subtask() -> None:
    async def leave():
        raise SystemExit(3)

    await asyncio.create_task(leave())


@task(max_attempts=1)
async def slow_to_tidy() -> None:
    """Use the lane's thread, so that it is tidied up afterwards."""
    await Mark.objects.acreate(job_id=current_job().id, label="start")
    await asyncio.sleep(60)


@task(max_attempts=1)
def hold_the_gil(seconds: float) -> None:
    """A regular expression that backtracks: one call into C that lets nobody else run."""
    import re

    mark("start")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        re.match(r"(a*)*b", "a" * 24)


HOARD: list[bytearray] = []


@task
def grow(megabytes: int) -> None:
    """Keep memory for as long as the process lives."""
    HOARD.append(bytearray(os.urandom(1) * (megabytes * 2**20)))


@task
def switch_interval() -> float:
    return sys.getswitchinterval()


@task(max_attempts=1)
async def cancel_itself() -> None:
    await arecord.func("start")
    asyncio.current_task().cancel()


@task(max_attempts=1)
async def leave_a_cancel_behind() -> None:
    """As a watchdog does that nobody has called off."""
    await arecord.func("start")
    asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)


@task(max_attempts=1)
async def sleep_for_ever() -> None:
    await asyncio.sleep(3600)


@task
async def noop_async() -> None:
    pass
