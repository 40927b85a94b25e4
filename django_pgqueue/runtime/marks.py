"""Memory that a child shares with its supervisor: what it holds, what it has started, and until when it may start more.

When a child dies, the supervisor knows from here at once which jobs were started (their attempt counts) and which were
only fetched (it does not). Plain aligned stores, no lock: a process can be killed between any two instructions.
"""

import multiprocessing
import time
from collections.abc import Iterable
from multiprocessing.context import SpawnContext
from typing import Any

from django_pgqueue.base.records import ClaimedJob

CAPACITY = 4096
"""The most jobs a child may hold, finished ones that are not yet written included."""


class Marks:
    """One cell for each job a child holds. Written by the child, read by the supervisor; ``deadline`` the other way."""

    def __init__(self, context: SpawnContext | None = None) -> None:
        context = context or multiprocessing.get_context("spawn")
        self._open(
            (
                context.RawArray("q", CAPACITY),
                context.RawArray("b", CAPACITY),
                context.RawArray("q", 2),
                context.RawArray("d", 1),
            )
        )

    def _open(self, memory: tuple[Any, ...]) -> None:
        """Look at the memory by views: they are read and written at several times the speed of the arrays beneath."""
        self._memory = memory
        held, started, counts, deadline = (memoryview(array).cast("B") for array in memory)
        self._held = held.cast("q")
        self._started = started.cast("b")
        self._counts = counts.cast("q")  # turns, jobs finished
        self._deadline = deadline.cast("d")

    def __getstate__(self) -> tuple[Any, ...]:
        return self._memory

    def __setstate__(self, memory: tuple[Any, ...]) -> None:
        self._open(memory)

    def start(self, cell: int) -> None:
        """Note that the job of this cell is being called: from here on its attempt counts."""
        self._started[cell] = 1

    def hold(self, cells: Iterable[int], jobs: Iterable[ClaimedJob]) -> None:
        """Note what has been claimed, a cell for each job."""
        for cell, job in zip(cells, jobs, strict=True):
            self._started[cell] = 0
            self._held[cell] = job.id ^ job.lease_token

    def free(self, cells: Iterable[int]) -> None:
        for cell in cells:
            self._held[cell] = 0

    def held(self) -> set[int]:
        """Return the marks of all jobs the child holds."""
        return set(self._held)

    def started(self) -> set[int]:
        """Return the marks of all jobs that were started and whose outcome is not known to be written."""
        return {mark for mark, started in zip(self._held, self._started, strict=True) if mark and started}

    def turned(self) -> None:
        """Note that a turn of the pump is over: whatever was claimed in it is in the book."""
        self._counts[0] += 1

    def turns(self) -> int:
        return self._counts[0]

    def add_finished(self, number: int) -> None:
        """Note that so many jobs more have been run and written down."""
        self._counts[1] += number

    def finished(self) -> int:
        return self._counts[1]

    def extend(self, until: float) -> None:
        """Allow the child to start jobs until this instant of ``now()``."""
        self._deadline[0] = until

    def may_start(self) -> bool:
        """Whether the process's lease stands. A frozen process that thaws finds it has passed."""
        return now() < self._deadline[0]


def now() -> float:
    """Return seconds by a clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(CLOCK)


CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
