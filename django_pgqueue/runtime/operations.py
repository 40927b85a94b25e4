"""When this command carries on with what staff have asked to be done to many jobs."""

import time
from collections.abc import Callable, Mapping

from django_pgqueue.db import QueueConnection
from django_pgqueue.housekeeping.operations import carry_on
from django_pgqueue.runtime.duties import Slice

SPELL_SECONDS = 0.25
"""So long at a time: the other duties of the thread wait meanwhile."""

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
        """Do slices for a short while; return the seconds until the next look, None where there is no operation.

        Args:
            due_seconds: until the next slice of any operation; None where there is none.
        """
        if due_seconds is None or due_seconds > 0:
            return due_seconds
        until, is_first = time.monotonic() + SPELL_SECONDS, True
        while time.monotonic() < until:
            with self._slice.taken() as limit:
                carried = carry_on(self._database, limit=limit)
            if carried.operation_id is None:
                return LOCKED_SECONDS if is_first else 0.0
            self._announce(carried.announcements)
            is_first = False
        return 0.0
