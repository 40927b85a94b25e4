"""Jobs that are claimed and whose outcome is not written yet.

Each job has a cell, the number of its place in the memory that the child shares with its supervisor. Its outcome is
unwritten, perhaps blocked because another session has locked its row, or put off because its row cannot be written, and
written; then the cell is free.
"""

import itertools
import logging
import math
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

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

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 2.0, 60.0
"""Pauses between tries at an outcome that is put off: 2, 4, 8 … 60 seconds."""

MOST_TRIES = 10  # that make the pause longer
LAST_TRIES = 2  # at the end of the process, after which an outcome is given up

SHARE = 20
"""Minimum time between tries at all outcomes that are put off, as a multiple of the duration of the last one."""

MOST_PUT_OFF = 10
"""Maximum number of outcomes that are put off: where there are more, it is not the rows that are the cause."""


class PutOff(NamedTuple):
    outcome: Outcome
    until: float  # monotonic


class InFlight:
    """Kept by the consumer; not safe for two threads at once."""

    def __init__(self, shared: SharedState) -> None:
        self.unwritten: dict[int, Outcome] = {}  # to write, by cell
        self._shared = shared
        self._free = list(range(CAPACITY))
        self._blocked: dict[int, Outcome] = {}  # by cell
        self.blocked_until = math.inf  # when to try those again, monotonic
        self._put_off: dict[int, PutOff] = {}  # by cell
        self._tries: dict[int, int] = {}  # by cell: how often its outcome was put off
        self._tried_at: float | None = None  # when the last try at one of those began; None: it was not the last batch
        self._try_at = 0.0  # no other try at them before, monotonic
        self._is_stopping = False
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
        return self.held() - len(self.unwritten) - len(self._blocked) - len(self._put_off)

    def wait_until(self) -> float:
        """Return the instant, monotonic, of the next try at outcomes that are blocked or put off."""
        put_off = min((one.until for one in self._put_off.values()), default=math.inf)
        return min(self.blocked_until, max(put_off, self._try_at))

    def stop(self) -> None:
        """Try all outcomes that are put off at once, and some seconds later give up those that still fail."""
        self._is_stopping, self._try_at = True, 0.0
        self._put_off = {cell: one._replace(until=0.0) for cell, one in self._put_off.items()}

    def _due(self, now: float) -> int | None:
        """Return the cell of an outcome that was put off until now, if there is one and it is time for a try."""
        if not self._put_off or now < self._try_at:
            return None
        return next((cell for cell, one in self._put_off.items() if one.until <= now), None)

    def batch(self, most: int) -> dict[int, Outcome]:
        """Return the outcomes to write now, one for each job: an old run of a job may end together with the new one.

        One that was put off is tried alone, and never one behind the other: all others go in between.
        """
        now = time.monotonic()
        if self._tried_at is not None:
            self._tried_at = None
        elif (cell := self._due(now)) is not None:
            self._tried_at = now
            self.unwritten[cell] = self._put_off.pop(cell).outcome
            return {cell: self.unwritten[cell]}
        if now >= self.blocked_until:
            self.unwritten |= self._blocked
            self._blocked, self.blocked_until = {}, math.inf
        batch = dict(itertools.islice(self.unwritten.items(), most))
        cells = {outcome.job.id: cell for cell, outcome in batch.items()}
        return batch if len(cells) == len(batch) else {cell: batch[cell] for cell in cells.values()}

    def resolve(self, batch: dict[int, Outcome], *, locked: Collection[int]) -> Collection[Outcome]:
        """Forget and return outcomes that were written or never can be; put aside the jobs whose ids are ``locked``."""
        for cell in batch:
            del self.unwritten[cell]
            if self._tries:
                self._tries.pop(cell, None)
        if locked:
            blocked = {cell: outcome for cell, outcome in batch.items() if outcome.job.id in locked}
            batch = {cell: outcome for cell, outcome in batch.items() if cell not in blocked}
            self._blocked |= blocked
            self.blocked_until = time.monotonic() + BLOCKED_SECONDS
        self._shared.free(batch)
        self._free.extend(batch)
        return batch.values()

    def put_off(self, cell: int, error: Error, *, is_own: bool = True) -> bool:
        """Let an outcome wait whose row cannot be written, and the others go on. False: too many wait already.

        Args:
            is_own: the error is about this row; else the database was away, and the pause stays as it is.
        """
        if len(self._put_off) + self._abandoned >= MOST_PUT_OFF:
            self.unwritten[cell] = self.unwritten.pop(cell)  # behind all others
            return False
        now = time.monotonic()
        if is_own and self._tried_at is not None and not self._is_stopping:
            self._try_at = now + SHARE * (now - self._tried_at)
        tries = self._tries[cell] = min(self._tries.get(cell, 0) + is_own, MOST_TRIES)
        if self._is_stopping:
            pause = FIRST_PAUSE_SECONDS if tries <= LAST_TRIES else None
        else:
            pause = min(FIRST_PAUSE_SECONDS * 2.0 ** (tries - 1), LONGEST_PAUSE_SECONDS)
        if is_own:
            _tell_of_put_off(self.unwritten[cell], pause, error)
        if pause is None:
            self.abandon(cell)
        else:
            self._put_off[cell] = PutOff(self.unwritten.pop(cell), now + pause)
        return True

    def is_trying(self) -> bool:
        """Whether the last batch was an outcome that was put off."""
        return self._tried_at is not None

    def was_put_off(self, cell: int) -> bool:
        return cell in self._tries

    def abandon(self, cell: int) -> None:
        """Give up writing an outcome; its job is left to the lease."""
        del self.unwritten[cell]
        self._abandoned += 1


def _tell_of_put_off(outcome: Outcome, pause: float | None, error: Error) -> None:
    job = outcome.job
    logger.error(
        "The outcome of job %s (%s) cannot be written, and is %s: %s",
        *(job.id, job.task, "given up" if pause is None else f"tried again in {pause:g} s"),
        scrubber_of(registry.find(job.task), job)(primary(error)),
        extra=fields(job, outcome=outcome.fate.word),
    )


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
