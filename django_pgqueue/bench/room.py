"""The bench's place in the queue's tables: who may come in, its jobs, and that nothing is left behind."""

import base64
import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from django.db import transaction

from django_pgqueue.bench import tasks
from django_pgqueue.bench.report import QUEUE, BenchFailed, Load
from django_pgqueue.db.connections import QueueConnection, postgresql
from django_pgqueue.insights.overview import living_workers
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.models import DeadJob, Job, SucceededJob, Worker

if TYPE_CHECKING:
    from django_pgqueue import Task

MANY = 1000
BENCH_LOCK = 0x70677175_62656E63  # "pgqubenc"


class BenchQueue:
    def __init__(self, alias: str, *, is_shared: bool, other_workers: int) -> None:
        self.alias = alias
        self.is_shared = is_shared  # with jobs of others
        self.other_workers = other_workers  # worker processes of others that are alive
        self.first_id: int | None = None  # of all jobs of this bench

    def vacuum(self) -> None:
        """Remove what the last measurement has left, unless that would be work on other people's rows."""
        if not self.is_shared:
            with postgresql(self.alias).cursor() as cursor:
                cursor.execute("VACUUM pgqueue_jobs")

    def clear(self) -> None:
        """Remove every row of the bench, on a connection that nothing has been done to."""
        postgresql(self.alias).close()
        Job.objects.using(self.alias).filter(queue=QUEUE).delete()
        DeadJob.objects.using(self.alias).filter(queue=QUEUE).delete()
        if self.first_id is not None:  # by primary key: a history may be long, and has no index on queue
            SucceededJob.objects.using(self.alias).filter(id__gte=self.first_id, queue=QUEUE).delete()


@contextlib.contextmanager
def bench_queue(alias: str, *, beside_others: bool) -> Iterator[BenchQueue]:
    """Keep the bench's queue for one bench; remove all its rows at the end, also after an error.

    Raises BenchFailed, with nothing changed: other jobs, another bench, or workers that would take its jobs are there.
    """
    with alone(alias):
        is_shared = check_others(alias, beside_others=beside_others)
        check_rivals(alias)
        kept = BenchQueue(alias, is_shared=is_shared, other_workers=len(living(alias)))
        kept.clear()  # a bench that was killed has left something
        try:
            yield kept
        finally:
            kept.clear()
            kept.vacuum()


@contextlib.contextmanager
def alone(alias: str) -> Iterator[None]:
    """Hold a lock against other benches, in an open transaction without a snapshot: it ends with this process."""
    database = QueueConnection(alias, "bench lock")
    connection = database.autocommit()
    try:
        with connection.transaction():
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            row = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", [BENCH_LOCK]).fetchone()
            if not row or not row[0]:
                raise BenchFailed("Another pgqueue_bench measures this database. Wait for its end.")
            yield
    finally:
        database.close()


def check_others(alias: str, *, beside_others: bool) -> bool:
    """Return whether there are jobs of others; raise BenchFailed if the bench must not run next to them."""
    others = Job.objects.using(alias).exclude(queue=QUEUE)[: MANY + 1].count()
    if others and not beside_others:
        name = postgresql(alias).settings_dict["NAME"]
        raise BenchFailed(
            f"There are {f'more than {MANY:,}' if others > MANY else others} jobs in pgqueue_jobs of {name!r}. "
            f"With --yes the bench runs at the same time, on a queue of its own, {QUEUE!r}, and leaves them alone; but "
            "it takes processor time from everything else on this machine."
        )
    return bool(others)


def check_rivals(alias: str) -> None:
    """Raise BenchFailed if a living worker of others would take the bench's jobs."""
    rivals = [worker for worker in living(alias) if QueueSelector.of(worker.queues).among([QUEUE])]
    if rivals:
        raise BenchFailed(
            f"Workers that serve all queues would take the bench's jobs: {', '.join(map(str, rivals))}. Stop them, or "
            "start them with --queue and the names of their queues. A worker that was killed counts until its lease "
            "has run out."
        )


def living(alias: str) -> list[Worker]:
    """Return the worker processes that are not the bench's own."""
    return list(living_workers(alias).exclude(name=QUEUE))


CHUNK = 10_000

Ids = tuple[int, int]  # the first and the last id of jobs that were enqueued together


class Seed:
    def __init__(self, load: Load, room: BenchQueue) -> None:
        self.load = load
        self.room = room
        task: Task[..., Any] = tasks.awork if load.is_async else tasks.work
        self.task = task.using(keep_result=load.history)
        self._payload = base64.b64encode(os.urandom(load.payload_bytes)).decode()[: load.payload_bytes]
        self._random = random.Random(0)  # noqa: S311 - the same sleeps in each bench

    def backlog(self, numbers: range, progress: Callable[[float], None]) -> tuple[Ids, float]:
        """Enqueue the jobs of the load in the transaction that is open; return the seconds that the inserts took."""
        ends: list[int] = []
        took = 0.0
        for done in range(0, len(numbers), CHUNK):
            calls = [self._call(number) for number in numbers[done : done + CHUNK]]
            begun = time.perf_counter()
            ids = self._enqueue(calls)
            took += time.perf_counter() - begun
            ends = [*ends[:1], ids[0], ids[-1]]
            progress((done + len(calls)) / len(numbers))
        return (ends[0], ends[-1]), took

    def alike(self, numbers: range, *, seconds: float) -> Ids:
        ids = self._enqueue([(number, seconds) for number in numbers])
        return ids[0], ids[-1]

    def one(self, number: int) -> tuple[int, float]:
        """Enqueue one job that does nothing; return its id and when it was committed, on the monotonic clock."""
        committed: list[float] = []
        with transaction.atomic(using=self.room.alias):
            transaction.on_commit(lambda: committed.append(time.monotonic()), using=self.room.alias)
            handle = self.task.enqueue(number, 0.0)
        return handle.id, committed[0]

    def _call(self, number: int) -> tuple[int, float, str]:
        return number, round(self._random.uniform(*self.load.sleep_ms) / 1000, 6), self._payload

    def _enqueue(self, calls: list[Any]) -> list[int]:
        ids = [job.id for job in self.task.enqueue_many(calls)]
        self.room.first_id = self.room.first_id or ids[0]
        return ids
