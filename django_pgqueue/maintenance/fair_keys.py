"""Maintenance task that lets fair keys catch up with their turns; the pass is in ``flow.fairness``."""

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.flow.fairness import START, advance_fair_keys

LATE_SECONDS = 0.1  # while a key stands behind: the jobs that were brought forward may be done soon
TURNS_SECONDS = 1.0  # while there are fair keys
NONE_SECONDS = 5.0


class FairKeys:
    """Goes round the fair keys, a part of them in each pass."""

    def __init__(self, database: QueueConnection) -> None:
        self._database = database
        self._place = START

    def keep_turns(self) -> float:
        done = advance_fair_keys(self._database, after=self._place)
        self._place = done.next
        return LATE_SECONDS if done.late else TURNS_SECONDS if done.keys else NONE_SECONDS
