"""When this command carries on with what staff have asked to be done to many jobs."""

from collections.abc import Callable, Mapping

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.housekeeping.operations import carry_on
from django_pgqueue.services import Slice, spell

LOCKED_SECONDS = 0.2  # what is due and cannot be taken is being done by another worker


class Operations:
    """A duty of the steward.

    Args:
        announce: called with payloads by channel, once what they are about is committed.
    """

    def __init__(self, database: QueueConnection, announce: Callable[[Mapping[str, set[str]]], None]) -> None:
        self._database = database
        self._announce = announce
        self._slice = Slice()

    def carry_on(self, due_seconds: float | None) -> float | None:
        """Do slices for a spell; return the seconds until the next look, None where there is no operation.

        Args:
            due_seconds: until the next slice of any operation; None where there is none.
        """
        if due_seconds is None or due_seconds > 0:
            return due_seconds
        pause = LOCKED_SECONDS
        for _ in spell():
            with self._slice.taken() as limit:
                carried = carry_on(self._database, limit=limit)
            if carried.operation_id is None:
                return pause
            self._announce(carried.announcements)
            pause = 0.0
        return pause
