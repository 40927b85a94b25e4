"""End leases whose worker is dead."""

from django_pgqueue.base.records import Lease, Reaped
from django_pgqueue.db import Database
from django_pgqueue.lifecycle import reap
from django_pgqueue.lifecycle.sql import statement


def reap_lost(database: Database) -> Reaped:
    """Settle up to 1,000 jobs whose lease has passed together with that of their worker process.

    Only a worker whose own heartbeats have gone through for a full lease may call it: after an outage of the database
    every lease in the table has passed, and those who are alive need time to say so.
    """
    return reap.settle(database, [Lease._make(row) for row in database.rows(statement("lost_leases"), {})])


def forget_workers(database: Database) -> int:
    """Remove rows of worker processes that have been silent for an hour and run nothing; return how many."""
    return len(database.rows(statement("forget_workers"), {}))
