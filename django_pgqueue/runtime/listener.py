"""LISTEN for announcements of work, wake the children. Polling stays the fallback, whatever happens here."""

import logging
import os
import secrets
import selectors
import threading
import time
from collections.abc import Callable
from typing import Any

from psycopg import sql

from django_pgqueue.db import QueueConnection
from django_pgqueue.lifecycle.wake import CHANNEL, PROBE, announce

logger = logging.getLogger("django_pgqueue.worker")

PING_SECONDS = 30.0
PROBE_SECONDS = 2.0
PROBE_AGAIN_SECONDS = 300.0


class Listener:
    """One connection that listens.

    Args:
        heard: called with the set of payloads (queue names; empty for a cancel request) of each batch of notifications,
            and with None after each (re)connect, when anything may have been missed.
    """

    def __init__(self, alias: str, heard: Callable[[set[str] | None], None]) -> None:
        self.works: bool | None = None  # None: not known yet
        self.is_settled = threading.Event()
        self._alias = alias
        self._heard = heard
        self._database = QueueConnection(alias, "listener")
        self._connection: Any = None
        self._stop_read, self._stop_write = os.pipe()

    def pass_once(self) -> float:
        """Connect if need be, wait for notifications for up to half a minute, pass them on."""
        try:
            if self._connection is None:
                self._connect()
            if self.works:
                self._wait()
        except BaseException:
            self.close()
            raise
        return 0.0 if self.works else PROBE_AGAIN_SECONDS

    def stop(self) -> None:
        """End a wait that is under way; may be called from any thread."""
        os.write(self._stop_write, b"s")

    def close(self) -> None:
        self._connection = None
        self._database.close()

    def _connect(self) -> None:
        connection = self._database.autocommit()
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))
        self.works = self._probe(connection)
        self.is_settled.set()
        if self.works:
            self._connection = connection
            self._heard(None)
        else:
            self.close()

    def _probe(self, connection: Any) -> bool:
        """Whether a notification from another connection arrives. Behind a transaction pooler none does."""
        payload = PROBE + secrets.token_hex(8)
        other = QueueConnection(self._alias, "listener probe")
        try:
            announce(other, [payload])
        finally:
            other.close()
        deadline = time.monotonic() + PROBE_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            if any(notify.payload == payload for notify in connection.notifies(timeout=left, stop_after=1)):
                return True
        logger.warning(
            "LISTEN gets no notifications on %r: is it behind a pooler in transaction mode? Polling instead.",
            self._alias,
        )
        return False

    def _wait(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection.fileno(), selectors.EVENT_READ)
            selector.register(self._stop_read, selectors.EVENT_READ)
            if selector.select(PING_SECONDS):
                payloads = {notify.payload for notify in self._connection.notifies(timeout=0)}
                if payloads := {payload for payload in payloads if not payload.startswith(PROBE)}:
                    self._heard(payloads)
            else:
                self._connection.execute("SELECT 1")  # a dead peer shows itself here
