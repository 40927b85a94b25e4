"""A producer: enqueues as an application does, some of it in transactions that roll back, and writes down which.

A process of its own, started by ``soak``; it ends when its standard input does. Before a transaction ends it writes
down what that is to contain, afterwards that the answer has come. Where none came, the transaction's witness tells.
"""

import argparse
import json
import os
import random
import select
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import django
from django.db import Error, OperationalError, connection, transaction

from tests.chaos.cases import Cases

BACKLOG = 30_000
"""Jobs that may lie about before producers pause."""

KEYS = 10**9
"""Number of keys that each producer has of its own."""


@dataclass
class Group:
    """Jobs of one task that are enqueued by one call."""

    task: Any
    calls: list[tuple[Any, ...]]  # the key first
    is_undone: bool = False  # in a savepoint that is rolled back

    def entries(self) -> Iterator[list[Any]]:
        options = self.task.options
        for key, *_ in self.calls:
            yield [key, self.task.func.__name__, options.attempts_allowed, options.keep_result, self.is_undone]

    def enqueue(self) -> None:

        if len(self.calls) == 1:
            self.task.enqueue(*self.calls[0])
        else:
            self.task.enqueue_many(self.calls)


class RolledBackError(Exception):
    """Makes a transaction roll back, as any error of an application does."""


class Producer:
    """Enqueues at a rate.

    Args:
        number: from 1; says which keys and batches are its own.
        rate: jobs in a second, on average; what was missed while the database was away is caught up with.
        hog_seconds: how long a job may keep its process from anything else.
    """

    def __init__(self, number: int, folder: Path, *, rate: float, seed: str, hog_seconds: float) -> None:
        self.produced = 0
        self._rate = rate
        self._hog_seconds = hog_seconds
        draw = random.Random(f"{seed}/cases {number}")
        self._cases = Cases(folder / f"calls-{number}.jsonl", draw, first_flow=number * KEYS)
        self._random = random.Random(f"{seed}/producer {number}")
        self._next_key = self._next_batch = number * KEYS
        self._file = os.open(folder / f"producer-{number}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._look_at = 0.0
        self._is_crowded = False

    def run(self) -> None:
        """Produce until the standard input ends."""
        began, pause = time.monotonic(), 0.0
        while not select.select([sys.stdin], [], [], pause)[0]:
            pause = 0.05
            try:
                self._cases.go_on()
                if self.produced < (time.monotonic() - began) * self._rate and not self._must_wait():
                    self.produce()
                    pause = 0.0
            except Error:
                connection.close()  # the next batch opens another

    def produce(self) -> None:
        """Enqueue one batch, and write down what has become of it."""
        shape = self._random.choices(("alone", "committed", "rolled back"), (3, 9, 1))[0]
        groups = [self._group() for _ in range(1 if shape == "alone" else self._random.randint(1, 4))]
        batch, self._next_batch = self._next_batch, self._next_batch + 1
        if shape != "alone":
            for group in groups:
                group.is_undone = self._random.random() < 0.1
        entries = [entry for group in groups for entry in group.entries()]
        self.produced += len(entries)
        rolls_back = shape == "rolled back"
        self._write(batch=batch, in_transaction=shape != "alone", rolls_back=rolls_back, jobs=entries)
        if shape == "alone":
            groups[0].enqueue()
        else:
            self._transact(batch, groups, rolls_back=rolls_back)
        self._write(answered=batch)

    def _transact(self, batch: int, groups: list[Group], *, rolls_back: bool) -> None:
        from tests.chaos.models import Witness

        with suppress(RolledBackError), transaction.atomic():
            Witness.objects.create(batch=batch)
            for group in groups:
                with suppress(RolledBackError), transaction.atomic(savepoint=group.is_undone):
                    group.enqueue()
                    if group.is_undone:
                        raise RolledBackError
            if rolls_back:
                raise RolledBackError
            if transaction.get_rollback():
                raise OperationalError("The connection broke while a savepoint was rolled back; Django says no word")

    def _group(self) -> Group:
        """Choose a task, how many jobs of it, when they are due, and what they are called with."""
        from tests.chaos import tasks

        draw = self._random
        name = draw.choices(list(TASKS), list(TASKS.values()))[0]
        options: dict[str, Any] = {"queue": draw.choice(QUEUES), "priority": draw.randint(-2, 2)}
        if name == "plain":
            options["keep_result"] = draw.random() < 0.8
        if draw.random() < 0.1:
            options["delay"] = draw.uniform(0.1, 5)
        size = (
            1
            if name == "hog" or draw.random() < 0.4
            else draw.randint(2, 120 if name in ("plain", "coroutine") else 20)
        )
        return Group(getattr(tasks, name).using(**options), [self._call(name) for _ in range(size)])

    def _call(self, name: str) -> tuple[Any, ...]:
        key, self._next_key = self._next_key, self._next_key + 1
        match name:
            case "flaky":
                return key, self._random.randint(1, 2)
            case "later":
                return key, time.time() + self._random.uniform(0, 1)
            case "doomed" | "discarded":
                return (key,)
            case "hog":
                return key, self._random.uniform(min(3.0, self._hog_seconds), self._hog_seconds)
        return key, self._seconds()

    def _seconds(self) -> float:
        """Say how long a job lasts: most no time, some so long that they are met by a fault, or outlast a lease."""
        draw = self._random.random()
        if draw < 0.985:
            return 0.0
        return self._random.uniform(0.01, 0.3) if draw < 0.999 else self._random.uniform(0.5, 6.0)

    def _must_wait(self) -> bool:
        """Whether so much is left to do that more would only wait; looks once a second."""
        if time.monotonic() >= self._look_at:
            with connection.cursor() as cursor:
                cursor.execute("SELECT count(*) FROM pgqueue_jobs WHERE queue = ANY (%s)", [list(QUEUES)])
                self._is_crowded = cursor.fetchone()[0] > BACKLOG
            self._look_at = time.monotonic() + 1.0
        return self._is_crowded

    def _write(self, **entry: Any) -> None:
        os.write(self._file, (json.dumps(entry) + "\n").encode())


QUEUES = ("default", "emails", "reports")
TASKS = {
    "plain": 40,
    "coroutine": 15,
    "effect": 12,
    "once": 10,
    "flaky": 8,
    "doomed": 4,
    "discarded": 3,
    "later": 4,
    "hog": 0.3,
}
"""How often each is chosen, by weight."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--hog-seconds", type=float, required=True)
    options = parser.parse_args()
    django.setup()
    Producer(
        options.number, options.folder, rate=options.rate, seed=options.seed, hog_seconds=options.hog_seconds
    ).run()


if __name__ == "__main__":
    main()
