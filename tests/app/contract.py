"""Tasks of Django's Tasks framework for the tests, in a module that is not looked for: workers find it by its path."""

import asyncio

from django_pgqueue import Discard, Snooze, current_job
from django_pgqueue.backend import job_options
from django_pgqueue.contrib.cutover import new_side
from tests.app.models import Mark

try:
    from django.tasks import task
except ImportError:  # before Django 6.0
    from django_tasks import task


@task
def add(*numbers: int, **more: int) -> int:
    return sum(numbers) + sum(more.values())


@task
async def aadd(*numbers: int, **more: int) -> int:
    return sum(numbers) + sum(more.values())


@task(queue_name="mail", priority=5)
def echo(value=None):
    return value


@task
def fail(message: str = "no luck") -> None:
    raise ValueError(message)


@task
async def afail(message: str = "no luck") -> None:
    raise ValueError(message)


@job_options(max_attempts=3, backoff=0)
@task
def fail_until(attempt: int) -> int:
    now = current_job().attempt
    if now < attempt:
        raise ValueError(f"not before attempt {attempt}")
    return now


@task(takes_context=True)
def tell(context, *args) -> dict:
    result = context.task_result
    return {
        "attempt": context.attempt,
        "status": str(result.status),
        "id": result.id,
        "args": result.args,
        "worker_ids": result.worker_ids,
    }


@task(takes_context=True)
async def atell(context, *args) -> dict:
    return tell.func(context, *args)


@task
def discard() -> None:
    raise Discard("no such order")


@task
def snooze() -> int:
    Mark.objects.create(job_id=current_job().id)
    if Mark.objects.filter(job_id=current_job().id).count() < 2:
        raise Snooze(0.01)
    return current_job().attempt


@job_options(atomic=True)
@task
def record_atomic(value=None):
    Mark.objects.create(job_id=current_job().id)
    return value


@task
def give_back_a_set():
    return {1, 2}


@task
def give_back_numbered():
    return {1: "one"}


@job_options(unique="key")
@task
def once(key: str) -> str:
    return key


NO_TASK = 5


@job_options(atomic=True)
@task
def record_atomic_at_length(length: int) -> str:
    Mark.objects.create(job_id=current_job().id)
    return "x" * length


@task
def log_in(user: str, password: str) -> None:
    pass


@task
def refuse(password: str) -> None:
    raise ValueError(f"{password} is not the password")


@task
async def arefuse(password: str) -> None:
    raise ValueError(f"{password} is not the password")


@task(backend="dummy")
def lent(value=None):
    return value


@task
async def asleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


@task(takes_context=True)
@new_side
def switched(context, label: str) -> int:
    Mark.objects.create(job_id=current_job().id, attempt=context.attempt, label=label)
    return context.attempt


@task
async def leave_a_cancel_behind() -> None:
    asyncio.current_task().cancel()
