"""End leases whose worker is dead."""

from collections.abc import Collection, Sequence

from django_pgqueue.db.connections import Database
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs import leases
from django_pgqueue.lifecycle import reap
from django_pgqueue.records import Lease, Reaped


def lapsed_workers(database: Database, *, session_seconds: float) -> dict[int, float | None]:
    """Return the worker processes that run jobs by the book and whose leases have passed.

    Args:
        session_seconds: how far apart the heartbeats of a command are at most that has a session.

    Returns:
        By id, how far apart its heartbeats are, in seconds; None where it has no row.
    """
    return dict(database.rows(statement("lapsed_workers"), {"session_seconds": session_seconds}))


def locked_workers(database: Database, worker_ids: Collection[int]) -> set[int]:
    """Return which of these have a row that is locked: they cannot renew their lease, even if they live."""
    rows = database.rows(statement("locked_workers"), {"worker_ids": list(worker_ids)})
    return {worker_id for (worker_id,) in rows}


def reap_lost(database: Database, worker_ids: Collection[int] | None = None, *, limit: int = 1000) -> Reaped:
    """Settle up to ``limit`` jobs, 1 to 1,000, whose lease has passed together with that of their worker process.

    Only a worker whose own heartbeats have gone through for a full lease may call it: after an outage of the database
    every lease in the table has passed, and those who are alive need time to say so.

    Args:
        worker_ids: of the processes to judge; None: any.
    """
    chosen = None if worker_ids is None else list(worker_ids)
    lost = database.rows(statement("lost_leases"), {"worker_ids": chosen})
    return reap.settle(database, [Lease._make(row) for row in lost[:limit]])


def reap_gone(database: Database, worker_ids: Sequence[int], *, limit: int = 1000) -> Reaped:
    """Settle up to ``limit`` jobs, 1 to 1,000, of processes that are known to be gone, before their leases pass."""
    return reap.settle(database, leases.leases(database, worker_ids)[:limit])


def forget_workers(database: Database) -> int:
    """Remove rows of worker processes that have been silent for an hour and run nothing; return how many."""
    return len(database.rows(statement("forget_workers"), {}))
