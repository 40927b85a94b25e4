"""Bound on the queued jobs of a queue: ``max_backlog`` of ``PGQUEUE["QUEUES"]``.

Jobs are counted before they are inserted, and nothing is locked: so callers that insert at the same moment may exceed
the bound together, each by its own jobs. A queue without the option costs a look into a dict.
"""

from collections.abc import Mapping
from typing import Any

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import Database
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import QueueFull
from django_pgqueue.flow.declared_queues import DeclaredQueue


def max_backlog(queue: str) -> int | None:
    """Return how many jobs of a queue may be queued before it is full; None: any number."""
    options: Any = conf.queues.get(queue)
    if not options or (isinstance(options, dict) and "max_backlog" not in options):
        return None
    return DeclaredQueue.of(queue, options).max_backlog


def count_queued(database: Database, queue: str, *, limit: int) -> int:
    [(number,)] = database.rows(statement("count_queued"), {"queue": queue, "limit": limit})
    return int(number)


def check_backlog(database: Database, numbers: Mapping[str, int]) -> None:
    """Raise QueueFull unless each queue has room.

    Args:
        numbers: of jobs to be inserted, by queue.
    """
    for queue, number in numbers.items():
        most = max_backlog(queue)
        if most is None:
            continue
        queued = count_queued(database, queue, limit=most)
        if queued + number > most:
            told = f"at least {queued}" if queued == most else str(queued)
            message = (
                f"The queue {queue!r} has {told} queued jobs and a max_backlog of {most}: there is no room for "
                f"{number} more. Try again later, add workers, or raise max_backlog in PGQUEUE['QUEUES']."
            )
            raise QueueFull(message, queue, most, queued)
