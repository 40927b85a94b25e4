"""Add what was counted to ``pgqueue_stats``."""

import time
from collections.abc import Mapping, Sequence

from django_pgqueue.db import Parameters, QueueConnection, number_array
from django_pgqueue.lifecycle.sql import statement

Key = tuple[int, str, str]
"""Minutes since 1970, queue, task."""

COLUMNS = SUCCEEDED, FAILED, RETRIED, DIED, LOST, WAIT_SECONDS, RUN_SECONDS = range(7)
"""Where in a list of sums each of them stands."""

NAMES = ("succeeded", "failed", "retried", "died", "lost", "wait_seconds", "run_seconds")

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
    sums = zip(*map(counted.__getitem__, keys), strict=True)
    return {
        "minutes": number_array(minutes),
        "queues": list(queues),
        "tasks": list(tasks),
        **dict(zip(NAMES, map(number_array, sums), strict=True)),
    }
