"""Memory that a child shares with its supervisor: jobs held, jobs started, and the lease to start more.

When a child dies, the supervisor knows from here at once which jobs were started (their attempt counts) and which were
only fetched (it does not). Plain aligned stores, no lock: a process can be killed between any two instructions.
"""

import time
from collections.abc import Iterable
from multiprocessing import RawArray
from typing import Any

from django_pgqueue.records import ClaimedJob

CAPACITY = 4096
"""Maximum number of jobs a child may hold, finished ones that are not yet written included."""

FETCHED, RUNNING, ENDED = 0, 1, 2  # of a job that is held

LAYOUT = (("q", CAPACITY), ("b", CAPACITY), ("q", 7), ("d", 2), ("q", CAPACITY), ("d", CAPACITY))  # types and lengths


class SharedState:
    """One cell for each job a child holds. Written by the child, read by the supervisor; deadlines the other way."""

    def __init__(self) -> None:
        self._open(tuple(RawArray(code, size) for code, size in LAYOUT))

    def _open(self, memory: tuple[Any, ...]) -> None:
        """Look at the memory by views: they are read and written at several times the speed of the arrays beneath."""
        self._memory = memory
        held, started, counts, deadline, limited, limits = (memoryview(array).cast("B") for array in memory)
        self._held = held.cast("q")
        self._started = started.cast("b")
        self._counts = counts.cast(
            "q"
        )  # cycles, finished jobs, failures in a row, jobs with a time limit, end, quiet, left
        self._deadline = deadline.cast("d")  # of the lease; and when no job was queued, monotonic
        self._limited = limited.cast("q")  # the run_id of the last job in this cell that had a time limit
        self._limits = limits.cast("d")  # and when that passes, monotonic

    def __getstate__(self) -> tuple[Any, ...]:
        return self._memory

    def __setstate__(self, memory: tuple[Any, ...]) -> None:
        self._open(memory)

    def start(self, cell: int) -> None:
        """Note that the job of this cell is being called: from here on its attempt counts."""
        self._started[cell] = RUNNING

    def limit(self, cell: int, run_id: int, until: float) -> None:
        """Note the instant, monotonic, at which the job of this cell, which is being called, must be over.

        Under its run_id: the next job in this cell need not take it back.
        """
        self._limits[cell], self._limited[cell] = until, run_id
        self._counts[3] += 1

    def end(self, cell: int) -> None:
        self._started[cell] = ENDED

    def hold(self, cells: Iterable[int], jobs: Iterable[ClaimedJob]) -> None:
        for cell, job in zip(cells, jobs, strict=True):
            self._started[cell] = FETCHED
            self._held[cell] = job.id ^ job.lease_token

    def free(self, cells: Iterable[int]) -> None:
        for cell in cells:
            self._held[cell] = 0

    def held(self) -> set[int]:
        return set(self._held)

    def started(self) -> set[int]:
        """Return the run ids of all jobs that were started and whose outcome is not known to be written."""
        return self._those(RUNNING, ENDED)

    def unbegun(self) -> set[int]:
        return self._those(FETCHED)

    def running(self) -> set[int]:
        return self._those(RUNNING)

    def _those(self, *states: int) -> set[int]:
        return {run_id for run_id, state in zip(self._held, self._started, strict=True) if run_id and state in states}

    def busy(self) -> int:
        return self._started.tobytes().count(RUNNING)

    def overdue(self, at: float) -> set[int]:
        """Return the run ids of jobs that were in a slot past their time limit at an instant, monotonic."""
        if not self._counts[3]:
            return set()
        limits = zip(self._limited, self._limits, strict=True)
        return self.running() & {run_id for run_id, until in limits if until < at}

    def count_cycle(self) -> None:
        """Note that a cycle of the consumer is over: its claims are recorded."""
        self._counts[0] += 1

    def cycles(self) -> int:
        return self._counts[0]

    def end_cycles(self) -> None:
        """Note that the consumer has ended: all that it has claimed is settled, and its connection is closed."""
        self._counts[4] = 1

    def has_ended_cycles(self) -> bool:
        """Whether the consumer has ended. What ends the process earlier, with any exit code, ends it in the middle."""
        return self._counts[4] > 0

    def note_abandoned_threads(self, number: int) -> None:
        """Note the number of threads for sync code that jobs have left behind and that do not answer."""
        self._counts[6] = number

    def abandoned_threads(self) -> int:
        return self._counts[6]

    def set_quiet(self, is_quiet: bool) -> None:  # noqa: FBT001 - the value to set
        """Let the child claim nothing, or again."""
        self._counts[5] = is_quiet

    def is_quiet(self) -> bool:
        return self._counts[5] > 0

    def add_finished(self, number: int) -> None:
        self._counts[1] += number

    def finished(self) -> int:
        return self._counts[1]

    def note_failures(self, number: int) -> None:
        self._counts[2] = number

    def failures(self) -> int:
        return self._counts[2]

    def extend_lease(self, until: float) -> None:
        """Allow the child to start jobs until this instant of ``now()``."""
        self._deadline[0] = until

    def renew_lease(self, until: float) -> None:
        """Extend after a heartbeat; if the lease had lapsed meanwhile, the child first has to ``accept_lapse()``.

        Other workers may have run the jobs that it had fetched before, so none of them may be started. The sign of the
        deadline says so, which costs the check before each job nothing.
        """
        self._deadline[0] = until if self.is_lease_valid() else -until

    def cap_lease(self, until: float) -> None:
        """Let the lease end at this instant, if it would end later; one that has lapsed stays so."""
        deadline = self._deadline[0]
        self._deadline[0] = min(deadline, until) if deadline > 0 else max(deadline, -until)

    def has_lease_lapsed(self) -> bool:
        """Whether the lease was renewed after it had lapsed, and the child has not accepted that yet."""
        return self._deadline[0] < 0

    def accept_lapse(self) -> None:
        """Start jobs again: those fetched before the lapse were given back."""
        self._deadline[0] = abs(self._deadline[0])

    def note_empty(self, at: float) -> None:
        """Note that no job was queued at an instant, monotonic, for the process to save its own look."""
        self._deadline[1] = at

    def empty_at(self) -> float:
        return self._deadline[1]

    def is_lease_valid(self) -> bool:
        """Whether the process's lease is valid. In a frozen process that goes on it has passed."""
        return now() < self._deadline[0]


def now() -> float:
    """Return seconds by a clock that goes on while the machine sleeps, where there is one."""
    return time.clock_gettime(CLOCK)


CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
