"""Delete rows that are older than their retention.

A whole day of history goes with its partition, see ``partitions``. The pruner deletes rows among others that stay, and
those in the default partition.

The time of a succeeded job is in its row: the ack makes ``prune_at`` of ``keep_seconds``, which enqueueing has stored.
So any worker can prune, also one that does not know the task, and a call may differ from its task. Rows without a time,
which almost all are, have no entry in the index, which holds only rows that will be pruned, in that order.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import psycopg
from django.db import ProgrammingError

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import Database, QueueConnection
from django_pgqueue.db.queries import ladder_size, sized, statement
from django_pgqueue.services import AdaptiveBatch

logger = logging.getLogger("django_pgqueue.worker")

BULK_ACTION_DAYS = 30
STRETCH = 64  # pages of the default partition that one statement reads: a few thousand rows

PRUNE_SECONDS = 60.0
DEFAULT_SECONDS = 3600.0  # between passes through the default partition, where it has rows at all: it is read whole
REFUSED_SECONDS = 3600.0
SPELL_SECONDS = 0.5


class Prunable(NamedTuple):
    """Kinds of rows to prune; the columns of ``prunable.sql``."""

    timed: bool  # succeeded jobs with a time of their own, which is over
    dead: bool  # jobs that have been dead for too long
    default: bool  # rows in the default partition, of any age
    stats: bool  # counts that are too old
    bulk_actions: bool = False  # that ended long ago
    once_keys: bool = False  # that were taken long ago
    workflows: bool = False  # that ended long ago


class PrunedRange(NamedTuple):
    """Result of one stretch of the default partition."""

    removed: int
    next_page: int | None  # where the next one begins; None: that was the last


class PrunedRows(NamedTuple):
    removed: int = 0
    has_more: bool = False  # there may be


NOTHING = PrunedRows()


@dataclass
class PruneResult:
    timed: PrunedRows = NOTHING
    dead: PrunedRows = NOTHING
    default: PrunedRows = NOTHING
    stats: PrunedRows = NOTHING
    bulk_actions: PrunedRows = NOTHING
    once_keys: PrunedRows = NOTHING
    workflows: PrunedRows = NOTHING

    @property
    def has_more(self) -> bool:
        return any(kind.has_more for kind in vars(self).values())


def look(
    database: Database,
    *,
    dead_days: int | None,
    stats_days: int,
    once_days: int | None = None,
    workflow_days: int | None = None,
) -> Prunable:
    days = {
        "days": dead_days,
        "stats_days": stats_days,
        "bulk_action_days": BULK_ACTION_DAYS,
        "once_days": once_days,
        "workflow_days": workflow_days,
    }
    [row] = database.rows(statement("prunable"), days)
    return Prunable._make(row)


def delete_slice(database: Database, name: str, *, limit: int, **parameters: int | None) -> int:
    """Remove up to ``limit`` old rows, 1 to 1,000, by the statement with this name; return how many."""
    return len(database.rows(sized(name, ladder_size(limit)), parameters))


def prune_default(database: Database, *, retention_days: int, page: int) -> PrunedRange:
    """Remove rows older than the retention from the pages of the default partition from ``page`` on."""
    parameters = {"retention_days": retention_days, "page": page}
    [(removed, pages)] = database.rows(statement("prune_default"), parameters)
    return PrunedRange(removed, page + STRETCH if page + STRETCH < pages else None)


class Pruner:
    """Prunes rows that are older than their retention: jobs, the default partition, counts, keys and workflows.

    Args:
        database: a connection of a role that may remove them.
        spell_seconds: maximum time that each kind of rows takes of a pass, but for the slice under way.
    """

    def __init__(self, database: QueueConnection, *, spell_seconds: float = SPELL_SECONDS) -> None:
        self._database = database
        self._spell_seconds = spell_seconds
        self._batch = AdaptiveBatch()
        self._default_at = 0.0  # not before, monotonic
        self._page = 0  # of the default partition, where to go on

    def pass_once(self) -> float | None:
        try:
            return 0.0 if self.prune().has_more else None
        except ProgrammingError as error:
            if not isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                raise
            logger.warning("Jobs cannot be pruned by age: %s. The worker's role must own the tables.", error)
            return REFUSED_SECONDS

    def prune(self) -> PruneResult:
        """Do a pass. Rows other than jobs come last: a role may have the right to remove jobs only."""
        dead_days, stats_days, once_days = conf.dead_retention_days, conf.stats_days, conf.once_days
        workflow_days = max(conf.retention_days, 1)
        there = look(
            self._database,
            dead_days=dead_days,
            stats_days=stats_days,
            once_days=once_days,
            workflow_days=workflow_days,
        )
        pruned = PruneResult()
        if there.timed:
            pruned.timed = self._in_slices("succeeded jobs", "prune_timed")
        if there.dead:
            pruned.dead = self._in_slices("dead jobs", "prune_dead", days=dead_days)
        if there.default and time.monotonic() >= self._default_at:
            pruned.default = self._spell("succeeded jobs of the default partition", self._prune_stretch)
        if there.stats:
            pruned.stats = self._in_slices("rows of counts", "prune_stats", days=stats_days)
        if there.bulk_actions:
            pruned.bulk_actions = self._in_slices("bulk actions", "prune_bulk_actions", days=BULK_ACTION_DAYS)
        if there.once_keys:
            pruned.once_keys = self._in_slices("once keys", "prune_once_keys", days=once_days)
        if there.workflows:
            self._prune_workflows(pruned, workflow_days)
        return pruned

    def _prune_workflows(self, pruned: PruneResult, days: int) -> None:
        """Prune kept calls first: a workflow with all of its calls could run again, and would miss the results."""
        for kind, name in (
            ("kept calls of members", "prune_kept_calls"),
            ("results of members", "prune_stage_results"),
        ):
            if self._in_slices(kind, name, days=days).has_more:
                pruned.workflows = PrunedRows(0, has_more=True)
                return
        pruned.workflows = self._in_slices("workflows", "prune_workflows", days=days)

    def _in_slices(self, kind: str, name: str, **parameters: int | None) -> PrunedRows:
        def prune_slice() -> PrunedRows:
            with self._batch.taken() as limit:
                removed = delete_slice(self._database, name, limit=limit, **parameters)
            return PrunedRows(removed, has_more=removed > 0)

        return self._spell(kind, prune_slice)

    def _prune_stretch(self) -> PrunedRows:
        removed, next_page = prune_default(self._database, retention_days=conf.retention_days, page=self._page)
        self._page = next_page or 0
        if next_page is None:
            self._default_at = time.monotonic() + DEFAULT_SECONDS
        return PrunedRows(removed, has_more=next_page is not None)

    def _spell(self, kind: str, prune_slice: Callable[[], PrunedRows]) -> PrunedRows:
        """Prune one slice after the other, until there is no more or the time for this kind is over."""
        until, removed, has_more = time.monotonic() + self._spell_seconds, 0, True
        while has_more and time.monotonic() < until:
            found, has_more = prune_slice()
            removed += found
        if removed:
            logger.info("Pruned %d %s", removed, kind)
        return PrunedRows(removed, has_more)
