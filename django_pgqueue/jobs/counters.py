"""Shared-memory counters of a process: written by the child, read by its supervisor, even after a kill.

Plain aligned stores: each number is whole, and what a reader sees of numbers that belong together may be a job apart.
Outcomes are counted by one thread, without a lock; enqueued jobs by any.
"""

import json
import multiprocessing
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from multiprocessing.context import SpawnContext
from typing import Any, Final

from django_pgqueue.jobs.stats import BOUNDS, SIZES, WIDTH

Kind = tuple[str, str]
"""Queue and task."""

ENQUEUED: Final = WIDTH
"""Where it stands in a row, behind what the counts of the tables have too."""

ROW_WIDTH: Final = WIDTH + 1

ROWS = 500
"""Maximum number of pairs of queue and task with sums of their own; others share the first row, without names."""

NAME_BYTES = 1024

OTHERS: Final = ("", "")

HISTOGRAMS = CLAIM, ACK, BOTH, CLAIMED, ACKED = range(5)
"""Of the process: how long cycles took that did the one, the other or both, and how many jobs and outcomes they had."""

HISTOGRAM_WIDTH: Final = 1 + 1 + max(len(BOUNDS), len(SIZES))
"""A sum, and a number for each bucket: one bucket more than it has bounds."""


class ProcessCounters:
    """One row of sums for each queue and task, as ``jobs.stats`` lays them out, since the process began."""

    def __init__(self, context: SpawnContext | None = None) -> None:
        context = context or multiprocessing.get_context("spawn")
        self._open(
            (
                context.RawArray("d", ROWS * ROW_WIDTH),
                context.RawArray("b", ROWS * NAME_BYTES),
                context.RawArray("q", 1),
                context.RawArray("d", len(HISTOGRAMS) * HISTOGRAM_WIDTH),
            )
        )
        self._take(0, _name(*OTHERS))

    def _open(self, memory: tuple[Any, ...]) -> None:
        self._memory = memory
        sums, names, used, histograms = (memoryview(array).cast("B") for array in memory)
        self._sums = sums.cast("d")
        self._names = names
        self._used = used.cast("q")
        self._histograms = histograms.cast("d")
        self._rows: dict[Kind, memoryview[float]] = {}
        self._is_ours = True
        self._lock = threading.Lock()  # of rows that are new, and of what was enqueued

    def __getstate__(self) -> tuple[Any, ...]:
        return self._memory

    def __setstate__(self, memory: tuple[Any, ...]) -> None:
        self._open(memory)

    def row(self, queue: str, task: str) -> "memoryview[float]":
        """Return the sums to add to."""
        if (row := self._rows.get((queue, task))) is None:
            with self._lock:
                row = self._row(queue, task)
        return row

    def enqueued(self, queue: str, task: str, number: int) -> None:
        """Count jobs that were enqueued; from any thread."""
        if self._is_ours:
            with self._lock:
                self._row(queue, task)[ENQUEUED] += number

    def count_cycle(self, seconds: float, *, claimed: int | None, acked: int) -> None:
        """Count a cycle of the consumer.

        Args:
            claimed: how many jobs its claim has found; None: it has sent none.
            acked: how many outcomes it has written.
        """
        if claimed is not None:
            self._observe(CLAIMED, SIZES, claimed)
        if acked:
            self._observe(ACKED, SIZES, acked)
        if acked or claimed is not None:
            self._observe(ACK if claimed is None else BOTH if acked else CLAIM, BOUNDS, seconds)

    def disown(self) -> None:
        """Count nothing more in a copy of this process that a job has made by fork, and that shares the memory."""
        self._is_ours = False

    def rows(self) -> Iterator[tuple[str, str, list[float]]]:
        """Read the sums of each queue and task; those without any are left out."""
        for place in range(self._used[0]):
            if any(sums := list(self._at(place))):
                name = bytes(self._names[place * NAME_BYTES : (place + 1) * NAME_BYTES]).rstrip(b"\0")
                queue, task = json.loads(name)
                yield queue, task, sums

    def histograms(self) -> list[list[float]]:
        """Read each of them: its sum, then how many there are in each bucket."""
        return [list(self._histograms[which * HISTOGRAM_WIDTH : (which + 1) * HISTOGRAM_WIDTH]) for which in HISTOGRAMS]

    def _observe(self, which: int, bounds: Sequence[float], value: float) -> None:
        first = which * HISTOGRAM_WIDTH
        self._histograms[first] += value
        self._histograms[first + 1 + bisect_left(bounds, value)] += 1

    def _at(self, place: int) -> "memoryview[float]":
        return self._sums[place * ROW_WIDTH : (place + 1) * ROW_WIDTH]

    def _row(self, queue: str, task: str) -> "memoryview[float]":
        """Find a row, or take one; the lock is held."""
        if (row := self._rows.get((queue, task))) is None:
            place = self._place(queue, task)
            row = self._at(place)
            if place:  # of those that find no room there may be any number
                self._rows[queue, task] = row
        return row

    def _place(self, queue: str, task: str) -> int:
        """Return the next free row, whose name stands there before a reader may look at it."""
        place = self._used[0]
        if place == ROWS or len(name := _name(queue, task)) > NAME_BYTES:
            return 0
        self._take(place, name)
        return place

    def _take(self, place: int, name: bytes) -> None:
        self._names[place * NAME_BYTES : place * NAME_BYTES + len(name)] = name
        self._used[0] = place + 1


def _name(queue: str, task: str) -> bytes:
    return json.dumps([queue, task], ensure_ascii=False).encode()
