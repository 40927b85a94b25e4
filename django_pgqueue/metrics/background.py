"""Reads the tables for the page of a worker: in one thread, on one connection, whoever asks and however often."""

import queue
import threading
from collections.abc import Callable

from django.db import Error

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.errors import is_too_slow, is_transient
from django_pgqueue.insights.overview import Measures, look

IDLE_SECONDS = 120.0
"""A connection that nobody has asked for so long is closed."""


class Background:
    """Begins with the first look; those who ask need not wait for its end, as a server may be silent.

    The connection stays open in between. One that has broken meanwhile is not the end of a look: there is another one.
    """

    def __init__(self, alias: str) -> None:
        self._looks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._database = QueueConnection(alias, "metrics", patience_seconds=2 * conf.admin_timeout_seconds)

    def begin(self, looking: Callable[[], None]) -> None:
        """Have it done in the thread; by one caller at a time."""
        self._looks.put(looking)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="pgqueue-metrics", daemon=True)
            self._thread.start()

    def look(self) -> Measures:
        """Look at the tables, in this thread."""
        try:
            return self._look()
        except Error as error:
            if not is_transient(error) or is_too_slow(error):
                raise
            return self._look()

    def _look(self) -> Measures:
        self._database.autocommit()  # opens it where need be
        try:
            return look(self._database.alias)
        except Error:
            self._database.close()
            raise

    def _work(self) -> None:
        self._database.lend()
        while True:
            try:
                self._looks.get(timeout=IDLE_SECONDS)()
            except queue.Empty:
                self._database.close()
