"""Write into running jobs what they tell of themselves: progress and metadata."""

import time
from collections.abc import Sequence
from typing import Any

from django_pgqueue.db.connections import Answer, Database, QueueConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.lifecycle.context import CurrentJob
from django_pgqueue.lifecycle.fence import fence

TRIES, PAUSE_SECONDS = 10, 0.01
"""So often an atomic task tries, and waits in between: the pump may be writing to the same row."""


def send(database: QueueConnection, runs: Sequence[CurrentJob]) -> Answer:
    """Send the news of these runs in the transaction that is open on ``database``; the answer has the ids written."""
    return database.send(statement("write_progress"), _parameters(runs))


def write_alone(database: Database, current: CurrentJob) -> None:
    """Write the last news of a run in the transaction that removes its job, for what is kept of that to have them."""
    if not current.has_told:
        return
    parameters = _parameters([current])
    for _ in range(TRIES):
        if database.rows(statement("write_progress"), parameters):
            return
        time.sleep(PAUSE_SECONDS)


def _parameters(runs: Sequence[CurrentJob]) -> dict[str, Any]:
    news = [current.news() for current in runs]
    return fence(runs) | {"progress": [one.progress for one in news], "metadata": [one.metadata for one in news]}
