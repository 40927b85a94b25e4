"""Whether a queue has run dry."""

from collections.abc import Sequence

from django_pgqueue.db.connections import Database
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs.queue_selector import Served


def is_drained(database: Database, *, served: Served, worker_ids: Sequence[int]) -> bool:
    """Whether nothing is claimable or due in these queues, but for paused ones, nor running in these processes."""
    parameters = served.parameters() | {"worker_ids": list(worker_ids)}
    [(unfinished,)] = database.rows(statement("unfinished"), parameters)
    return not unfinished
