"""The tables in numbers, for whoever watches them: one look at all queues, bounded, and shared for a second.

Those who ask meanwhile get the same look, or wait for the one that is under way: however many ask, the database is read
once a second at most.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from django_pgqueue.conf import conf
from django_pgqueue.staff import overview
from django_pgqueue.staff.bounded import bounded
from django_pgqueue.staff.overview import QueueLine

FRESH_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What one look has found.

    Attributes:
        queues: in alphabetical order, up to 1,000.
        workers: living worker processes, whatever they serve.
    """

    queues: tuple[QueueLine, ...]
    workers: int


def look(alias: str | None = None) -> Measures:
    """Look at all queues; nothing in it takes longer than ``ADMIN_TIMEOUT_SECONDS`` or counts a big table to its end.

    Raises:
        TookTooLong: a statement was stopped.
        django.db.Error: there is trouble with the database.
    """
    alias = alias or conf.database
    with bounded(alias):
        living = list(overview.living_workers(alias))
        return Measures(queues=tuple(overview.lines(alias, living)), workers=len(living))


def here(looking: Callable[[], None]) -> None:
    """Look in the thread of whoever asks."""
    looking()


class Shared:
    """One look at a time, and one a second at most, for all threads of a process; trouble is shared likewise.

    Args:
        look: what to do.
        begin: does it, in this thread or in another one.
    """

    def __init__(self, look: Callable[[], Measures] = look, begin: Callable[[Callable[[], None]], None] = here) -> None:
        self._look = look
        self._begin = begin
        self._lock = threading.Lock()
        self._flight: Future[Measures] | None = None
        self._landed_at = 0.0  # monotonic

    def measures(self, *, wait_seconds: float | None = None) -> Measures:
        """Return what the last look has found, if it is fresh, or else a new one.

        Args:
            wait_seconds: for how long to wait for a look in another thread; it goes on all the same. None: to its end.

        Raises:
            TimeoutError: the look takes longer.
            TookTooLong, django.db.Error: as of ``look``.
        """
        with self._lock:
            flight, is_mine = self._flight, False
            if flight is None or (flight.done() and time.monotonic() - self._landed_at >= FRESH_SECONDS):
                flight = self._flight = Future()
                is_mine = True
        if is_mine:
            self._begin(lambda: self._fly(flight))
        return flight.result(wait_seconds)

    def _fly(self, flight: "Future[Measures]") -> None:
        """Look, and tell all who wait; whatever happens, they are told."""
        try:
            found = self._look()
        except BaseException as error:  # noqa: BLE001 - raised where it was asked for
            self._landed_at = time.monotonic()
            flight.set_exception(error)
        else:
            self._landed_at = time.monotonic()
            flight.set_result(found)
