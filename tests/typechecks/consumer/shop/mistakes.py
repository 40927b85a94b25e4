"""Mistakes: each is found at the line on which it is made."""

from django.dispatch import receiver

from django_pgqueue import Limit, Unique, current_job, enqueue_many, jobs, periodic, queues, task
from django_pgqueue.conf import PgQueueSettings
from django_pgqueue.signals import JobEvent, job_died
from shop.tasks import pack, tally


def choices() -> None:
    Unique("order_id", until="strat")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Unique("order_id", on_conflict="replcae")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    periodic("@daily", catch_up="allways")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pack.using(on_conflict="replcae")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def values() -> None:
    Limit("account_id", running="four")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Limit("account_id", runing=4)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def calls() -> None:
    pack.bind("seven")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pack.bind(7, gifft=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    pack.bind()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    enqueue_many([(7,), (8,)])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    enqueue_many([pack, tally])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    enqueue_many(pack.bind(7))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pack.enqueue_many([7, 8])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]


def options() -> None:
    task(prioritty=10)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    task(queue=7)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    pack.using(prioritty=10)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    pack.using(queue=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


mail_task = task(queue="mails")
mail_task(timeuot=900)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


@task(max_attempt=3)  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
def misspelt(order_id: int) -> None: ...


def results() -> None:
    name: int = pack.enqueue(7).result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    counts: list[int] = tally.bind(7).enqueue().result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(name, counts)


async def results_later() -> None:
    name: int = await (await pack.aenqueue(7)).aresult(timeout=5)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(name)


def jobs_within() -> None:
    print(current_job().x)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
    current_job().metadata["x"] = 1  # type: ignore[index]  # pyright: ignore[reportIndexIssue]


def actions() -> None:
    jobs.kill("7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    queues.limit("mails", rate=60, period=60)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


settings: PgQueueSettings = {"RETENTION_DAY": 7}  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportAssignmentType]
setting: PgQueueSettings = {"RETENTION_DAYS": "7"}  # type: ignore[typeddict-item]  # pyright: ignore[reportAssignmentType]
defaults: PgQueueSettings = {"TASK_DEFAULTS": {"timeuot": 300}}  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportAssignmentType]


# No mistake


@receiver(job_died, sender=pack)
def tell_support(event: JobEvent, **_: object) -> None:
    print(event.id, event.reason)
