"""Position of the next claim: the queue to ask, and where in its index to begin.

The claim index keeps an entry for each row that was claimed until no snapshot can see the queued version any more, and
VACUUM removes it. While a session holds an old snapshot, as a long report or a backup does, these entries pile up at
the head of the queue, and each claim from the head walks over all of them. So most claims begin after the last job that
was taken. Jobs that come in below it (a higher priority, a late commit, a retry) are found by a full scan: after
ten times as long as the last one took, or three times if it was announced, and after a second at most.

A queue whose claim fails, perhaps for a damaged row, is set back: it waits for a time of its own, and the next claim
has its transaction to itself. If it was a full scan that failed, the claims in between go on. The look for queues that
have work is treated in the same way: while it fails, queues whose work is announced are claimed from. A connection that
ends while a queue is claimed from sets that queue back when it has happened twice in a row: once may be chance.
"""

import logging
import math
import random
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from django.db import Error

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.errors import one_line
from django_pgqueue.jobs import claim
from django_pgqueue.jobs.claim import Claim, Place, ready_queues
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.records import ClaimedJob
from django_pgqueue.retry_policy import reconnect_delay
from django_pgqueue.worker.limits_cache import LimitsCache

logger = logging.getLogger("django_pgqueue.worker")

FULL_SCAN_SECONDS = 1.0  # maximum wait of a job below the low-water mark for a full scan

REMEMBERED = 1000
"""Number of queues above which only those that still need a full scan are remembered; others begin with one."""

LATEST_SHARE = 1.2  # maximum interval between looks at all queues, as a multiple of POLL_SECONDS

FULL_SCAN_SHARE = 10
"""Minimum interval between full scans, as a multiple of their own duration."""

CALLED_SHARE = 3
"""The same where work was announced since: it may be below, as the turns of a fair key are, or a higher priority."""

LONGEST_SETBACK_SECONDS = 60.0
"""Maximum pause between two claims that fail; from the second one on it follows how long they keep the consumer."""


@dataclass(slots=True)
class QueueBackoff:
    """A queue whose claims have failed, without anything else in their transaction."""

    failures: int  # in a row
    retry_at: float  # not before, monotonic
    called_retry_at: float  # nor before this, if there was a call
    is_of_full_scans: bool  # a claim above the low-water mark has gone well since, so these go on
    reason: str

    def called(self) -> None:
        self.retry_at = min(self.retry_at, self.called_retry_at)


@dataclass(slots=True)
class QueueCursor:
    low_water: Place | None = None  # claims between full scans begin after it
    full_scan_at: float = 0.0  # not before, monotonic
    called_scan_at: float = 0.0  # nor before this, if there was a call
    needs_full_scan: bool = False  # there may be jobs that only a full scan finds

    def above(self) -> Place | None:
        """Return where the next claim begins; None for a full scan."""
        return self.low_water if time.monotonic() < self.full_scan_at else None

    def called(self) -> None:
        self.full_scan_at = min(self.full_scan_at, self.called_scan_at)

    def record_claim(self, claimed: Claim, jobs: list[ClaimedJob], seconds: float) -> None:
        if jobs:
            self.low_water = jobs[-1].place
        if claimed.above is None:
            now = time.monotonic()
            self.full_scan_at = now + min(FULL_SCAN_SHARE * seconds, FULL_SCAN_SECONDS)
            self.called_scan_at = now + min(CALLED_SHARE * seconds, FULL_SCAN_SECONDS)
        self.needs_full_scan = claimed.above is not None or bool(jobs)


class QueueCursors:
    """Not safe for two threads at once.

    Args:
        queues: as ``QueueSelector`` takes them, empty means all.
        empty_at: returns when the supervisor has last seen that no job was queued, monotonic.
    """

    def __init__(
        self, queues: tuple[str, ...], limits: LimitsCache, empty_at: Callable[[], float] = lambda: -math.inf
    ) -> None:
        self.served = QueueSelector.of(queues)
        self._limits = limits
        self._empty_at = empty_at
        self._ready: dict[str, None] = {}  # queues that may have work, in the order in which to ask them
        self._cursors: dict[str, QueueCursor] = {}
        self._setbacks: dict[str, QueueBackoff] = {}
        self._asked: tuple[str, bool] | None = None  # the last claim: its queue, "" for a look, and whether a full scan
        self._suspected: str | None = None  # queue with whose claim the connection ended the last time
        self._look_at = 0.0  # when to look at all queues again, monotonic
        self._failed_looks = 0  # in a row, sent apart
        self._retry_look_at = 0.0  # no look before, monotonic

    def mark_ready(self, queues: Collection[str] | None) -> None:
        """Take note that some queues have work; None: perhaps any."""
        if queues is None:
            self._look_at = 0.0
        else:
            self._add(queues)
            for queue in queues:
                if cursor := self._cursors.get(queue):
                    cursor.called()
                if self._setbacks and self._is_out(queue):
                    self._setbacks[queue].called()

    def rewind(self, queue: str, place: Place) -> None:
        cursor = self._cursors.setdefault(queue, QueueCursor())
        if cursor.low_water is not None:
            cursor.low_water = min(cursor.low_water, place)
        self._add([queue])

    @property
    def is_ready(self) -> bool:
        """Whether a queue may have work."""
        return bool(self._ready)

    def wait_until(self) -> float:
        """Return when there will be a reason to claim, monotonic; in the past if there is one already."""
        if self._ready:
            return 0.0
        cursors = self._cursors.items()
        scans = (cursor.full_scan_at for queue, cursor in cursors if cursor.needs_full_scan and not self._is_out(queue))
        set_back = (setback.retry_at for setback in self._setbacks.values())
        return min([self._next_look_at(), self._limits.reopen_at(), *scans, *set_back])

    def has_to_retry(self) -> bool:
        """Whether to claim apart: from a queue that was set back, or after a look at all queues that has failed."""
        if self._failed_looks and time.monotonic() >= self._next_look_at():
            return True
        return bool(self._setbacks) and self._due_setback() is not None

    def limits_changed(self, queues: Iterable[str]) -> None:
        for queue in queues:
            self._ready.pop(queue, None)
            self._cursors.pop(queue, None)  # a limited queue has none, and a paused one needs no full scan
        self._add(self.served.among(queues))

    def ended(self, queues: Iterable[str]) -> None:
        self._add(self._limits.ended(queues))

    def send(
        self, database: QueueConnection, *, limit: int, most_limited: int, worker_id: int, apart: bool = False
    ) -> Claim | None:
        """Send a claim to the first queue that may have work; None if there is none.

        Args:
            most_limited: limit for a queue that is limited: no jobs are fetched ahead there, where they would keep
                others out.
            apart: nothing else is in the transaction, so that a queue that was set back may be tried again.
        """
        now = time.monotonic()
        self._asked = ("", False)
        if now >= self._next_look_at() and (apart or not self._failed_looks):
            self._look(database, now)
        self._add(
            queue for queue, cursor in self._cursors.items() if cursor.needs_full_scan and now >= cursor.full_scan_at
        )
        self._add(self._limits.reopened())
        queue = (self._retried(most_limited) if apart and self._setbacks else None) or self.next_queue(most_limited)
        if queue is None:
            return None
        if self._limits.is_limited(queue):
            self._asked = (queue, False)
            return claim.send_limited(database, queue, limit=min(limit, most_limited), worker_id=worker_id)
        cursor = self._cursors.setdefault(queue, QueueCursor())
        above = cursor.above() if apart or queue not in self._setbacks else cursor.low_water
        self._asked = (queue, above is None)
        return claim.send(database, queue, limit=limit, worker_id=worker_id, above=above)

    def forget_asked(self) -> None:
        """Forget the last claim, before the next one: it must not answer for a connection that cannot be opened."""
        self._asked = None

    def ended_connection(self) -> bool:
        """Return whether the end of the connection during the last claim, sent apart, counts as a failure of its queue.

        It does if it has happened twice in a row, or the queue was set back already.
        """
        if self._asked is None:
            return False
        queue, _ = self._asked
        if queue in self._setbacks or (not queue and self._failed_looks):
            return True
        is_second = queue == self._suspected
        self._suspected = queue
        return is_second

    def failed(self, error: Error, seconds: float) -> None:
        """Set the queue of the last claim back, which was sent apart and failed after ``seconds``."""
        if self._asked is None:
            return
        queue, is_full_scan = self._asked
        if not queue:
            self._look_failed(error, seconds)
            return
        now, before, cursor = time.monotonic(), self._setbacks.get(queue), self._cursors.get(queue)
        failures, reason = before.failures + 1 if before else 1, one_line(error)
        delay, seconds = reconnect_delay(failures), seconds if before else 0.0  # a lock may be gone the next time
        retry_at = now + max(delay, min(FULL_SCAN_SHARE * seconds, LONGEST_SETBACK_SECONDS))
        called_retry_at = now + max(delay, min(CALLED_SHARE * seconds, LONGEST_SETBACK_SECONDS))
        goes_on = False
        if is_full_scan and cursor is not None:
            cursor.full_scan_at = cursor.called_scan_at = retry_at
            goes_on = before is not None and before.is_of_full_scans
            if before is None and cursor.low_water is not None:
                retry_at = now  # by a claim above the low-water mark
        self._setbacks[queue] = QueueBackoff(failures, retry_at, min(retry_at, called_retry_at), goes_on, reason)
        if self._is_out(queue):
            self._ready.pop(queue, None)
        if failures % 10 == 1 or (before and before.reason != reason):
            logger.warning("Jobs of queue %r cannot be claimed (failure %d): %s", queue, failures, reason)

    def _look(self, database: QueueConnection, now: float) -> None:
        found = ready_queues(database, self.served)
        self._add(found)
        for queue, cursor in self._cursors.items():
            cursor.needs_full_scan &= queue in found
        self._look_at = now + conf.poll_seconds * random.uniform(0.8, LATEST_SHARE)  # noqa: S311 - jitter
        if self._suspected == "":
            self._suspected = None
        if self._failed_looks:
            logger.warning("The look for queues that have work succeeds again after %d failures", self._failed_looks)
        self._failed_looks, self._retry_look_at = 0, 0.0

    def _look_failed(self, error: Error, seconds: float) -> None:
        self._failed_looks += 1
        delay = max(reconnect_delay(self._failed_looks), min(FULL_SCAN_SHARE * seconds, LONGEST_SETBACK_SECONDS))
        self._retry_look_at = time.monotonic() + delay
        if self._failed_looks % 10 == 1:
            logger.warning(
                "The look for queues that have work fails (failure %d): %s", self._failed_looks, one_line(error)
            )

    def _next_look_at(self) -> float:
        """Return when to look at all queues: none of several idle processes does while their supervisor looks."""
        look_at = max(self._look_at, self._empty_at() + LATEST_SHARE * conf.poll_seconds) if self._look_at else 0.0
        return max(look_at, self._retry_look_at)

    def advance(self, claimed: Claim, jobs: list[ClaimedJob], seconds: float) -> None:
        """Learn from the answer to a claim; a queue that gave less than it was asked for has nothing more for now.

        It may have had rows that others were just editing, so it needs a full scan. ``seconds`` include the
        statements that were sent along with the claim.
        """
        self._ready.pop(claimed.queue, None)
        if self._suspected == claimed.queue:
            self._suspected = None
        if self._setbacks:
            self._recovered(claimed)
        if not claimed.is_limited:
            self._cursors[claimed.queue].record_claim(claimed, jobs, seconds)
            if len(self._cursors) > REMEMBERED:
                self._cursors = {queue: cursor for queue, cursor in self._cursors.items() if cursor.needs_full_scan}
        has_more, token_seconds = claimed.left()
        if len(jobs) == claimed.limit:
            self._add([claimed.queue])  # where all are served, at the end: they take turns
        elif has_more:
            self._limits.shut(claimed.queue, token_seconds)

    def _recovered(self, claimed: Claim) -> None:
        setback = self._setbacks.get(claimed.queue)
        if setback and claimed.above is not None:
            if not setback.is_of_full_scans:
                setback.is_of_full_scans, setback.retry_at = True, self._cursors[claimed.queue].full_scan_at
        elif setback:
            del self._setbacks[claimed.queue]
            logger.warning("Jobs of queue %r can be claimed again after %d failures", claimed.queue, setback.failures)

    def _due_setback(self) -> str | None:
        now = time.monotonic()
        return next((queue for queue, setback in self._setbacks.items() if now >= setback.retry_at), None)

    def _retried(self, most_limited: int) -> str | None:
        queue = self._due_setback()
        if queue and most_limited <= 0 and self._limits.is_limited(queue):
            self._setbacks[queue].retry_at = time.monotonic() + reconnect_delay(1)
            return None
        return queue

    def _is_out(self, queue: str) -> bool:
        """Whether a queue was set back altogether."""
        setback, cursor = self._setbacks.get(queue), self._cursors.get(queue)
        goes_on = setback is None or (setback.is_of_full_scans and cursor is not None and cursor.low_water is not None)
        return not goes_on

    def next_queue(self, most_limited: int) -> str | None:
        """Return the queue to ask; a limited one waits while this process holds as many of its jobs as it has slots."""
        for queue in list(self._ready):
            if most_limited > 0 or not self._limits.is_limited(queue):
                return queue
            del self._ready[queue]
            self._limits.shut(queue, 0.0)
        return None

    def _add(self, queues: Iterable[str]) -> None:
        if self._setbacks:
            queues = [queue for queue in queues if not self._is_out(queue)]
        self._ready.update((queue, None) for queue in queues if self._limits.is_open(queue))
        if self.served.wanted and len(self._ready) > 1:
            self._ready = dict.fromkeys(self.served.among(self._ready))
