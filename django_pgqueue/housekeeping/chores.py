"""What there is to do for housekeeping: asked at once, so that an idle worker asks no more than once a second."""

from typing import NamedTuple

from django_pgqueue.db.connections import Database
from django_pgqueue.db.queries import statement


class Chores(NamedTuple):
    """The columns of ``chores.sql`` in their order."""

    due_seconds: float | None = None  # until the next scheduled job is due, 0 or less: now; None: none within two
    has_tombstones: bool = False  # some whose time is over
    has_expired: bool = False  # jobs that were not started in time
    has_started: bool = False  # jobs that came back without their unique key
    has_waiting: bool = False  # jobs that are not admitted yet
    has_running: bool = False
    tick_seconds: float | None = None  # until the next tick of any schedule, 0 or less: now; None: there is none
    operation_seconds: float | None = None  # until the next slice of any operation, the same


def look(database: Database) -> Chores:
    """Return what there is to do."""
    [row] = database.rows(statement("chores"), {})
    return Chores._make(row)
