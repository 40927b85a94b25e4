"""Looks again and again, in a thread of its own: a database that does not answer holds up nobody else."""

import contextlib
import threading
import time
from collections.abc import Callable

from django.db import DatabaseError, InterfaceError, connections

from django_pgqueue.db.connections import KEEPALIVE
from django_pgqueue.db.errors import one_line
from django_pgqueue.staff.bounded import TookTooLong
from django_pgqueue.staff.glance.look import Glance

PATIENCE_SECONDS = 3.0
"""So much longer than usual an answer may take before somebody is told."""


class Eye:
    """What was seen last, and how that went.

    Attributes:
        failure: what has ended it for good, as no trouble with the database does.

    Args:
        look: reads from the database ``alias``.
        seconds: from the end of one look to the beginning of the next.
        saw: is called whenever there is something new, by the thread.
    """

    def __init__(self, look: Callable[[], Glance], *, alias: str, seconds: float, saw: Callable[[], None]) -> None:
        self.glance: Glance | None = None
        self.failure: Exception | None = None
        self._look = look
        self._alias = alias
        self._seconds = seconds
        self._saw = saw
        self._error = ""
        self._answered_at = self._began_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="pgqueue eye", daemon=True)
        self._thread.start()

    def trouble(self) -> str:
        """Say why there is nothing new; empty where there is."""
        silence = time.monotonic() - self._answered_at
        if self._error:
            return f"No answer for {silence:.0f} s: {self._error}"
        if silence > self._seconds + PATIENCE_SECONDS:
            return f"No answer for {silence:.0f} s."
        return ""

    def _run(self) -> None:
        try:
            self._go_on()
        except Exception as error:  # noqa: BLE001 - whoever shows what was seen raises it
            self.failure = error
            self._saw()

    def _go_on(self) -> None:
        """Look until the process ends."""
        options = connections[self._alias].settings_dict["OPTIONS"]
        for option, value in KEEPALIVE.items():  # or a connection that is cut off would be waited for for hours
            options.setdefault(option, value)
        while True:
            try:
                self.glance, self._error = self._look(), ""
                self._answered_at = time.monotonic()
            except TookTooLong:
                self._error = "reading took too long and was stopped"
            except (DatabaseError, InterfaceError) as error:
                self._error = one_line(error)
                with contextlib.suppress(DatabaseError, InterfaceError):
                    connections[self._alias].close()
            self._saw()
            time.sleep(self._seconds)
