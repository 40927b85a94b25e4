"""Progress and metadata of running jobs, on the way from their slots to the consumer, which writes their rows.

A job may report as often as it likes: only the latest report counts, and it is written once a second. An unwritten
report at the end of the run is written before its outcome, in the same transaction.
"""

import functools
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from django_pgqueue.db.connections import PendingResult, QueueConnection
from django_pgqueue.jobs import context
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.records import Outcome
from django_pgqueue.worker.shared_state import SharedState

PAUSE_SECONDS = 1.0
"""Minimum interval between two writes for one job; the first is made at once."""

AT_ONCE = 500  # maximum number of runs that go on to write at once, in addition to those that end


@dataclass(frozen=True)
class SentUpdates:
    runs: Sequence[CurrentJob]
    ended: Sequence[CurrentJob]  # those of the runs for which there is no later
    answer: PendingResult

    @functools.cached_property
    def written(self) -> frozenset[int]:
        """The ids of the jobs whose rows have them. Waits for the answer."""
        return frozenset(job_id for (job_id,) in self.answer.fetchall())

    def missed(self) -> frozenset[int]:
        """Return the ids of the jobs that have ended and whose rows could not be written; waits only if any ended."""
        return frozenset(run.id for run in self.ended) - self.written if self.ended else frozenset()


class PendingUpdates:
    """Reports that are not written yet. ``tell`` may be called from any thread, all else by the consumer only."""

    def __init__(self, ring: Callable[[], None], shared: SharedState) -> None:
        self._ring = ring  # wakes the consumer
        self._shared = shared
        self._told: deque[CurrentJob] = deque()
        self._pending: dict[int, CurrentJob] = {}  # by run_id
        self._sent: list[CurrentJob] = []  # whose news are on their way

    def tell(self, current: CurrentJob) -> None:
        self._told.append(current)
        self._ring()

    def wait_until(self) -> float:
        if self._told:
            return 0.0
        return min((run.written_at + PAUSE_SECONDS for run in self._pending.values()), default=math.inf)

    def send(self, database: QueueConnection, outcomes: Collection[Outcome]) -> SentUpdates | None:
        while self._told:
            run = self._told.popleft()
            self._pending[run.run_id] = run
        if not self._pending:
            return None
        now, ended = time.monotonic(), {outcome.job.run_id for outcome in outcomes}
        last = [run for run_id, run in self._pending.items() if run_id in ended]  # there is no later for them
        due = (
            run
            for run_id, run in self._pending.items()
            if run_id not in ended and now >= run.written_at + PAUSE_SECONDS
        )
        self._sent = [*last, *itertools.islice(due, AT_ONCE)]
        return SentUpdates(self._sent, last, context.send_updates(database, self._sent)) if self._sent else None

    def took(self, sent: SentUpdates | None) -> None:
        """Process the answer. Reports on locked rows are sent again; runs of jobs that have no row are forgotten."""
        if sent is None:
            return
        now = time.monotonic()
        for run in sent.runs:
            run.written_at = now
            if run.id in sent.written:
                del self._pending[run.run_id]
            elif run.ended is not None or run.run_id not in self._shared.held():  # by finish_job(), or at its end
                del self._pending[run.run_id]
                run.tell = None

    def forget(self) -> None:
        """Give up the reports that were sent last. Later ones are still written."""
        for run in self._sent:
            self._pending.pop(run.run_id, None)
