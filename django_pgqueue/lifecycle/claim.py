"""Take due jobs: the only way from queued to running."""

import random
import secrets
from collections.abc import Sequence

from django_pgqueue.base.records import ClaimedJob
from django_pgqueue.db import Database
from django_pgqueue.lifecycle.sql import ladder_size, sized, statement


def claim(database: Database, queue: str, *, limit: int, worker_id: int) -> list[ClaimedJob]:
    """Claim up to ``limit`` jobs of one queue, best first.

    Args:
        limit: 1 or more; rounded down to a size for which a statement is prepared.
        worker_id: the process that will run them.

    Returns:
        The jobs, each counted as one attempt from here on. Fewer than asked for when the queue has no more, or when
        others hold rows.
    """
    parameters = {"queue": queue, "worker_id": worker_id, "lease_token": new_lease_token()}
    jobs = [ClaimedJob._make(row) for row in database.rows(sized("claim", ladder_size(limit)), parameters)]
    jobs.sort(key=_order)
    return jobs


def ready_queues(database: Database, queues: Sequence[str]) -> list[str]:
    """Return which queues have a job to claim.

    Args:
        queues: those served; the answer keeps their order. None named: all queues, in a random order, so that no queue
            waits for ever behind another.
    """
    if queues:
        return [queue for (queue,) in database.rows(statement("ready_of"), {"queues": list(queues)})]
    found = [queue for (queue,) in database.rows(statement("ready_queues"), {})]
    return random.sample(found, len(found))


def new_lease_token() -> int:
    """Draw a token: random, 63 bits, not 0. A sequence would repeat after a crash or a failover."""
    return secrets.randbits(63) or 1


def _order(job: ClaimedJob) -> tuple[int, float, int]:
    return -job.priority, job.run_at, job.id
