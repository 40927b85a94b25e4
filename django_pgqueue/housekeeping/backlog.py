"""How long jobs have to wait, and how many there are."""

from collections.abc import Iterable
from typing import NamedTuple

from django_pgqueue.db.connections import Database
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs.queue_selector import Served


def oldest_runnable(database: Database, served: Served) -> float:
    """Return for how many seconds the job has waited that could have run for longest; 0 where none waits.

    Args:
        served: the queues to look at; those that are paused do not count.
    """
    [(seconds,)] = database.rows(statement("oldest_runnable"), served.parameters())
    return seconds or 0.0


class Counts(NamedTuple):
    """How many jobs of one queue there are, each number up to the limit that was asked for."""

    queued: int
    running: int
    waiting: int


def counts(database: Database, queues: Iterable[str], *, limit: int) -> dict[str, Counts]:
    """Count the jobs of queues, up to ``limit`` of each kind: no backlog makes it take long."""
    rows = database.rows(statement("queue_counts"), {"names": list(queues), "limit": limit})
    return {name: Counts(*numbers) for name, *numbers in rows}
