"""Tasks, and what they know of their jobs."""

import datetime as dt
from typing import assert_type

from django_pgqueue import (
    CurrentJob,
    Discard,
    JobContext,
    Limit,
    Retry,
    Snooze,
    Task,
    TaskOptions,
    Unique,
    current_job,
    exponential,
    is_in_job,
    once,
    periodic,
    task,
)


@task
def pack(order_id: int, *, gift: bool = False) -> str:
    return f"order {order_id}{' with a ribbon' if gift else ''}"


@task(queue="mail", max_attempts=8, backoff=lambda attempt: 2.0**attempt, unique=Unique(["order_id"], until="start"))
async def write(order_id: int) -> None:
    job = current_job()
    job.set_progress(1, 2, "half of it")
    job.update_metadata(order=order_id)
    if job.is_kill_requested:
        raise Discard("no longer wanted")
    if job.attempt < job.max_attempts:
        raise Snooze(delay=60) if job.queue == "mail" else Retry(delay=dt.timedelta(minutes=1))
    job.repeat(delay=dt.timedelta(hours=1))


@task
async def tally(order_id: int) -> dict[str, int]:
    return {str(order_id): 1}


def longer_when_busy(attempt: int, error: Exception) -> float:
    return 60.0 * attempt if isinstance(error, ConnectionError) else 10.0


@periodic("@daily")
@task(discard_on=(LookupError, "shop.errors.Refused"))
def clean() -> None: ...


assert_type(clean, Task[[], None])
assert_type(pack(1, gift=True), str)
packing: Task[..., str] = pack
task(backoff=exponential(base=3, longest=600, jitter=0.5), max_snoozes=10, capture_logs="INFO")
task(backoff=lambda attempt, error: 60.0 if isinstance(error, LookupError) else float(attempt))
task(backoff=longer_when_busy)
task(backoff=dt.timedelta(minutes=1))
task(backoff="1m")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
task(discard_on=LookupError)
task(discard_on=KeyboardInterrupt)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
task(unique=True)
task(limit=Limit("order_id", running=3, strict=True))
task(limit=[Limit(group="orders")])
task(unique="order_id")
task(unique=Unique((), hold=dt.timedelta(hours=1), on_conflict="later"))
task(backof=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
task(run_at=dt.datetime.now(dt.UTC))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
pack("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
periodic("@daily", catch_up="allways")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def decide() -> None:
    periodic("@daily", priority=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    exponential(factor=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Retry(delay="1m")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Snooze()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def refused() -> None:
    Limit("order_id", runing=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    pack.using(limit=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Unique("order_id", until="strat")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pack.using(on_conflict="replcae")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@task(takes_context=True)
def send(context: JobContext, order_id: int, *, gift: bool = False) -> str:
    assert_type(context.job, CurrentJob)
    return f"{order_id} {context.attempt} {gift}"


@task(takes_context=True, queue="mail")
async def asend(context: JobContext, order_id: int) -> int:
    return context.attempt + order_id


def tell() -> None:
    assert_type(send(1), str)
    send.enqueue(1, gift=True)
    send.enqueue("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    asend.bind(1, 2)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    task(takes_context=True)(clean.func)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(is_in_job(), bool)
    assert_type(current_job(), CurrentJob)
    assert_type(current_job().idempotency_key, str)
    assert_type(current_job().slot, int | None)
    assert_type(once("paid:17"), bool)
    current_job().set_progress("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def hurry() -> None:
    assert_type(await write(1), None)


mail_task = task(queue="mails", max_attempts=8)


@mail_task
def send_receipt(order_id: int) -> str:
    return str(order_id)


@mail_task(timeout=900, unique="issue")
def send_newsletter(issue: int) -> None: ...


@mail_task(takes_context=True)
def send_reminder(context: JobContext, order_id: int) -> int:
    return context.attempt + order_id


common: TaskOptions = {"queue": "mails", "timeout": 300}


@task(**common)
def send_invoice(order_id: int) -> None: ...


def mail() -> None:
    periodic("@weekly", name="weekly", timezone=dt.UTC)(send_receipt.using(priority=-10).bind(1))
    periodic("@weekly")(send_receipt.bind("1"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(send_receipt.enqueue(1).result(), str)
    assert_type(send_receipt.call(1), str)
    assert_type(tally.call(1), dict[str, int])
    assert_type(send_reminder.enqueue(1).result(), int)
    send_newsletter.enqueue("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    send_reminder.enqueue("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    send_invoice.enqueue("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    mail_task(run_at=dt.timedelta(1))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    task("emails")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
