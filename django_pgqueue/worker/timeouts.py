"""Interrupt the jobs of one process whose time limit has passed, or that were killed.

One thread, started for the first of them; for a job without a time limit nothing is done. A job that does not stop
is left to the supervisor, which sees in the shared memory that it still runs, even if this process hangs.
"""

import logging
import math
import threading
import time

from django_pgqueue.exceptions import JobKilled, JobTimeout
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.interrupts import Interrupts
from django_pgqueue.log_lines import fields
from django_pgqueue.records import ClaimedJob

logger = logging.getLogger("django_pgqueue.worker")

PATIENCE_SECONDS = 5.0
"""Maximum time for a job to end after it has been interrupted. Then it counts as one that does not stop."""

REPEAT_SECONDS = 2.0
"""Interval between interruptions meanwhile: some code swallows any exception."""

SOON_SECONDS = 0.05  # until an interruption that had no effect is tried again

Run = tuple[ClaimedJob, CurrentJob, Interrupts]  # in a slot


class Timeouts:
    def __init__(self, running: dict[int, Run]) -> None:
        self._running = running  # by cell; kept by the slots
        self._looks_at = math.inf  # when the thread will look again, monotonic
        self._woken = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def mind(self, current: CurrentJob) -> None:
        """See to it that a run is interrupted at its ``stop_at``; may be called from any thread."""
        if current.stop_at < self._looks_at:
            self._woken.set()
            if self._thread is None:
                self._start()

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._serve, name="pgqueue-limits", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system allows no more threads: the supervisor ends the process, if need be
                logger.exception("Time limits have no thread; the next run with one tries again")
            else:
                self._thread = thread

    def _serve(self) -> None:
        while True:
            self._woken.clear()
            self._looks_at = math.inf  # before looking: a job that begins from here on wakes this thread
            try:
                self._looks_at = self._look()
            except Exception:
                logger.exception("Time limits cannot be enforced; tried again in a moment")
                self._looks_at = time.monotonic() + REPEAT_SECONDS
            left = self._looks_at - time.monotonic()
            self._woken.wait(None if left == math.inf else max(left, 0.0))

    def _look(self) -> float:
        now = time.monotonic()
        runs = self._running.copy().values()
        for job, current, interrupts in runs:
            if current.stop_at <= now:
                _press(job, current, interrupts, now)
        return min((current.stop_at for _, current, _ in runs), default=math.inf)


def _press(job: ClaimedJob, current: CurrentJob, interrupts: Interrupts, now: float) -> None:
    if not current.interrupted_at:
        current.interrupted_at = now
        current.is_timed_out = not current.is_kill_requested
    if now - current.interrupted_at >= PATIENCE_SECONDS:
        current.stop_at = math.inf
        why = "though killed" if current.is_kill_requested else f"its {job.timeout_seconds} s are over"
        logger.error(
            "Job %s (%s) does not stop, %s: its process will be ended",
            *(job.id, job.task, why),
            extra=fields(job),
        )
    else:
        is_hit = interrupts.interrupt(current, JobKilled if current.is_kill_requested else JobTimeout)
        current.stop_at = now + (REPEAT_SECONDS if is_hit else SOON_SECONDS)
