"""Where a pump claims next: which queues may have work, and how far down in each a claim has to look.

The claim index keeps an entry for each row that was claimed until no snapshot can see the queued version any more, and
VACUUM removes it. While somebody holds an old snapshot, as a long report or a backup does, these entries pile up at the
head of the queue, and each claim from the head walks over all of them. So most claims begin after the last job that was
taken. What comes in below, as a higher priority, a late commit or a retry, is found by a full scan: after ten times as
long as the last one took, and after a second at most.
"""

import random
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from django_pgqueue.base.conf import conf
from django_pgqueue.base.records import ClaimedJob
from django_pgqueue.db import QueueConnection
from django_pgqueue.lifecycle import claim
from django_pgqueue.lifecycle.claim import Claim, Place, ready_queues

FULL_SCAN_SECONDS = 1.0
"""A job below the low-water mark waits no longer than this for a full scan."""

REMEMBERED = 1000
"""Of more queues than this, only those are kept in mind that are owed a full scan; others begin with one."""

FULL_SCAN_SHARE = 10
"""Full scans are no closer than so many times their own duration."""


@dataclass(slots=True)
class Shore:
    """What is known of one queue."""

    low_water: Place | None = None  # claims between full scans begin after it
    full_scan_at: float = 0.0  # not before, monotonic
    is_owed: bool = False  # there may be jobs that only a full scan finds

    def above(self) -> Place | None:
        """Return where the next claim begins; None for a full scan."""
        return self.low_water if time.monotonic() < self.full_scan_at else None

    def took(self, claimed: Claim, jobs: list[ClaimedJob], seconds: float) -> None:
        if jobs:
            self.low_water = jobs[-1].place
        if claimed.above is None:
            self.full_scan_at = time.monotonic() + min(FULL_SCAN_SHARE * seconds, FULL_SCAN_SECONDS)
        self.is_owed = claimed.above is not None or bool(jobs)


class Intake:
    """Not safe for two threads at once.

    Args:
        served: the queues to claim from, in strict order; empty means all.
    """

    def __init__(self, served: tuple[str, ...]) -> None:
        self._served = served
        self._ready: dict[str, None] = {}  # queues that may have work, in the order in which to ask them
        self._shores: dict[str, Shore] = {}
        self._look_at = 0.0  # when to look at all queues again, monotonic

    def hear(self, queues: Collection[str] | None) -> None:
        """Take note that some queues have work; None: perhaps any."""
        if queues is None:
            self._look_at = 0.0
        else:
            self._add(queues)

    def wait_until(self) -> float:
        """Return when there will be a reason to claim, monotonic; in the past if there is one already."""
        if self._ready:
            return 0.0
        return min([self._look_at, *(shore.full_scan_at for shore in self._shores.values() if shore.is_owed)])

    def send(self, database: QueueConnection, *, limit: int, worker_id: int) -> Claim | None:
        """Send a claim to the first queue that may have work; None if there is none."""
        now = time.monotonic()
        if now >= self._look_at:
            self._add(ready_queues(database, self._served))
            self._look_at = now + conf.poll_seconds * random.uniform(0.8, 1.2)  # noqa: S311 - jitter
        self._add(queue for queue, shore in self._shores.items() if shore.is_owed and now >= shore.full_scan_at)
        if not self._ready:
            return None
        queue = next(iter(self._ready))
        above = self._shores.setdefault(queue, Shore()).above()
        return claim.send(database, queue, limit=limit, worker_id=worker_id, above=above)

    def took(self, claimed: Claim, jobs: list[ClaimedJob], seconds: float) -> None:
        """Learn from the answer to a claim; a queue that gave less than it was asked for has nothing more for now.

        It may have had rows that others were just editing, so it is owed a full scan.

        Args:
            seconds: how long the claim took, whatever was sent along with it included.
        """
        self._shores[claimed.queue].took(claimed, jobs, seconds)
        del self._ready[claimed.queue]
        if len(self._shores) > REMEMBERED:
            self._shores = {queue: shore for queue, shore in self._shores.items() if shore.is_owed}
        if len(jobs) == claimed.limit:
            self._add([claimed.queue])  # where all are served, at the end: they take turns

    def _add(self, queues: Iterable[str]) -> None:
        self._ready.update(dict.fromkeys(queues))
        if self._served and len(self._ready) > 1:
            self._ready = {queue: None for queue in self._served if queue in self._ready}
