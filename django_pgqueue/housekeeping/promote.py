"""Scheduled jobs that are due become claimable."""

from django_pgqueue.base.states import CHANNEL
from django_pgqueue.db import Database
from django_pgqueue.lifecycle.sql import sized, statement

SLICE = 1000


def promote(database: Database) -> dict[str, int]:
    """Make up to 1,000 due jobs claimable; return how many on each queue."""
    return dict(database.rows(sized("promote", SLICE), {}))


def next_due_seconds(database: Database) -> float | None:
    """Return the seconds until the next scheduled job is due (0 or less: now), None where none waits."""
    [(seconds,)] = database.rows(statement("next_due"), {})
    return seconds  # type: ignore[no-any-return]


def announce(database: Database, queues: set[str]) -> None:
    """Wake the workers of these queues, in a transaction that does nothing else."""
    database.rows(
        "SELECT pg_notify(%(channel)s, queue) FROM unnest(%(queues)s::text[]) AS queue",
        {"channel": CHANNEL, "queues": sorted(queues)},
    )
