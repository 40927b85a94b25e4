"""Prunes jobs by age for one command: looks once a minute, and works in short spells while there is something."""

import functools
import logging
import time
from collections.abc import Callable

import psycopg
from django.db import ProgrammingError

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.housekeeping import prune
from django_pgqueue.housekeeping.operations import prune_operations
from django_pgqueue.services import Slice

logger = logging.getLogger("django_pgqueue.worker")

LOOK_SECONDS = 60.0
DEFAULT_SECONDS = 3600.0
"""How often to go through the default partition, where it has rows at all: it is read whole."""

REFUSED_SECONDS = 3600.0
SPELL_SECONDS = 0.5


class Pruning:
    """Prunes finished jobs whose own time is over, jobs dead for too long, old counts, and the default partition.

    Args:
        database: a connection of a role that may remove them.
    """

    def __init__(self, database: QueueConnection) -> None:
        self._database = database
        self._slice = Slice()
        self._look_at = self._default_at = 0.0  # not before, monotonic
        self._page = 0  # of the default partition, where to go on

    def prune(self) -> float | None:
        """Prune for a short while what there is; return 0 if there is more."""
        if time.monotonic() < self._look_at:
            return None
        self._look_at = time.monotonic() + LOOK_SECONDS
        try:
            has_more = self._prune()
        except ProgrammingError as error:
            if not isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                raise
            self._look_at = time.monotonic() + REFUSED_SECONDS
            logger.warning("Jobs cannot be pruned by age: %s. The worker's role must own the tables.", error)
            return None
        if not has_more:
            return None
        self._look_at = 0.0
        return 0.0

    def _prune(self) -> bool:
        days, stats_days = conf.dead_retention_days, conf.stats_days
        there = prune.look(self._database, dead_days=days, stats_days=stats_days)
        has_more = False
        if there.timed:
            has_more |= self._in_slices("finished jobs", functools.partial(prune.prune_timed, self._database))
        if there.dead and days is not None:
            has_more |= self._in_slices("dead jobs", functools.partial(prune.prune_dead, self._database, days=days))
        if there.default and time.monotonic() >= self._default_at:
            has_more |= self._go_through_default()
        if there.stats:  # what is no job comes last: a role that may not remove it may remove jobs
            pass_once = functools.partial(prune.prune_stats, self._database, days=stats_days)
            has_more |= self._in_slices("rows of counts", pass_once)
        if there.operations:
            has_more |= prune_operations(self._database, days=prune.OPERATION_DAYS) > 0
        return has_more

    def _in_slices(self, kind: str, prune_slice: Callable[..., int]) -> bool:
        """Prune slices for a short while; return whether there may be more."""
        until, removed, is_full = time.monotonic() + SPELL_SECONDS, 0, True
        while is_full and time.monotonic() < until:
            with self._slice.taken() as limit:
                found = prune_slice(limit=limit)
            removed, is_full = removed + found, found > 0
        logger.info("Pruned %d %s", removed, kind)
        return is_full

    def _go_through_default(self) -> bool:
        """Go on through the default partition for a short while; return whether there is more of it."""
        until, removed = time.monotonic() + SPELL_SECONDS, 0
        page: int | None = self._page
        while page is not None and time.monotonic() < until:
            stretch = prune.prune_default(self._database, retention_days=conf.retention_days, page=page)
            removed, page = removed + stretch.removed, stretch.next_page
        if removed:
            logger.info("Pruned %d finished jobs of the default partition", removed)
        self._page = page or 0
        if page is None:
            self._default_at = time.monotonic() + DEFAULT_SECONDS
        return page is not None
