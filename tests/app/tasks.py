"""Tasks for the tests. Each writes what it did into tests.app.models.Mark, on the caller's own connection."""

import asyncio
import ctypes
import datetime as dt
import multiprocessing
import os
import signal
import sys
import time

from django.db import connection, connections, transaction

from django_pgqueue import Discard, Snooze, chain, current_job, finish_job, is_in_job, jobs, once, task
from django_pgqueue.contrib.cutover import new_side
from tests.app.models import Mark, Place


def mark(label: str = "") -> None:
    job = current_job()
    Mark.objects.create(job_id=job.id, attempt=job.attempt, pid=os.getpid(), label=label)


def in_c_with_the_interpreter(seconds: int = 10**6) -> None:
    """Sleep without letting the interpreter go, as no function of Python does."""
    ctypes.PyDLL(None).sleep(seconds)


@task
def noop() -> None:
    pass


@task(backoff=600)
def hold_the_interpreter() -> None:
    """Let no other thread of the process run, for days, as the matching of a pattern may; but without its CPU time."""
    in_c_with_the_interpreter()


@task
def record(label: str = "") -> str:
    mark(label)
    return f"recorded {label}"


@task
def record_beside_another() -> None:
    """Run until a job has run in another process, too."""
    mark()
    while not Mark.objects.exclude(pid=os.getpid()).exists():
        time.sleep(0.02)


@task
def enqueue_on(queue: str, number: int) -> list[str]:
    """Enqueue jobs on a queue; return the databases that they are on."""
    return sorted({noop.using(queue=queue).enqueue().database for _ in range(number)})


@task
def act_here() -> dict:
    """Do what goes to the database of the job, and say where this was."""
    job, following = current_job(), noop.enqueue()
    with finish_job() as end:
        is_new = once("here")
        end.result = {"job": job.database, "following": following.database, "is_new": is_new}
    return {}


@task
def begin_workflow() -> int:
    return chain(noop.bind(), noop.bind()).enqueue().id


@task
def begin_child_elsewhere(database: str) -> None:
    chain(noop.using(database=database).bind(), child=True, database=database).enqueue()


@task(atomic=True)
def act_here_atomically() -> str:
    following = noop.enqueue()
    assert connections[following.database].in_atomic_block
    return following.database


@task
async def arecord(label: str = "") -> str:
    job = current_job()
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
def snooze(seconds: float) -> None:
    mark()
    if Mark.objects.filter(job_id=current_job().id).count() < 2:
        raise Snooze(seconds, "the shop is closed")


@task(atomic=True, backoff=0)
def record_atomic(label: str = "") -> None:
    mark(label)


@task
def finish_in_part() -> None:
    with finish_job():
        mark("saved")
    raise LookupError("after the end")


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
def until_exists(path: str) -> None:
    """Run until there is such a file, which a test makes when it has seen what it wanted to see."""
    mark("start")
    while not os.path.exists(path):
        time.sleep(0.02)
    mark("end")


@task
async def asleep(seconds: float) -> None:
    await Mark.objects.acreate(job_id=current_job().id, label="start")
    await asyncio.sleep(seconds)
    await Mark.objects.acreate(job_id=current_job().id, label="end")


@task
async def auntil_exists(path: str) -> None:
    await Mark.objects.acreate(job_id=current_job().id, label="start")
    while not os.path.exists(path):  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.02)
    await Mark.objects.acreate(job_id=current_job().id, label="end")


@task
def until_kill_requested(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    mark("start")
    while not current_job().is_kill_requested:
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


@task(keep_result=False)
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
    """As regular expressions that backtrack: calls into C, of a second each, that let no other thread run."""

    mark("start")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        in_c_with_the_interpreter(1)


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
async def cancel_all_tasks() -> None:
    for one in asyncio.all_tasks():
        one.cancel()


@task(max_attempts=1)
async def leave_a_cancel_behind() -> None:
    """As a watchdog does that was not called off."""
    await arecord.func("start")
    asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)


@task(max_attempts=1)
async def sleep_for_ever() -> None:
    await asyncio.sleep(3600)


@task
async def noop_async() -> None:
    pass


@task
def pause(seconds: float) -> None:
    """Last, and touch no database."""
    time.sleep(seconds)


@task(backoff=0)
def kill_the_process() -> None:
    """As a segmentation fault does, or the kernel when memory is out."""
    mark("start")
    os.kill(os.getpid(), signal.SIGKILL)


@task
def fork_and_return() -> str:
    """Forget that the copy comes back as well."""
    with transaction.atomic():
        mark("inside")
        if not os.fork():
            return "copy"
        os.wait()
    return "original"


@task(atomic=True)
def fork_and_return_atomic() -> str:
    mark("inside")
    if not os.fork():
        return "copy"
    os.wait()
    return "original"


@task
def fork_a_helper() -> None:
    """A helper that uses the ORM, as multiprocessing makes them on Linux up to Python 3.13."""
    mark("before")
    helper = multiprocessing.get_context("fork").Process(target=mark, args=("helper",))
    helper.start()
    helper.join()
    mark("after")


@task
def end_a_helper(seconds: float) -> int | None:
    """End a helper by SIGTERM, and leave another one behind, which ends with the process."""
    fork = multiprocessing.get_context("fork")
    fork.Process(target=time.sleep, args=(3600,), daemon=True).start()
    begun = fork.Event()
    helper = fork.Process(target=lambda: (begun.set(), time.sleep(3600)))
    helper.start()
    begun.wait(seconds)
    helper.terminate()
    helper.join(seconds)
    return helper.exitcode


@task(max_attempts=1)
def interrupt() -> None:
    raise KeyboardInterrupt


@task(max_attempts=1)
async def interrupt_async() -> None:
    raise KeyboardInterrupt


@task
def begin_by_hand() -> None:
    """Behind the back of Django."""
    mark("before")
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    mark("inside")


@task(max_attempts=1)
def fail_unstorably() -> None:
    """An error with what PostgreSQL cannot store, in its text and in its name, and too much of it."""
    kind = type("Odd", (Exception,), {"__qualname__": "Odd\0\ud800"})
    raise kind("NUL \0, half a pair \ud800, " + "and much more " * 10_000)


@task(max_attempts=100, backoff=0)
def log_and_record(path: str) -> None:
    """Say so in a file first: what really ran, whatever becomes of the database."""
    job = current_job()
    with open(path, "a") as file:
        file.write(f"{job.id} {job.attempt}\n")
    mark()


@task(max_attempts=100, backoff=0, atomic=True)
def log_and_record_atomic(path: str) -> None:
    log_and_record.func(path)


@task
def write_where_only_reading() -> None:
    """As on a server that has become read-only while this connection was open."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()::text")
        mark(cursor.fetchone()[0])
        cursor.execute("SET default_transaction_read_only = on")
    mark("never")


@task(backoff=600)
def spin(seconds: float) -> None:
    """Work in Python, and say what it was interrupted by."""
    deadline = time.monotonic() + seconds
    try:
        mark("start")  # once it is seen, the interruption may come
        while time.monotonic() < deadline:
            time.sleep(0.001)
    except BaseException as error:
        mark(type(error).__name__)
        raise
    mark("end")


@task(backoff=600)
def wait_for_the_server(seconds: float) -> None:
    mark("start")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [seconds])
    mark("end")


@task(backoff=600, atomic=True)
def spin_atomic(seconds: float) -> None:
    spin.func(seconds)


@task(backoff=600)
def swallow(times: int) -> None:
    """Ignore a number of interruptions, wherever they come."""
    deadline, has_begun = time.monotonic() + 600, False
    while True:
        try:
            if not has_begun:
                has_begun = True
                mark("start")
            while time.monotonic() < deadline:  # Python looks for an interruption when it goes back to here
                time.sleep(0.001)
            return
        except BaseException:
            mark("swallowed")
            times -= 1
            if times < 0:
                raise


@task(backoff=600)
async def aswallow(times: int) -> None:
    has_begun = False
    while True:
        try:
            if not has_begun:
                has_begun = True
                await Mark.objects.acreate(job_id=current_job().id, label="start")
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            times -= 1
            if times < 0:
                raise


@task(backoff=600)
def backtrack() -> None:
    """One call into C, of days, that lets no other thread of this process run."""
    mark("start")
    in_c_with_the_interpreter()


@task(max_attempts=1)
def log_in(user: str, password: str, payload: dict | None = None) -> None:
    raise ValueError(f"{user} cannot log in with {password}")


ENTER = """
INSERT INTO app_place AS place (key, job_id) VALUES (%s, %s)
ON CONFLICT (key) DO UPDATE SET job_id = EXCLUDED.job_id WHERE place.job_id = EXCLUDED.job_id
"""


@task
def exclusive(key: str) -> None:
    """Take the place of a key, which another job must not have; this one may, if its worker was killed before."""
    job_id = current_job().id
    with connection.cursor() as cursor:
        cursor.execute(ENTER, [key, job_id])
        mark(key if cursor.rowcount else "another session is there")
    Place.objects.filter(key=key, job_id=job_id).delete()


@task
def count_running(most: int) -> None:
    """Mark it where more jobs of the queue are running than may."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pgqueue_jobs WHERE status = 'running' AND queue = (SELECT queue FROM pgqueue_jobs "
            "WHERE id = %s)",
            [current_job().id],
        )
        if cursor.fetchone()[0] > most:
            mark("too many")


@task(max_attempts=2, backoff=0)
def go_on(times: int, seconds: float = 0) -> None:
    """Run so often altogether, each time as a new job; fail once in the middle."""
    job = current_job()
    if Mark.objects.count() < times - 1:
        job.repeat(delay=seconds)
    mark()
    if job.attempt == 1 and Mark.objects.count() == 2:
        raise ValueError("not this time")


@task(keep_for=dt.timedelta(hours=1))
def kept_for_an_hour() -> None:
    pass


@task(max_attempts=3, backoff=0)
@new_side
def switched(label: str, until: int = 1) -> str:
    return act(label, until)


@task
@new_side
async def aswitched(label: str, until: int = 1) -> str:
    from asgiref.sync import sync_to_async

    return await sync_to_async(act)(label, until)


@task(atomic=True, max_attempts=3, backoff=0)
@new_side
def switched_atomic(label: str, until: int = 1) -> str:
    return act(label, until)


def act(label: str, until: int = 1) -> str:
    """Do what both sides of a switch do: leave a mark, and fail before attempt ``until``."""
    job = current_job() if is_in_job() else None
    attempt = job.attempt if job else 1
    Mark.objects.create(job_id=job.id if job else 0, attempt=attempt, label=label)
    if attempt < until:
        raise ValueError(f"not before attempt {until}")
    return f"done {label}"


@task
def record_when_told(path: str) -> str:
    """Wait for a file to be there."""
    while not os.path.exists(path):
        time.sleep(0.01)
    mark()
    return "told"


@task(atomic=True)
def record_atomic_when_told(path: str) -> str:
    return record_when_told(path)


@task
def report_until_told(path: str) -> None:
    """Tell of progress and metadata, go on when a file is there, tell of more."""
    report(0, path)
    while not os.path.exists(path):
        time.sleep(0.01)
    report(1000, path)


@task
async def areport_until_told(path: str) -> None:
    await asyncio.to_thread(report, 0, path)
    while not os.path.exists(path):  # noqa: ASYNC110, ASYNC240 - in a loop, where it is to cost little
        await asyncio.sleep(0.01)
    report(1000, path)


@task(atomic=True)
def report_atomic_until_told(path: str) -> None:
    report_until_told(path)


def report(done: int, path: str) -> None:
    current_job().update_metadata(path=path, done=done)
    for number in range(done + 1):
        current_job().set_progress(number, 1000, f"at {number}")


@task(max_attempts=1)
def wait_for(job_id: int) -> object:
    """Wait for another job, for longer than any test takes."""
    mark()
    return jobs.get(job_id).result(timeout=600)


@task
def add(first: int, second: int = 0) -> int:
    return first + second


@task(max_attempts=1)
def die_unless(label: str) -> str:
    """Die, unless a mark of this label says that the cause is gone."""
    if not Mark.objects.filter(label=label).exists():
        raise ValueError(label)
    return label
