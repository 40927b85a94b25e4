"""Count attempts and jobs as their outcomes are written, and add the sums to ``pgqueue_stats`` now and then.

Counting is on the hot path: outcomes are sorted by task, then summed up, with no call for any of them. A process that
is killed loses what it has counted since it has last added: these are figures for charts, not accounts.
"""

import logging
import math
import random
import time
from collections import defaultdict
from collections.abc import Collection, Iterable

from django.db import Error

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.errors import is_locked, is_transient, one_line
from django_pgqueue.jobs import stats
from django_pgqueue.jobs.counters import ProcessCounters
from django_pgqueue.jobs.stats import (
    DIED,
    FAILED,
    LOST,
    RETRIED,
    RUN_BUCKETS,
    RUN_SECONDS,
    STALE,
    SUCCEEDED,
    WAIT_BUCKETS,
    WAIT_SECONDS,
    WIDTH,
    Key,
    counted,
)
from django_pgqueue.records import EndCounts, Fate, Outcome
from django_pgqueue.states import Reason

logger = logging.getLogger("django_pgqueue.worker")

ADD_SECONDS = 10.0
REFUSED_SECONDS = 3600.0

LAST_MILLISECONDS = 3000
"""Timeout of the wait for a row when a process ends: it has no next time, and others that end add to the same rows."""

MOST = 5000
"""Maximum number of sums, by minute, queue and task, kept until they can be added; what exceeds it is not counted."""

LONGEST = 600
"""Maximum length of queue and task together, in characters. Longer ones are not counted: they may not fit the index."""

FAILURES = {Reason.EXHAUSTED, Reason.DISCARDED}
"""A job that died of another reason did so without a failed attempt: it was killed, or never started."""


class StatsBuffer:
    """Kept by one thread.

    Args:
        database: whose clock says which minute it is, and where the counts go.
        meter: counts the same, for the page of metrics; None: there is none.
    """

    def __init__(self, database: QueueConnection, meter: ProcessCounters | None = None) -> None:
        self._database = database
        self._meter = meter
        self._counted: dict[Key, list[float]] = {}
        self._add_at = 0.0  # not before, monotonic

    def count(self, outcomes: Collection[Outcome], *, stale: Collection[int]) -> None:
        """Count outcomes that have just been written.

        Args:
            stale: the ids of those that were dropped, because their lease is gone.
        """
        if stale:
            outcomes = self._without_stale(outcomes, stale)
        found: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
        queue = None
        for outcome in outcomes:
            job = outcome.job
            if job.queue is not queue:  # of one claim it is, and almost always of all
                queue = job.queue
                by_task = found[queue]
            by_task[job.task].append(outcome)
        minute = self._minute()
        for name, batches in found.items():
            for task, batch in batches.items():
                self._count((minute, name, task), batch)

    def count_ends(self, ends: EndCounts) -> None:
        """Count what maintenance has ended."""
        minute = self._minute()
        for column, kinds in ((LOST, ends.lost), (FAILED, ends.failed), (RETRIED, ends.retried), (DIED, ends.died)):
            for queue, task in kinds:
                self._add((minute, queue, task), ((column, 1),))

    def add_at(self) -> float:
        """Return when to add what was counted, monotonic; infinity if there is nothing."""
        return self._add_at if self._counted else math.inf

    def add(self, *, is_last: bool = False) -> None:
        """Add what was counted to the table; what cannot be added now is kept for the next time.

        Args:
            is_last: there is no next time.

        Raises:
            django.db.Error: there is trouble with the database.
        """
        if not self._counted:
            return
        self._add_at = time.monotonic() + ADD_SECONDS
        try:
            patience = LAST_MILLISECONDS if is_last else stats.LOCK_MILLISECONDS
            self._database.clock_offset = stats.add(self._database, self._counted, lock_milliseconds=patience)
        except Error as error:
            if is_locked(error):
                return
            if is_transient(error):
                raise
            logger.warning("What jobs have come to is not counted for an hour: %s", one_line(error))
            self._add_at = time.monotonic() + REFUSED_SECONDS
        self._counted.clear()

    def _minute(self) -> int:
        """Return which minute it is by the database's clock."""
        return int((time.monotonic() + self._database.clock_offset) // 60)

    def _count(self, key: Key, outcomes: list[Outcome]) -> None:
        """Count outcomes of one queue and task; where all have succeeded, as almost always, it is three sums."""
        succeeded, number = Fate.SUCCEEDED, len(outcomes)
        if others := [outcome for outcome in outcomes if outcome.fate is not succeeded]:
            number -= len(others)
            outcomes = [outcome for outcome in outcomes if outcome.fate is succeeded]
            outcomes += [outcome for outcome in others if self._has_run(key, outcome)]
        if outcomes:
            offset = self._database.clock_offset
            waits = [max(outcome.job.claimed_at - outcome.job.run_at + offset, 0.0) for outcome in outcomes]
            runs = [outcome.run_seconds for outcome in outcomes]
            self._add(key, ((SUCCEEDED, number), (WAIT_SECONDS, sum(waits)), (RUN_SECONDS, sum(runs))))
            for first, seconds in ((WAIT_BUCKETS, waits), (RUN_BUCKETS, runs)):
                self._add(key, ((first + bucket, many) for bucket, many in counted(seconds).items()))

    def _has_run(self, key: Key, outcome: Outcome) -> bool:
        """Count an outcome that is not a plain success; return whether there was a run that has come to its end."""
        match outcome.fate:
            case Fate.REPEATED | Fate.RECORDED:
                self._add(key, ((SUCCEEDED, 1),))
                return True
            case Fate.RETRIED:
                self._add(key, ((FAILED, 1), (RETRIED, 1)))
                return True
            case Fate.DIED:
                has_failed = outcome.reason is None or outcome.reason in FAILURES
                self._add(key, ((DIED, 1), (FAILED, int(has_failed))))
                return has_failed
        return False

    def _without_stale(self, outcomes: Collection[Outcome], stale: Collection[int]) -> list[Outcome]:
        """Count the results that were dropped, and return the others; to give a job back is no result."""
        minute = self._minute()
        for outcome in outcomes:
            if outcome.job.id in stale and outcome.fate is not Fate.RELEASED:
                self._add((minute, outcome.job.queue, outcome.job.task), ((STALE, 1),))
        return [outcome for outcome in outcomes if outcome.job.id not in stale]

    def _add(self, key: Key, numbers: Iterable[tuple[int, float]]) -> None:
        """Add numbers to the sums in their places."""
        sums, row = self._sums(key), self._meter.row(*key[1:]) if self._meter else None
        for place, number in numbers:
            sums[place] += number
            if row is not None:
                row[place] += number

    def _sums(self, key: Key) -> list[float]:
        """Return the sums to add to: those of the key, or some that are thrown away where it has no room."""
        if sums := self._counted.get(key):
            return sums
        sums = [0] * WIDTH
        if not self._counted:
            pause = ADD_SECONDS * random.uniform(0.8, 1.0)  # noqa: S311 - jitter
            self._add_at = max(self._add_at, time.monotonic() + pause)
        if len(self._counted) < MOST and len(key[1]) + len(key[2]) <= LONGEST:
            self._counted[key] = sums
        return sums
