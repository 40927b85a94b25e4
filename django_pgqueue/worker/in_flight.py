"""Jobs that are claimed and whose outcome is not written yet.

Each job has a cell, the number of its place in the memory that the child shares with its supervisor. Its outcome is
unwritten, perhaps blocked because another session has locked its row, and written; then the cell is free.
"""

import itertools
import logging
import math
import time
from collections.abc import Collection, Sequence

from django.db import Error

from django_pgqueue import registry
from django_pgqueue.db.errors import primary
from django_pgqueue.exceptions import InvalidArguments
from django_pgqueue.jobs.failure import error_entry
from django_pgqueue.jobs.redaction import scrubber_of
from django_pgqueue.log_lines import fields
from django_pgqueue.records import ClaimedJob, Fate, Outcome
from django_pgqueue.states import DeathReason
from django_pgqueue.worker.shared_state import CAPACITY, SharedState

logger = logging.getLogger("django_pgqueue.worker")

Held = tuple[int, ClaimedJob]  # the cell, and the job in it

BLOCKED_SECONDS = 0.1  # between tries at an outcome whose row another session has locked


class InFlight:
    """Kept by the consumer; not safe for two threads at once."""

    def __init__(self, shared: SharedState) -> None:
        self.unwritten: dict[int, Outcome] = {}  # to write, by cell
        self._shared = shared
        self._free = list(range(CAPACITY))
        self._blocked: dict[int, Outcome] = {}  # by cell
        self.blocked_until = math.inf  # when to try those again, monotonic
        self._abandoned = 0  # outcomes that cannot be written at all; held until this process ends

    def add(self, jobs: Sequence[ClaimedJob]) -> list[Held]:
        """Note claimed jobs, all at once: none may start while another is not in the shared state."""
        cells = [self._free.pop() for _ in jobs]
        self._shared.hold(cells, jobs)
        return list(zip(cells, jobs, strict=True))

    def free(self) -> int:
        return len(self._free)

    def held(self) -> int:
        return CAPACITY - len(self._free) - self._abandoned

    def outstanding(self) -> int:
        return self.held() - len(self.unwritten) - len(self._blocked)

    def batch(self, most: int) -> dict[int, Outcome]:
        """Return the outcomes to write now, one for each job: an old run of a job may end together with the new one."""
        if time.monotonic() >= self.blocked_until:
            self.unwritten |= self._blocked
            self._blocked, self.blocked_until = {}, math.inf
        batch = dict(itertools.islice(self.unwritten.items(), most))
        cells = {outcome.job.id: cell for cell, outcome in batch.items()}
        return batch if len(cells) == len(batch) else {cell: batch[cell] for cell in cells.values()}

    def resolve(self, batch: dict[int, Outcome], *, locked: Collection[int]) -> Collection[Outcome]:
        """Forget and return outcomes that were written or never can be; put aside the jobs whose ids are ``locked``."""
        for cell in batch:
            del self.unwritten[cell]
        if locked:
            blocked = {cell: outcome for cell, outcome in batch.items() if outcome.job.id in locked}
            batch = {cell: outcome for cell, outcome in batch.items() if cell not in blocked}
            self._blocked |= blocked
            self.blocked_until = time.monotonic() + BLOCKED_SECONDS
        self._shared.free(batch)
        self._free.extend(batch)
        return batch.values()

    def abandon(self, cell: int) -> None:
        """Give up writing an outcome; its job is left to the lease."""
        del self.unwritten[cell]
        self._abandoned += 1


def in_place_of(outcome: Outcome, error: Error) -> Outcome | None:
    """Return the outcome that says that another could not be recorded; None if it is that one which is refused."""
    job = outcome.job
    scrub = scrubber_of(registry.find(job.task), job)
    logger.error(
        "The outcome of job %s (%s) cannot be written: %s",
        job.id,
        job.task,
        scrub(primary(error)),
        extra=fields(job, outcome=outcome.fate.word),
    )
    if "refused" in (outcome.error or {}):
        return None
    refused = InvalidArguments(f"The outcome was refused by the database: {primary(error)}")
    story = error_entry(refused, scrub) | {"refused": outcome.fate.name.lower()}
    return Outcome(job, Fate.DIED, reason=DeathReason.DISCARDED, error=story)
