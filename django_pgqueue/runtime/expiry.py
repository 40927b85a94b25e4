"""When to look for jobs that were not started in time."""

import logging
import time
from collections.abc import Callable, Collection

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.housekeeping.expire import expire
from django_pgqueue.jobs.tally import Tally
from django_pgqueue.services import Slice, next_look

logger = logging.getLogger("django_pgqueue.worker")

EXPIRE_SECONDS = 5.0


class Expiry:
    """A duty of the steward; whoever finds out by a claim need not wait for it.

    Args:
        admit: called with the concurrency keys of the dead, of which others may be admitted.
        tally: counts the dead.
    """

    def __init__(self, database: QueueConnection, admit: Callable[[Collection[str]], None], tally: Tally) -> None:
        self._database = database
        self._admit = admit
        self._tally = tally
        self._expiring = Slice()
        self._expire_at = 0.0  # not before, monotonic

    def expire(self) -> float | None:
        """Let some of them die, every five seconds; return 0 while there are more, else None."""
        begun = time.monotonic()
        if begun < self._expire_at:
            return None
        with self._expiring.taken() as limit:
            expired = expire(self._database, limit=limit)
        if expired.is_all:
            self._expire_at = next_look(begun, EXPIRE_SECONDS)
        if expired.dead:
            logger.warning("Expired: %d jobs were not started in time, and are dead", expired.dead)
        self._tally.count_ends(expired.ends)
        self._admit(expired.keys)
        return None if expired.is_all else 0.0
