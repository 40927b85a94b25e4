"""Whether a queue has run dry."""

from collections.abc import Sequence

from django_pgqueue.db import Database
from django_pgqueue.lifecycle.sql import statement


def is_drained(database: Database, *, queues: Sequence[str], worker_ids: Sequence[int]) -> bool:
    """Whether nothing is claimable or due in these queues (all, if none are named), nor running in these processes."""
    parameters = {"queues": list(queues) or None, "worker_ids": list(worker_ids)}
    [(unfinished,)] = database.rows(statement("unfinished"), parameters)
    return not unfinished
