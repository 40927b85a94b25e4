"""Memory in which a child sums up what it has done, and its supervisor reads it: also when the child has been killed.

Plain aligned stores, no lock: each number is whole, and what a reader sees of numbers that belong together may be a
job apart. Written by one thread.
"""

import json
import multiprocessing
from collections.abc import Iterator
from multiprocessing.context import SpawnContext
from typing import Any

from django_pgqueue.lifecycle.stats import WIDTH

ROWS = 500
"""Of so many queues and tasks the sums are kept apart; all others share the first row, which has no names."""

NAME_BYTES = 1024

OTHERS = ("", "")


class Meter:
    """One row of sums for each queue and task, as ``lifecycle.stats`` lays them out, since the process began."""

    def __init__(self, context: SpawnContext | None = None) -> None:
        context = context or multiprocessing.get_context("spawn")
        self._open(
            (
                context.RawArray("d", ROWS * WIDTH),
                context.RawArray("b", ROWS * NAME_BYTES),
                context.RawArray("q", 1),
            )
        )
        self._take(0, _name(*OTHERS))

    def _open(self, memory: tuple[Any, ...]) -> None:
        self._memory = memory
        sums, names, used = (memoryview(array).cast("B") for array in memory)
        self._sums = sums.cast("d")
        self._names = names
        self._used = used.cast("q")
        self._rows: dict[tuple[str, str], memoryview[float]] = {}

    def __getstate__(self) -> tuple[Any, ...]:
        return self._memory

    def __setstate__(self, memory: tuple[Any, ...]) -> None:
        self._open(memory)

    def row(self, queue: str, task: str) -> "memoryview[float]":
        """Return the sums to add to."""
        if (row := self._rows.get((queue, task))) is None:
            row = self._rows[queue, task] = self._at(self._place(queue, task))
        return row

    def rows(self) -> Iterator[tuple[str, str, list[float]]]:
        """Read the sums of each queue and task; those without any are left out."""
        for place in range(self._used[0]):
            if any(sums := list(self._at(place))):
                name = bytes(self._names[place * NAME_BYTES : (place + 1) * NAME_BYTES]).rstrip(b"\0")
                queue, task = json.loads(name)
                yield queue, task, sums

    def _at(self, place: int) -> "memoryview[float]":
        return self._sums[place * WIDTH : (place + 1) * WIDTH]

    def _place(self, queue: str, task: str) -> int:
        """Return the next free row, whose name stands there before a reader may look at it."""
        name, place = _name(queue, task), self._used[0]
        if place == ROWS or len(name) > NAME_BYTES:
            return 0
        self._take(place, name)
        return place

    def _take(self, place: int, name: bytes) -> None:
        self._names[place * NAME_BYTES : place * NAME_BYTES + len(name)] = name
        self._used[0] = place + 1


def _name(queue: str, task: str) -> bytes:
    return json.dumps([queue, task], ensure_ascii=False).encode()
