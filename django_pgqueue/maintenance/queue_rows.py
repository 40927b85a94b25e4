"""Maintain the rows of ``pgqueue_queues``: insert those of new queues, end pauses whose time is over.

Nothing waits for it. Enqueueing pays nothing for a queue's row, which the first claim makes, or this pass where no
worker claims; and claims compare the end of a pause with the clock.
"""

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.queries import statement

LOCK_MILLISECONDS = 20  # for a row that an open transaction is making
MOST_LOCKED = 5  # of those in a pass: the same thread has other services


def register_queues(database: QueueConnection, *, limit: int = 100) -> list[str]:
    """Make the rows of queues that have jobs and none yet, up to ``limit``; return their names.

    One whose row another transaction has inserted and not committed is left for the next time.
    """
    noted, locked = [], 0
    for (name,) in database.rows(statement("unregistered_queues"), {"limit": limit}):
        if register_queue(database, name):
            noted.append(name)
        else:
            locked += 1
        if locked == MOST_LOCKED:
            break
    return noted


def register_queue(database: QueueConnection, name: str) -> bool:
    """Make the row of one queue; return whether it was new, and could be made without waiting for another session."""
    sql = statement("register_queue")
    return bool(database.rows_unless_locked(sql, {"name": name}, milliseconds=LOCK_MILLISECONDS))


def end_pauses(database: QueueConnection) -> list[str]:
    """Take down pauses that have ended by themselves; return the queues."""
    return [name for (name,) in database.rows(statement("end_pauses"), {})]
