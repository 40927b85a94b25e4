"""Claim due jobs: the only way from queued to running."""

import random
import secrets
import time
from typing import NamedTuple

from django_pgqueue.db.connections import Database, PendingResult, QueueConnection
from django_pgqueue.db.queries import ladder_size, sized, statement
from django_pgqueue.flow.concurrency import LockKind, try_lock
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.records import ClaimedJob

Place = tuple[int, float, int]  # of a job in its queue: rank, run_at in seconds since 1970, id


def claim(database: QueueConnection, queue: str, *, limit: int, worker_id: int) -> list[ClaimedJob]:
    """Claim up to ``limit`` jobs of one queue, best first, in a transaction of its own.

    The limit, 1 or more, is rounded down to a size for which a statement is prepared. Each job counts as one attempt
    from here on. There are fewer when the queue has no more, or when others hold rows.
    """
    with database.transaction():
        claimed = send(database, queue, limit=limit, worker_id=worker_id)
    return claimed.jobs()


def send(database: QueueConnection, queue: str, *, limit: int, worker_id: int, above: Place | None = None) -> "Claim":
    """Send the claim in the transaction that is open on ``database``; ``above``: only of jobs after this place."""
    size, lease_token = ladder_size(limit), new_lease_token()
    parameters = {"queue": queue, "worker_id": worker_id, "lease_token": lease_token}
    sent_at = time.monotonic()
    if above is None:
        answer = database.send(sized("claim", size), parameters)
    else:
        rank, run_at, job_id = above
        answer = database.send(sized("claim_above", size), parameters | {"rank": rank, "run_at": run_at, "id": job_id})
    return Claim(database.alias, queue, lease_token, size, above, answer, sent_at)


def send_limited(database: QueueConnection, queue: str, *, limit: int, worker_id: int) -> "Claim":
    """Send the claim of a limited queue, which takes no more than the queue's limits let in, as ``send`` does.

    Three statements: to lock the queue's name, to count and claim, to learn when it is worth coming back.
    """
    try_lock(database, LockKind.QUEUE, [queue])
    lease_token = new_lease_token()
    parameters = {"queue": queue, "worker_id": worker_id, "lease_token": lease_token, "limit": limit}
    sent_at = time.monotonic()
    answer = database.send(statement("claim_limited"), parameters)
    room = database.send(statement("queue_capacity"), {"queue": queue})
    return Claim(database.alias, queue, lease_token, limit, None, answer, sent_at, room)


class Claim(NamedTuple):
    database: str
    queue: str
    lease_token: int
    limit: int
    above: Place | None
    answer: PendingResult
    sent_at: float  # monotonic
    room: PendingResult | None = None  # of a limited queue

    @property
    def is_limited(self) -> bool:
        return self.room is not None

    def left(self) -> tuple[bool, float]:
        """Return whether a limited queue has more jobs to claim, and for how many seconds it has no token for one."""
        rows = self.room.fetchall() if self.room else []
        return rows[0] if rows else (False, 0.0)

    def jobs(self) -> list[ClaimedJob]:
        """Return the claimed jobs, best first. They may run only after the transaction has committed."""
        shared = self.queue, self.lease_token, self.sent_at, self.database
        return [ClaimedJob._make(row + shared) for row in sorted(self.answer.fetchall())]


def ready_queues(database: Database, served: QueueSelector) -> list[str]:
    """Return which of the served queues have a job to claim, in their order.

    Those of equal rank are in a random order, so that no queue always waits behind another.
    """
    if served.names:
        return [queue for (queue,) in database.rows(statement("ready_named_queues"), {"queues": list(served.names)})]
    found = [queue for (queue,) in database.rows(statement("ready_queues"), {})]
    return served.among(random.sample(found, len(found)))


def new_lease_token() -> int:
    """Draw a token: random, 63 bits, not 0. A sequence would repeat after a crash or a failover."""
    return secrets.randbits(63) or 1
