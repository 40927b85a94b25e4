"""What a pump does beside its turns, each in a transaction of its own, and none of it worth holding jobs up for."""

from collections.abc import Callable, Collection

from django.db import Error

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.notify import announce_or_warn, of_queue, tell_waiters
from django_pgqueue.jobs.counters import Meter
from django_pgqueue.jobs.tally import Tally
from django_pgqueue.maintenance.queue_rows import note_queue
from django_pgqueue.records import Outcome
from django_pgqueue.runtime.intake import REMEMBERED


class Errands:
    """Not safe for two threads at once.

    Args:
        failed: called with the error where there was trouble with the database.
        meter: as of ``Tally``.
    """

    def __init__(self, database: QueueConnection, failed: Callable[[Error], None], meter: Meter | None = None) -> None:
        self._database = database
        self._failed = failed
        self._noted: set[str] = set()  # queues that have their rows, as far as this process can tell
        self._tally = Tally(database, meter)

    def call_others(self, queues: Collection[str]) -> None:
        """Announce work in queues that this process does not serve."""
        if queues and conf.notify:
            self._try(lambda: announce_or_warn(self._database, sorted(map(of_queue, queues))))

    def tell_waiters(self, ids: Collection[int]) -> None:
        """Announce the ends of jobs that somebody waits for."""
        if ids:
            self._try(lambda: tell_waiters(self._database, ids))

    def note_queue(self, name: str) -> None:
        """See to it that a queue has a row in ``pgqueue_queues`` from its first use on."""
        if name not in self._noted and len(self._noted) < REMEMBERED:
            self._noted.add(name)
            self._try(lambda: note_queue(self._database, name))

    def count(self, outcomes: Collection[Outcome], *, stale: Collection[int]) -> None:
        """Count what was written, as ``Tally.count`` does."""
        self._tally.count(outcomes, stale=stale)

    def add_at(self) -> float:
        """Return when to add what was counted, monotonic; infinity if there is nothing."""
        return self._tally.add_at()

    def add_counts(self, *, is_last: bool = False) -> None:
        """Add what was counted to the table, as ``Tally.add`` does."""
        self._try(lambda: self._tally.add(is_last=is_last))

    def _try(self, errand: Callable[[], object]) -> None:
        try:
            errand()
        except Error as error:
            self._failed(error)
