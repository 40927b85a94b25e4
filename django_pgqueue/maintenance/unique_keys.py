"""Maintain unique keys: take them back for jobs that come back, and free those whose time after success is over."""

import logging
from typing import NamedTuple

from django.db import IntegrityError

from django_pgqueue.db.connections import Database, QueueConnection
from django_pgqueue.db.queries import ladder_size, sized, statement
from django_pgqueue.jobs.dead_letter import DeadLetter, dead_letter
from django_pgqueue.jobs.stats import StatsBuffer
from django_pgqueue.records import EndCounts, Kinds
from django_pgqueue.services import AdaptiveBatch
from django_pgqueue.signals import send_deaths_from_maintenance
from django_pgqueue.states import DeathReason, EntryKind

logger = logging.getLogger("django_pgqueue.worker")

LOCK_MILLISECONDS = 20  # for a key that an open transaction has inserted
MOST_LOCKED = 5  # of those in a pass: the same thread has other services

KEYS_SECONDS = 1.0


class ReacquireResult(NamedTuple):
    taken: int  # jobs that have their key again
    superseded: Kinds  # jobs that died, because newer ones have theirs
    locked: int  # keys that did not become free
    last: int  # the id of the last job looked at; 0: that was the last there is


def reacquire_keys(database: QueueConnection, *, after: int = 0, limit: int = 100) -> ReacquireResult:
    """Take the unique key back for up to ``limit`` jobs that gave it up at their start and are not running any more.

    Those whose key a newer job has by then die. The others get it back, one job in a transaction, each with a short
    timeout: another session may have enqueued a job with the same key and keep its transaction open. Then the next
    round tries again; a job that is claimed before simply runs. A session that enqueues meanwhile waits no longer than
    that. ``after``: look at larger ids; ``limit``: 1 to 1,000.
    """
    size = ladder_size(limit)
    ids = [job_id for (job_id,) in database.rows(sized("released_keys", size), {"after": after})]
    superseded = supersede(database) if ids else ()
    taken = locked = last = 0
    for job_id in ids:
        has_key = _retake_one(database, job_id)
        taken, locked, last = taken + (has_key is True), locked + (has_key is None), job_id
        if locked == MOST_LOCKED:
            return ReacquireResult(taken, superseded, locked, last)
    return ReacquireResult(taken, superseded, locked, last if len(ids) == size else 0)


def _retake_one(database: QueueConnection, job_id: int) -> bool | None:
    """Return whether the job has its key again; None where it is locked."""
    sql = statement("reacquire_key")
    try:
        rows = database.rows_unless_locked(sql, {"id": job_id}, milliseconds=LOCK_MILLISECONDS)
    except IntegrityError:
        return False  # a conflicting job has come this very moment; the next pass sees it
    return None if rows is None else bool(rows)


def supersede(database: QueueConnection, *, limit: int = 1000) -> Kinds:
    """Let up to ``limit`` jobs die, 1 to 1,000, whose unique key a newer job has; return their queues and tasks."""
    with database.transaction():
        rows = database.rows(sized("superseded_jobs", ladder_size(limit)), {})
        if not rows:
            return ()
        dead, events = dead_letter(database, [_superseded(job_id, newer_id) for job_id, newer_id, _, _ in rows])
    send_deaths_from_maintenance(events)
    return tuple((queue, task) for job_id, _, queue, task in rows if job_id in dead)


def _superseded(job_id: int, newer_id: int) -> DeadLetter:
    entry = {"kind": EntryKind.SUPERSEDED, "error": f"superseded by job {newer_id}", "conflict": newer_id}
    return DeadLetter(job_id, 0, DeathReason.SUPERSEDED, entry)


def prune_reserved(database: Database, *, limit: int = 1000) -> int:
    """Remove up to ``limit`` reserved rows whose time is over, which may be 1 to 1,000; return how many."""
    return len(database.rows(sized("prune_reserved", ladder_size(limit)), {}))


class UniqueKeyKeeper:
    """Two services, each once a second, or at once where there is more to do than one pass does."""

    def __init__(self, database: QueueConnection, stats: StatsBuffer) -> None:
        self._database = database
        self._stats = stats
        self._pruning = AdaptiveBatch()
        self._retaken_to = 0  # the id up to which this round has come

    def prune_reserved(self) -> float | None:
        with self._pruning.taken() as limit:
            has_more = prune_reserved(self._database, limit=limit) > limit // 2
        return 0.0 if has_more else None

    def retake(self) -> float | None:
        retaken = reacquire_keys(self._database, after=self._retaken_to)
        if retaken.superseded:
            self._stats.count_ends(EndCounts(died=retaken.superseded))
            logger.info("Superseded: %d jobs came back, and newer ones have their unique keys", len(retaken.superseded))
        self._retaken_to = retaken.last
        has_more = retaken.last > 0 and not retaken.locked  # a locked row should have some time
        return 0.0 if has_more else None
