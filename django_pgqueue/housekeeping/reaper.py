"""End leases whose worker is dead."""

from collections.abc import Sequence

from django_pgqueue.base.records import Lease, Reaped
from django_pgqueue.db import Database
from django_pgqueue.lifecycle import heartbeat, reap
from django_pgqueue.lifecycle.sql import statement


def reap_lost(database: Database, *, limit: int = 1000) -> Reaped:
    """Settle up to ``limit`` jobs, 1 to 1,000, whose lease has passed together with that of their worker process.

    Only a worker whose own heartbeats have gone through for a full lease may call it: after an outage of the database
    every lease in the table has passed, and those who are alive need time to say so.
    """
    lost = database.rows(statement("lost_leases"), {})
    return reap.settle(database, [Lease._make(row) for row in lost[:limit]])


def reap_gone(database: Database, worker_ids: Sequence[int], *, limit: int = 1000) -> Reaped:
    """Settle up to ``limit`` jobs, 1 to 1,000, of processes that are known to be gone, before their leases pass."""
    return reap.settle(database, heartbeat.leases(database, worker_ids)[:limit])


def forget_workers(database: Database) -> int:
    """Remove rows of worker processes that have been silent for an hour and run nothing; return how many."""
    return len(database.rows(statement("forget_workers"), {}))
