"""Isolate suspects: jobs that may crash their process, and run alone.

A suspect was lost before. The first loss proves nothing: most jobs that are lost only ran next to the one that crashed,
or on a machine that went away. A job that is lost again may be the one; after the third loss it is in ``dead_jobs``,
and no other job should be.
"""

import logging
import time
from collections import deque
from collections.abc import Iterable

from django_pgqueue.log_lines import fields
from django_pgqueue.records import ClaimedJob
from django_pgqueue.states import MAX_LOST
from django_pgqueue.worker.in_flight import Held

logger = logging.getLogger("django_pgqueue.worker")

SUSPECT_PATIENCE_SECONDS = 10.0
"""Maximum wait of a suspect for the running jobs to end; then it starts while they run."""

ALONE_SECONDS = 60.0
"""Maximum time a suspect runs alone; then the child takes other jobs again: a long job must not stop a queue."""

CAREFUL_SECONDS = 60.0
"""Time in which a process claims one job at a time, if the one before it crashed with jobs that had not begun.

If it crashes before it has begun the one job that it has claimed, while none runs, then that job is the cause: its row
has values that no code expects. The loss counts as if it had run.
"""

APART_SECONDS = 1.0
"""Minimum run time of the last job before such a process claims another one: most jobs that crash do so sooner."""


class Isolation:
    """The suspects of one child, with their cells; not safe for two threads at once."""

    def __init__(self) -> None:
        self._waiting: deque[Held] = deque()
        self._running: int | None = None  # a cell
        self.until = 0.0  # the end of patience, or of being alone; monotonic

    def sort_out(self, fetched: list[Held]) -> list[Held]:
        suspects = [held for held in fetched if is_suspect(held[1])]
        if not suspects:
            return fetched
        if not self._waiting:
            self.until = time.monotonic() + SUSPECT_PATIENCE_SECONDS
        self._waiting.extend(suspects)
        return [held for held in fetched if not is_suspect(held[1])]

    def blocks_others(self) -> bool:
        return bool(self._waiting) or (self._running is not None and time.monotonic() < self.until)

    def waiting(self) -> int:
        return len(self._waiting)

    def next(self, *, others: int) -> Held | None:
        """Return the suspect to start now, if any; ``others``: number of other jobs that the child holds."""
        if not self._waiting or (others and time.monotonic() < self.until):
            return None
        cell, job = self._waiting.popleft()
        manner = "together with jobs that do not end" if others else "alone"
        logger.warning(
            "Job %s (%s) was lost %d times: it runs %s",
            job.id,
            job.task,
            job.lost,
            manner,
            extra=fields(job, lost=job.lost),
        )
        self._running, self.until = cell, time.monotonic() + ALONE_SECONDS
        return cell, job

    def ended(self, cells: Iterable[int]) -> None:
        if self._running is not None and self._running in cells:
            self._running = None
            self.until = time.monotonic() + SUSPECT_PATIENCE_SECONDS

    def withdraw(self) -> list[Held]:
        unrun = list(self._waiting)
        self._waiting.clear()
        return unrun


def is_suspect(job: ClaimedJob) -> bool:
    """Whether one more loss will be the job's last."""
    return job.lost >= MAX_LOST - 1
