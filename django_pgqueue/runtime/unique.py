"""When to look after unique keys: what the steward does about them, in its own thread and by its own connection."""

import logging
import time

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.housekeeping.unique import prune_tombstones, retake
from django_pgqueue.jobs.tally import Tally
from django_pgqueue.records import Ends
from django_pgqueue.services import Slice, next_look

logger = logging.getLogger("django_pgqueue.worker")

LOOK_SECONDS = 1.0


class UniqueKeys:
    """Two duties, each once a second, or at once where there is more to do than one pass does.

    Args:
        tally: counts the jobs that die for it.
    """

    def __init__(self, database: QueueConnection, tally: Tally) -> None:
        self._database = database
        self._tally = tally
        self._pruning = Slice()
        self._prune_at = self._retake_at = 0.0  # not before, monotonic
        self._retaken_to = 0  # the id up to which this round has come

    def prune_tombstones(self) -> float | None:
        """Let go of the keys of jobs that finished long enough ago."""
        begun = time.monotonic()
        if begun < self._prune_at:
            return None
        with self._pruning.taken() as limit:
            has_more = prune_tombstones(self._database, limit=limit) > limit // 2
        self._prune_at = 0.0 if has_more else next_look(begun, LOOK_SECONDS)
        return 0.0 if has_more else None

    def retake(self) -> float | None:
        """Take keys back for jobs that gave them up at their start and were not done by their run."""
        begun = time.monotonic()
        if begun < self._retake_at:
            return None
        retaken = retake(self._database, after=self._retaken_to)
        if retaken.superseded:
            self._tally.count_ends(Ends(died=retaken.superseded))
            logger.info("Superseded: %d jobs came back, and newer ones have their unique keys", len(retaken.superseded))
        self._retaken_to = retaken.last
        has_more = retaken.last > 0 and not retaken.locked  # what is locked had better have some time
        self._retake_at = 0.0 if has_more else next_look(begun, LOOK_SECONDS)
        return 0.0 if has_more else None
