"""Add what was counted to ``pgqueue_stats``."""

import time
from collections.abc import Mapping, Sequence

from django_pgqueue.base.buckets import BUCKETS
from django_pgqueue.db.connections import Parameters, QueueConnection, number_array
from django_pgqueue.db.queries import statement

Key = tuple[int, str, str]
"""Minutes since 1970, queue, task."""

COLUMNS = SUCCEEDED, FAILED, RETRIED, DIED, LOST, STALE, WAIT_SECONDS, RUN_SECONDS = range(8)
"""Where in a list of sums each of them stands; behind these, how many jobs there are in each bucket."""

NAMES = ("succeeded", "failed", "retried", "died", "lost", "stale", "wait_seconds", "run_seconds")

WAIT_BUCKETS = len(NAMES)
RUN_BUCKETS = WAIT_BUCKETS + BUCKETS
WIDTH = RUN_BUCKETS + BUCKETS

LOCK_MILLISECONDS = 100
"""So long the row of a minute is waited for that another process is just adding to."""


def add(
    database: QueueConnection, counted: Mapping[Key, Sequence[float]], *, lock_milliseconds: int = LOCK_MILLISECONDS
) -> float:
    """Add sums to those of their minutes, queues and tasks, in a transaction of its own; there is one at least.

    Args:
        lock_milliseconds: so long a row is waited for that somebody else has locked.

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
