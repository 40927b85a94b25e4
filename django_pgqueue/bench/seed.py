"""The jobs of a bench. Each has a number, by which it is found on the board."""

import base64
import os
import random
import time
from collections.abc import Callable
from typing import Any

from django.db import transaction

from django_pgqueue import Task, enqueue_many
from django_pgqueue.bench import tasks
from django_pgqueue.bench.load import Load
from django_pgqueue.bench.room import BenchQueue

CHUNK = 10_000

Ids = tuple[int, int]
"""The first and the last id of jobs that were enqueued together."""


class Seed:
    """Enqueues what a load says."""

    def __init__(self, load: Load, room: BenchQueue) -> None:
        self.load = load
        self.room = room
        task: Task[..., Any] = tasks.awork if load.is_async else tasks.work
        self.task = task.using(keep=load.history)
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
        """Enqueue jobs that sleep equally long."""
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
        ids = enqueue_many(self.task, calls)
        self.room.first_id = self.room.first_id or ids[0]
        return ids
