"""Delete what is old enough, slice by slice: finished jobs with a time of their own, dead ones, old counts.

A whole day of history goes with its partition, see ``retention``. What cannot go so are rows among others that stay,
and what is in the default partition.

The time of a finished job is in its row: ``keep=`` stands in ``keep_seconds`` of the job from the enqueueing on, and
the ack makes ``prune_at`` of it. So any worker can tell, also one that does not know the task or knows another one, and
one call may say it otherwise than its task. The ack has no more to do for it: rows without a time, as almost all,
have null there and no entry in the index, which holds only what will be pruned, in that order. The other ways that were
looked at need a memory of what has been swept, by page or by time, for each task: it would be lost with the worker, or
be one more table, and be wrong as soon as the room of pruned rows is used again.
"""

from collections.abc import Callable
from typing import NamedTuple

from django_pgqueue.db.connections import Database
from django_pgqueue.db.queries import ladder_size, sized, statement

OPERATION_DAYS = 30
"""For so long staff can look up what was done to many jobs."""

LARGEST = 1000
STRETCH = 64
"""Pages of the default partition that ``prune_default.sql`` reads at once: a few thousand rows."""


class Prunable(NamedTuple):
    """What there is to prune; the columns of ``prunable.sql``."""

    timed: bool  # finished jobs with a time of their own, which is over
    dead: bool  # jobs that have been dead for too long
    default: bool  # rows in the default partition, of whatever age
    stats: bool  # counts that are too old
    operations: bool = False  # that ended long ago


class Stretch(NamedTuple):
    """What has come of one stretch of the default partition."""

    removed: int
    next_page: int | None  # where the next one begins; None: that was the last


class Pruned(NamedTuple):
    """How many jobs were removed."""

    timed: int  # finished ones with a time of their own
    dead: int
    default: int  # of the default partition
    stats: int  # rows of counts, which are no jobs


def look(database: Database, *, dead_days: int | None, stats_days: int) -> Prunable:
    """Return what there is to prune."""
    parameters = {"days": dead_days, "stats_days": stats_days, "operation_days": OPERATION_DAYS}
    [row] = database.rows(statement("prunable"), parameters)
    return Prunable._make(row)


def prune_timed(database: Database, *, limit: int) -> int:
    """Remove up to ``limit`` finished jobs whose own time is over; return how many."""
    return len(database.rows(sized("prune_timed", ladder_size(limit)), {}))


def prune_dead(database: Database, *, days: int, limit: int) -> int:
    """Remove up to ``limit`` jobs that have been dead for so many days, 1 or more; return how many."""
    return len(database.rows(sized("prune_dead", ladder_size(limit)), {"days": days}))


def prune_stats(database: Database, *, days: int, limit: int) -> int:
    """Remove up to ``limit`` rows of counts that are so many days old, 1 or more, by the hour; return how many."""
    return len(database.rows(sized("prune_stats", ladder_size(limit)), {"days": days}))


def prune_default(database: Database, *, retention_days: int, page: int) -> Stretch:
    """Remove what is older than the retention from the pages of the default partition from ``page`` on."""
    parameters = {"retention_days": retention_days, "page": page}
    [(removed, pages)] = database.rows(statement("prune_default"), parameters)
    return Stretch(removed, page + STRETCH if page + STRETCH < pages else None)


def prune_all(database: Database, *, retention_days: int, dead_days: int | None, stats_days: int) -> Pruned:
    """Remove all that is old enough, slice after slice, however long that takes."""
    timed = _through(lambda: prune_timed(database, limit=LARGEST))
    dead = _through(lambda: prune_dead(database, days=dead_days, limit=LARGEST)) if dead_days is not None else 0
    counts = _through(lambda: prune_stats(database, days=stats_days, limit=LARGEST))
    default = 0
    page: int | None = 0
    while page is not None:
        removed, page = prune_default(database, retention_days=retention_days, page=page)
        default += removed
    return Pruned(timed, dead, default, counts)


def _through(prune_slice: Callable[[], int]) -> int:
    total = 0
    while removed := prune_slice():
        total += removed
    return total
