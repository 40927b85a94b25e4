"""Memory that a child shares with its supervisor: what it holds, what it has started, and until when it may start more.

When a child dies, the supervisor knows from here at once which jobs were started (their attempt counts) and which were
only fetched (it does not). Plain aligned stores, no lock: a process can be killed between any two instructions.
"""

import multiprocessing
import time
from collections.abc import Iterable
from multiprocessing.context import SpawnContext

from django_pgqueue.base.records import ClaimedJob

CAPACITY = 4096
"""The most jobs a child may hold, finished ones that are not yet written included."""


class Marks:
    """One cell for each job a child holds. Written by the child, read by the supervisor; ``deadline`` the other way."""

    def __init__(self, context: SpawnContext | None = None) -> None:
        context = context or multiprocessing.get_context("spawn")
        self._held = context.RawArray("q", CAPACITY)
        self._started = context.RawArray("b", CAPACITY)
        self._deadline = context.RawValue("d", 0.0)
        self._turns = context.RawValue("q", 0)
        self._finished = context.RawValue("q", 0)

    def start(self, cell: int) -> None:
        """Note that the job of this cell is being called: from here on its attempt counts."""
        self._started[cell] = 1

    def hold(self, cell: int, job: ClaimedJob) -> None:
        self._started[cell] = 0
        self._held[cell] = job.mark

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
        self._turns.value += 1

    def turns(self) -> int:
        return int(self._turns.value)

    def add_finished(self, number: int) -> None:
        """Note that so many jobs more have been run and written down."""
        self._finished.value += number

    def finished(self) -> int:
        return int(self._finished.value)

    def extend(self, until: float) -> None:
        """Allow the child to start jobs until this instant of ``now()``."""
        self._deadline.value = until

    def may_start(self) -> bool:
        """Whether the process's lease stands. A frozen process that thaws finds it has passed."""
        return bool(now() < self._deadline.value)


def now() -> float:
    """Return seconds by a clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(CLOCK)


CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
