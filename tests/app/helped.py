"""Tasks for the tests of ``django_pgqueue.testing``."""

import datetime as dt

from django.core.cache import cache
from django.db import connection, transaction
from django.db.models.functions import Now
from django.utils import timezone, translation

from django_pgqueue import Discard, JobContext, Limit, Retry, Snooze, Unique, current_job, task
from tests.app.models import Mark


def mark(label: str) -> None:
    Mark.objects.create(job_id=current_job().id, attempt=current_job().attempt, label=label)


def database_now() -> dt.datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        return cursor.fetchone()[0]


@task
def note(label: str, *, times: int = 1, password: str = "") -> str:
    mark(label)
    return label * times


@task
async def anote(label: str) -> str:
    await Mark.objects.acreate(job_id=current_job().id, label=label)
    return label


@task(takes_context=True, atomic=True)
def note_context(context: JobContext, label: str, *, times: int = 1) -> tuple[int, str]:
    Mark.objects.create(job_id=context.job.id, attempt=context.attempt, label=label)
    return context.attempt, label * times


@task(takes_context=True)
async def anote_context(context: JobContext, label: str) -> tuple[int, str]:
    await Mark.objects.acreate(job_id=context.job.id, attempt=context.attempt, label=label)
    return context.attempt, label


@task(atomic=True, max_attempts=2, backoff=5)
def note_atomic(label: str, *, fails: bool = False) -> None:
    mark(label)
    if fails:
        raise ValueError(label)


@task(max_attempts=3, backoff=60)
def fail(label: str = "") -> None:
    mark(label)
    raise ValueError(f"no luck with {label}")


@task(max_attempts=3, backoff=60)
async def afail(label: str = "") -> None:
    await Mark.objects.acreate(job_id=current_job().id, label=label)
    raise ValueError(f"no luck with {label}")


@task(max_attempts=3, backoff=60)
def break_transaction() -> None:
    mark("before")
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 / 0")


@task(discard_on=LookupError)
def give_up() -> None:
    raise LookupError("no such order")


@task
def discard() -> None:
    raise Discard("no such order")


@task
def come_back(seconds: float) -> None:
    if Mark.objects.filter(job_id=current_job().id).exists():
        return
    mark("came")
    raise Snooze(seconds)


@task(max_attempts=2)
def ask_again(seconds: float) -> None:
    raise Retry(seconds, "busy")


@task(max_snoozes=1)
def snooze_once() -> None:
    raise Snooze(60, "not yet")


@task
def family(generations: int) -> None:
    mark(str(generations))
    if generations:
        family.enqueue(generations - 1)


@task
def family_on_commit() -> None:
    with transaction.atomic():
        transaction.on_commit(lambda: note.enqueue("by on_commit"))
        note.bind("by enqueue_on_commit").enqueue_on_commit(using="default")


@task(max_attempts=2, backoff=60)
def break_after_commit() -> None:
    mark("written")
    transaction.on_commit(lambda: 1 / 0)


@task
def be_durable() -> None:
    with transaction.atomic(durable=True):
        mark("durable")


@task
def look_at_clocks() -> None:
    Mark.objects.create(job_id=0, label=str(timezone.now()))
    Mark.objects.update(at=Now())


@task
def repeat_daily() -> None:
    mark("again")
    current_job().repeat(delay=dt.timedelta(days=1))


@task
def tell() -> None:
    translation.activate("de")
    current_job().set_progress(1, 2, "half")
    current_job().update_metadata(seen=True)
    cache.set("told", True)


@task
def stop_the_tests() -> None:
    raise KeyboardInterrupt


@task(limit=Limit())
def one_by_one(label: str) -> None:
    mark(label)


@task
async def enqueue_async(label: str) -> None:
    await note.aenqueue(label)


@task(sensitive_parameters=("card",))
def pay(card: str, amount: int) -> None:
    pass


@task(unique=Unique((), until="start"), backoff=60)
def fail_beside_another() -> None:
    if Mark.objects.exists():
        return
    mark("first")
    fail_beside_another.enqueue()
    raise ValueError("another is there")


@task
def enqueue_once_an_hour(label: str) -> None:
    note.using(unique_key="k", unique=Unique(hold=dt.timedelta(hours=1))).enqueue(label)


@task
def break_robustly() -> None:
    transaction.on_commit(lambda: 1 / 0, robust=True)
    transaction.on_commit(lambda: note.enqueue("after"))
