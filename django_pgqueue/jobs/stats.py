"""Counts of attempts and jobs: buffered in each process, added to ``pgqueue_stats`` by the minute, shared for metrics.

They are figures for charts, not accounts: a process that is killed loses its counts since the last addition.
"""

import json
import logging
import math
import random
import threading
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from multiprocessing.sharedctypes import RawArray
from typing import Any, Final

from django.db import Error

from django_pgqueue.db.connections import Parameters, QueueConnection, number_array
from django_pgqueue.db.errors import is_locked, is_transient, one_line
from django_pgqueue.db.queries import statement
from django_pgqueue.records import EndCounts, Fate, Outcome
from django_pgqueue.states import DeathReason

BOUNDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0),
)
"""Upper ends of the buckets, in seconds, themselves included; one more bucket takes all that is longer.

Stored counts depend on these: a change of them would need other columns.
"""

BUCKETS: Final = len(BOUNDS) + 1

SIZES: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
"""The same for how many there are at once."""

LOCK_MILLISECONDS = 100  # timeout of the wait for the row of a minute that another process is just adding to


def bucket_counts(seconds: Iterable[float]) -> Counter[int]:
    """Return the number in each bucket, counted from 0; empty buckets are left out."""
    return Counter([bisect_left(BOUNDS, one) for one in seconds])


def percentile(counts: Sequence[float], share: float, *, bounds: Sequence[float] = BOUNDS) -> float | None:
    """Return about the value that a share of all does not exceed: as if they lay evenly in their bucket.

    Args:
        counts: of each bucket, in order; those missing at the end are zero.
        share: 0.95 for the 95th percentile; above 0, 1 at most.

    Returns:
        None where all counts are 0. The highest bound for what lies beyond it: nothing more is known.

    Source: https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile
    """
    rank, below = share * math.fsum(counts), 0.0
    for bucket, count in enumerate(counts):
        if count and below + count >= rank:
            if bucket >= len(bounds):
                return bounds[-1]
            lower = bounds[bucket - 1] if bucket else 0.0
            return min(lower + (bounds[bucket] - lower) * (rank - below) / count, bounds[bucket])
        below += count
    return None


# Sums per minute

Key = tuple[int, str, str]  # minutes since 1970, queue, task

COLUMNS = SUCCEEDED, FAILED, RETRIED, DIED, LOST, STALE, WAIT_SECONDS, RUN_SECONDS = range(8)
"""Index of each sum in a list of sums; behind these, the number of jobs in each bucket."""

NAMES = ("succeeded", "failed", "retried", "died", "lost", "stale", "wait_seconds", "run_seconds")
WAIT_BUCKETS = len(NAMES)
RUN_BUCKETS = WAIT_BUCKETS + BUCKETS
WIDTH = RUN_BUCKETS + BUCKETS


def add_counts(
    database: QueueConnection, counted: Mapping[Key, Sequence[float]], *, lock_milliseconds: int = LOCK_MILLISECONDS
) -> float:
    """Add sums, at least one, to those of their minutes, queues and tasks, in a transaction of its own.

    Returns the server's clock, in seconds since 1970, less the monotonic one of this machine. Where a row was locked
    for longer than ``lock_milliseconds``, or another ``django.db.Error`` is raised, nothing was added.
    """
    with database.transaction(lock_milliseconds=lock_milliseconds):
        parameters, sent_at = _parameters(counted), time.monotonic()
        (clock,), *_ = database.rows(statement("add_stats"), parameters)
    return float(clock) - sent_at


def _parameters(counted: Mapping[Key, Sequence[float]]) -> Parameters:
    keys = sorted(counted)
    minutes, queues, tasks = zip(*keys, strict=True)
    rows = [counted[key] for key in keys]
    sums = zip(*(row[:WAIT_BUCKETS] for row in rows), strict=True)
    return {
        "minutes": number_array(minutes),
        "queues": list(queues),
        "tasks": list(tasks),
        "wait_buckets": [_buckets(row[WAIT_BUCKETS:RUN_BUCKETS]) for row in rows],
        "run_buckets": [_buckets(row[RUN_BUCKETS:]) for row in rows],
        **dict(zip(NAMES, map(number_array, sums), strict=True)),
    }


def _buckets(counts: Sequence[float]) -> str:
    """Return an array without the zeros at its end: most rows have but a few buckets, and there are many rows."""
    last = max((bucket for bucket, count in enumerate(counts) if count), default=-1)
    return number_array(counts[: last + 1])


# Counters
#
# Plain aligned stores: each number is whole, and what a reader sees of numbers that belong together may be a job apart.
# Outcomes are counted by one thread, without a lock; enqueued jobs by any.

Kind = tuple[str, str]  # queue and task

ENQUEUED: Final = WIDTH  # behind what the counts of the tables have too
ROW_WIDTH: Final = WIDTH + 1
ROWS = 500  # maximum number of pairs of queue and task with sums of their own; others share the first row
NAME_BYTES = 1024
OTHERS: Final = ("", "")

HISTOGRAMS = CLAIM, ACK, BOTH, CLAIMED, ACKED = range(5)
"""Of the process: how long cycles took that did the one, the other or both, and how many jobs and outcomes they had."""

HISTOGRAM_WIDTH: Final = 1 + 1 + max(len(BOUNDS), len(SIZES))  # a sum, and buckets: one more than bounds


class ProcessCounters:
    """One row of sums for each queue and task, laid out as above, since the process began."""

    def __init__(self) -> None:
        self._open(
            (
                RawArray("d", ROWS * ROW_WIDTH),
                RawArray("b", ROWS * NAME_BYTES),
                RawArray("q", 1),
                RawArray("d", len(HISTOGRAMS) * HISTOGRAM_WIDTH),
            )
        )
        self._take(0, _name(*OTHERS))

    def _open(self, memory: tuple[Any, ...]) -> None:
        self._memory = memory
        sums, names, used, histograms = (memoryview(array).cast("B") for array in memory)
        self._sums = sums.cast("d")
        self._names = names
        self._used = used.cast("q")
        self._histograms = histograms.cast("d")
        self._rows: dict[Kind, memoryview[float]] = {}
        self._is_ours = True
        self._lock = threading.Lock()  # of new rows, and of enqueued jobs

    def __getstate__(self) -> tuple[Any, ...]:
        return self._memory

    def __setstate__(self, memory: tuple[Any, ...]) -> None:
        self._open(memory)

    def row(self, queue: str, task: str) -> "memoryview[float]":
        if (row := self._rows.get((queue, task))) is None:
            with self._lock:
                row = self._row(queue, task)
        return row

    def enqueued(self, queue: str, task: str, number: int) -> None:
        if self._is_ours:
            with self._lock:
                self._row(queue, task)[ENQUEUED] += number

    def count_cycle(self, seconds: float, *, claimed: int | None, acked: int) -> None:
        """Count a cycle of the consumer; ``claimed`` is None where it has sent no claim."""
        if claimed is not None:
            self._observe(CLAIMED, SIZES, claimed)
        if acked:
            self._observe(ACKED, SIZES, acked)
        if acked or claimed is not None:
            self._observe(ACK if claimed is None else BOTH if acked else CLAIM, BOUNDS, seconds)

    def disown(self) -> None:
        """Count nothing more in a copy of this process that a job has made by fork, and that shares the memory."""
        self._is_ours = False

    def rows(self) -> Iterator[tuple[str, str, list[float]]]:
        for place in range(self._used[0]):
            if any(sums := list(self._at(place))):
                name = bytes(self._names[place * NAME_BYTES : (place + 1) * NAME_BYTES]).rstrip(b"\0")
                queue, task = json.loads(name)
                yield queue, task, sums

    def histograms(self) -> list[list[float]]:
        return [list(self._histograms[which * HISTOGRAM_WIDTH : (which + 1) * HISTOGRAM_WIDTH]) for which in HISTOGRAMS]

    def _observe(self, which: int, bounds: Sequence[float], value: float) -> None:
        first = which * HISTOGRAM_WIDTH
        self._histograms[first] += value
        self._histograms[first + 1 + bisect_left(bounds, value)] += 1

    def _at(self, place: int) -> "memoryview[float]":
        return self._sums[place * ROW_WIDTH : (place + 1) * ROW_WIDTH]

    def _row(self, queue: str, task: str) -> "memoryview[float]":
        """Find a row, or take one; the lock is held."""
        if (row := self._rows.get((queue, task))) is None:
            place = self._used[0]
            if place == ROWS or len(name := _name(queue, task)) > NAME_BYTES:
                return self._at(0)  # and remember none of those that find no room: there may be any number
            self._take(place, name)
            row = self._rows[queue, task] = self._at(place)
        return row

    def _take(self, place: int, name: bytes) -> None:
        """Write a name, and only then let readers use it."""
        self._names[place * NAME_BYTES : place * NAME_BYTES + len(name)] = name
        self._used[0] = place + 1


def _name(queue: str, task: str) -> bytes:
    return json.dumps([queue, task], ensure_ascii=False).encode()


# Tally
#
# Counting is on the hot path: outcomes are sorted by task, then summed up, with no call for any of them.

logger = logging.getLogger("django_pgqueue.worker")

ADD_SECONDS = 10.0
REFUSED_SECONDS = 3600.0

LAST_MILLISECONDS = 3000
"""Timeout of the wait for a row when a process ends: it has no next time, and others that end add to the same rows."""

MOST = 5000  # maximum number of sums, by minute, queue and task, kept until they can be added; more are not counted
LONGEST = 600  # characters of queue and task together; longer ones are not counted: they may not fit the index

FAILURES = {DeathReason.EXHAUSTED, DeathReason.DISCARDED}
"""A job that died of another reason did so without a failed attempt: it was killed, or never started."""


class StatsBuffer:
    """Sums of one thread until they are added. ``database`` has the clock; ``meter`` counts for the metrics too."""

    def __init__(self, database: QueueConnection, meter: ProcessCounters | None = None) -> None:
        self._database = database
        self._meter = meter
        self._counted: dict[Key, list[float]] = {}
        self._add_at = 0.0  # not before, monotonic

    def count(self, outcomes: Collection[Outcome], *, stale: Collection[int]) -> None:
        """Count outcomes that have just been written; those in ``stale`` were dropped: their lease is gone."""
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
        minute = self._minute()
        for column, kinds in ((LOST, ends.lost), (FAILED, ends.failed), (RETRIED, ends.retried), (DIED, ends.died)):
            for queue, task in kinds:
                self._add((minute, queue, task), ((column, 1),))

    def add_at(self) -> float:
        """Return when to add the counts, monotonic; infinity if there are none."""
        return self._add_at if self._counted else math.inf

    def add(self, *, is_last: bool = False) -> None:
        """Add the counts to the table, or keep those of a locked row; raises if the database fails."""
        if not self._counted:
            return
        self._add_at = time.monotonic() + ADD_SECONDS
        try:
            patience = LAST_MILLISECONDS if is_last else LOCK_MILLISECONDS
            self._database.clock_offset = add_counts(self._database, self._counted, lock_milliseconds=patience)
        except Error as error:
            if is_locked(error):
                return
            if is_transient(error):
                raise
            logger.warning("Outcomes are not counted for an hour: %s", one_line(error))
            self._add_at = time.monotonic() + REFUSED_SECONDS
        self._counted.clear()

    def _minute(self) -> int:
        return int((time.monotonic() + self._database.clock_offset) // 60)

    def _count(self, key: Key, outcomes: list[Outcome]) -> None:
        succeeded, number = Fate.SUCCEEDED, len(outcomes)
        if others := [outcome for outcome in outcomes if outcome.fate is not succeeded]:
            number -= len(others)
            outcomes = [outcome for outcome in outcomes if outcome.fate is succeeded]
            outcomes += [outcome for outcome in others if self._has_run(key, outcome)]
        if outcomes:
            offset = self._database.clock_offset
            waits = [
                max(job.claimed_at + offset - max(job.run_at, job.enqueued_at or job.run_at), 0.0)
                for job in [outcome.job for outcome in outcomes]
            ]
            runs = [outcome.run_seconds for outcome in outcomes]
            self._add(key, ((SUCCEEDED, number), (WAIT_SECONDS, sum(waits)), (RUN_SECONDS, sum(runs))))
            for first, seconds in ((WAIT_BUCKETS, waits), (RUN_BUCKETS, runs)):
                self._add(key, ((first + bucket, many) for bucket, many in bucket_counts(seconds).items()))

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
