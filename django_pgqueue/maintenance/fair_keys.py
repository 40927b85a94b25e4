"""Maintenance task that lets fair keys catch up with their turns; the pass is in ``flow.fairness``."""

import time

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.flow.fairness import START, advance_fair_keys
from django_pgqueue.services import next_look

LATE_SECONDS = 0.1  # while a key stands behind: the jobs that were brought forward may be done soon
TURNS_SECONDS = 1.0  # while there are fair keys
NONE_SECONDS = 5.0


class FairKeys:
    """Goes round the fair keys, a part of them in each pass."""

    def __init__(self, database: QueueConnection) -> None:
        self._database = database
        self._place = START
        self._look_at = 0.0  # not before, monotonic

    def keep_turns(self) -> float:
        """Do what is due; return the seconds until there is more."""
        begun = time.monotonic()
        if begun < self._look_at:
            return self._look_at - begun
        done = advance_fair_keys(self._database, after=self._place)
        pause = LATE_SECONDS if done.late else TURNS_SECONDS if done.keys else NONE_SECONDS
        self._place, self._look_at = done.next, next_look(begun, pause)
        return pause
