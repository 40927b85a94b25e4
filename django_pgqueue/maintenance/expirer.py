"""Move jobs to ``dead_jobs`` that were not started before they expired."""

import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

from django_pgqueue.db.connections import Database, QueueConnection
from django_pgqueue.db.queries import ladder_size, sized
from django_pgqueue.jobs.dead_letter import DeadLetter, dead_letter, expired_entry
from django_pgqueue.jobs.stats import StatsBuffer
from django_pgqueue.records import EndCounts
from django_pgqueue.services import AdaptiveBatch
from django_pgqueue.signals import send_deaths_from_maintenance
from django_pgqueue.states import DeathReason

logger = logging.getLogger("django_pgqueue.worker")

EXPIRE_SECONDS = 5.0


class ExpireResult(NamedTuple):
    dead: int
    is_all: bool  # nothing is left but locked rows
    keys: frozenset[str]  # concurrency keys of the dead, of which others may be admitted now
    ends: EndCounts


def expire(database: Database, *, limit: int = 1000) -> ExpireResult:
    """Move up to ``limit`` jobs, 1 to 1,000, that have expired to ``dead_jobs``: queued, scheduled or limited ones.

    Jobs that a worker has claimed by then are left alone, and so are locked rows.
    """
    size = ladder_size(limit)
    found = {job_id: rest for job_id, *rest in database.rows(sized("expired", size), {})}
    dead, events = dead_letter(
        database, [DeadLetter(job_id, 0, DeathReason.EXPIRED, expired_entry()) for job_id in found]
    )
    send_deaths_from_maintenance(events)
    gone = [found[job_id] for job_id in dead]
    freed = frozenset(key for key, _, _ in gone if key is not None)
    ends = EndCounts(died=tuple((queue, task) for _, queue, task in gone))
    return ExpireResult(len(dead), len(found) < size or not dead, freed, ends)


class Expirer:
    """A service of maintenance; a consumer that claims an expired job does not wait for it.

    ``admit`` is called with the concurrency keys of the dead, of which others may be admitted.
    """

    def __init__(self, database: QueueConnection, admit: Callable[[Collection[str]], None], stats: StatsBuffer) -> None:
        self._database = database
        self._admit = admit
        self._stats = stats
        self._expiring = AdaptiveBatch()

    def expire(self) -> float | None:
        with self._expiring.taken() as limit:
            expired = expire(self._database, limit=limit)
        if expired.dead:
            logger.warning("Expired: %d jobs were not started in time, and are dead", expired.dead)
        self._stats.count_ends(expired.ends)
        self._admit(expired.keys)
        return None if expired.is_all else 0.0
