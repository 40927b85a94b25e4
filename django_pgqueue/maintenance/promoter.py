"""Promote scheduled jobs that are due: they become claimable, or wait to be admitted."""

from collections import Counter
from typing import NamedTuple

from django_pgqueue.db.connections import Database
from django_pgqueue.db.queries import ladder_size, sized


class PromoteResult(NamedTuple):
    queues: dict[str, int]  # how many jobs became claimable on each
    keys: dict[str, int]  # how many wait for each concurrency key


def promote(database: Database, *, limit: int = 1000) -> PromoteResult:
    """Make up to ``limit`` due jobs claimable, which may be 1 to 1,000; those with a concurrency key wait."""
    rows = database.rows(sized("promote", ladder_size(limit)), {})
    queues = {queue: number for queue, key, number in rows if key is None}
    keys = Counter[str]()
    for _, key, number in rows:
        if key is not None:
            keys[key] += number
    return PromoteResult(queues, dict(keys))
