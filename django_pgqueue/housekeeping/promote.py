"""Scheduled jobs that are due become claimable."""

from django_pgqueue.db import Database
from django_pgqueue.lifecycle.sql import statement


def promote(database: Database) -> dict[str, int]:
    """Make up to 1,000 due jobs claimable; return how many on each queue."""
    return dict(database.rows(statement("promote"), {}))


def next_due_seconds(database: Database) -> float | None:
    """Return the seconds until the next scheduled job is due (0 or less: now), None where none waits."""
    [(seconds,)] = database.rows(statement("next_due"), {})
    return seconds  # type: ignore[no-any-return]
