"""Add counts per minute to ``pgqueue_stats``, and the buckets of their histograms."""

import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from django_pgqueue.db.connections import Parameters, QueueConnection, number_array
from django_pgqueue.db.queries import statement

BOUNDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0),
)
"""Upper ends of the buckets, in seconds, themselves included; one more bucket takes all that is longer.

What is stored is counted by these: a change of them would need other columns.
"""

BUCKETS: Final = len(BOUNDS) + 1

SIZES: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
"""The same for how many there are at once."""

LOCK_MILLISECONDS = 100
"""Timeout of the wait for the row of a minute that another process is just adding to."""


def counted(seconds: Iterable[float]) -> Counter[int]:
    """Return by bucket, from 0, how many there are; buckets without any are left out."""
    return Counter([bisect_left(BOUNDS, one) for one in seconds])


def percentile(counts: Sequence[float], share: float, *, bounds: Sequence[float] = BOUNDS) -> float | None:
    """Return which value a share of all does not exceed, about: as if they lay evenly in their bucket.

    Args:
        counts: of each bucket, in order; what is missing at the end is zero.
        share: 0.95 for the 95th percentile; above 0, 1 at most.
        bounds: upper ends of the buckets.

    Returns:
        None where there are none. The highest bound for what lies beyond it: nothing more is known.

    Source: https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile
    """
    rank, below = share * math.fsum(counts), 0.0
    for bucket, count in enumerate(counts):
        if count and below + count >= rank:
            if bucket >= len(bounds):
                return bounds[-1]
            lower = bounds[bucket - 1] if bucket else 0.0
            return lower + (bounds[bucket] - lower) * (rank - below) / count
        below += count
    return None


# Sums per minute

Key = tuple[int, str, str]
"""Minutes since 1970, queue, task."""

COLUMNS = SUCCEEDED, FAILED, RETRIED, DIED, LOST, STALE, WAIT_SECONDS, RUN_SECONDS = range(8)
"""Where in a list of sums each of them stands; behind these, how many jobs there are in each bucket."""

NAMES = ("succeeded", "failed", "retried", "died", "lost", "stale", "wait_seconds", "run_seconds")

WAIT_BUCKETS = len(NAMES)
RUN_BUCKETS = WAIT_BUCKETS + BUCKETS
WIDTH = RUN_BUCKETS + BUCKETS


def add(
    database: QueueConnection, counted: Mapping[Key, Sequence[float]], *, lock_milliseconds: int = LOCK_MILLISECONDS
) -> float:
    """Add sums to those of their minutes, queues and tasks, in a transaction of its own; there is one at least.

    Args:
        lock_milliseconds: timeout of the wait for a locked row.

    Returns:
        The server's clock, in seconds since 1970, less the monotonic one of this machine.

    Raises:
        django.db.Error: nothing was added, also where a row was locked for too long.
    """
    with database.transaction():
        database.send(statement("lock_timeout"), {"milliseconds": lock_milliseconds})
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
