"""Delete rows that are older than their retention.

A whole day of history goes with its partition, see ``partitions``. The pruner deletes rows among others that stay, and
those in the default partition.

The time of a finished job is in its row: ``keep=`` stands in ``keep_seconds`` of the job from the enqueueing on, and
the ack makes ``prune_at`` of it. So any worker can tell, also one that does not know the task or knows another one, and
one call may say it otherwise than its task. The ack has no more to do for it: rows without a time, as almost all,
have null there and no entry in the index, which holds only what will be pruned, in that order. The other ways that were
looked at need a memory of what has been swept, by page or by time, for each task: it would be lost with the worker, or
be one more table, and be wrong as soon as the room of pruned rows is used again.
"""

import functools
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

import psycopg
from django.db import ProgrammingError

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import Database, QueueConnection
from django_pgqueue.db.queries import ladder_size, sized, statement
from django_pgqueue.maintenance.bulk_runner import prune_bulk_actions
from django_pgqueue.services import AdaptiveBatch

logger = logging.getLogger("django_pgqueue.worker")

BULK_ACTION_DAYS = 30

LARGEST = 1000
STRETCH = 64  # pages of the default partition that one statement reads: a few thousand rows

PRUNE_SECONDS = 60.0
DEFAULT_SECONDS = 3600.0  # between passes through the default partition, where it has rows at all: it is read whole

REFUSED_SECONDS = 3600.0
SPELL_SECONDS = 0.5


class Prunable(NamedTuple):
    """Kinds of rows to prune; the columns of ``prunable.sql``."""

    timed: bool  # finished jobs with a time of their own, which is over
    dead: bool  # jobs that have been dead for too long
    default: bool  # rows in the default partition, of whatever age
    stats: bool  # counts that are too old
    bulk_actions: bool = False  # that ended long ago


class PrunedRange(NamedTuple):
    """Result of one stretch of the default partition."""

    removed: int
    next_page: int | None  # where the next one begins; None: that was the last


class PruneResult(NamedTuple):
    """Numbers of rows removed."""

    timed: int  # finished ones with a time of their own
    dead: int
    default: int  # of the default partition
    stats: int  # rows of counts, which are no jobs


def look(database: Database, *, dead_days: int | None, stats_days: int) -> Prunable:
    """Return what there is to prune."""
    parameters = {"days": dead_days, "stats_days": stats_days, "bulk_action_days": BULK_ACTION_DAYS}
    [row] = database.rows(statement("prunable"), parameters)
    return Prunable._make(row)


def prune_timed(database: Database, *, limit: int) -> int:
    """Remove up to ``limit`` finished jobs whose own time is over; return how many."""
    return len(database.rows(sized("prune_timed", ladder_size(limit)), {}))


def prune_dead(database: Database, *, days: int, limit: int) -> int:
    """Remove up to ``limit`` jobs that have been dead for ``days`` days, 1 or more; return how many."""
    return len(database.rows(sized("prune_dead", ladder_size(limit)), {"days": days}))


def prune_stats(database: Database, *, days: int, limit: int) -> int:
    """Remove up to ``limit`` rows of counts that are ``days`` days old, 1 or more, by the hour; return how many."""
    return len(database.rows(sized("prune_stats", ladder_size(limit)), {"days": days}))


def prune_default(database: Database, *, retention_days: int, page: int) -> PrunedRange:
    """Remove what is older than the retention from the pages of the default partition from ``page`` on."""
    parameters = {"retention_days": retention_days, "page": page}
    [(removed, pages)] = database.rows(statement("prune_default"), parameters)
    return PrunedRange(removed, page + STRETCH if page + STRETCH < pages else None)


def prune_all(database: Database, *, retention_days: int, dead_days: int | None, stats_days: int) -> PruneResult:
    """Remove all that is old enough, slice after slice, however long that takes."""
    timed = _through(lambda: prune_timed(database, limit=LARGEST))
    dead = _through(lambda: prune_dead(database, days=dead_days, limit=LARGEST)) if dead_days is not None else 0
    counts = _through(lambda: prune_stats(database, days=stats_days, limit=LARGEST))
    default = 0
    page: int | None = 0
    while page is not None:
        removed, page = prune_default(database, retention_days=retention_days, page=page)
        default += removed
    return PruneResult(timed, dead, default, counts)


def _through(prune_slice: Callable[[], int]) -> int:
    total = 0
    while removed := prune_slice():
        total += removed
    return total


# The maintenance task


class Pruner:
    """Prunes finished jobs whose own time is over, jobs dead for too long, old counts, and the default partition.

    Args:
        database: a connection of a role that may remove them.
    """

    def __init__(self, database: QueueConnection) -> None:
        self._database = database
        self._slice = AdaptiveBatch()
        self._default_at = 0.0  # not before, monotonic
        self._page = 0  # of the default partition, where to go on

    def prune(self) -> float | None:
        try:
            return 0.0 if self._prune() else None
        except ProgrammingError as error:
            if not isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                raise
            logger.warning("Jobs cannot be pruned by age: %s. The worker's role must own the tables.", error)
            return REFUSED_SECONDS

    def _prune(self) -> bool:
        days, stats_days = conf.dead_retention_days, conf.stats_days
        there = look(self._database, dead_days=days, stats_days=stats_days)
        has_more = False
        if there.timed:
            has_more |= self._in_slices("finished jobs", functools.partial(prune_timed, self._database))
        if there.dead and days is not None:
            has_more |= self._in_slices("dead jobs", functools.partial(prune_dead, self._database, days=days))
        if there.default and time.monotonic() >= self._default_at:
            has_more |= self._go_through_default()
        if there.stats:  # what is no job comes last: a role that may not remove it may remove jobs
            pass_once = functools.partial(prune_stats, self._database, days=stats_days)
            has_more |= self._in_slices("rows of counts", pass_once)
        if there.bulk_actions:
            has_more |= prune_bulk_actions(self._database, days=BULK_ACTION_DAYS) > 0
        return has_more

    def _in_slices(self, kind: str, prune_slice: Callable[..., int]) -> bool:
        until, removed, is_full = time.monotonic() + SPELL_SECONDS, 0, True
        while is_full and time.monotonic() < until:
            with self._slice.taken() as limit:
                found = prune_slice(limit=limit)
            removed, is_full = removed + found, found > 0
        logger.info("Pruned %d %s", removed, kind)
        return is_full

    def _go_through_default(self) -> bool:
        until, removed = time.monotonic() + SPELL_SECONDS, 0
        page: int | None = self._page
        while page is not None and time.monotonic() < until:
            stretch = prune_default(self._database, retention_days=conf.retention_days, page=page)
            removed, page = removed + stretch.removed, stretch.next_page
        if removed:
            logger.info("Pruned %d finished jobs of the default partition", removed)
        self._page = page or 0
        if page is None:
            self._default_at = time.monotonic() + DEFAULT_SECONDS
        return page is not None
