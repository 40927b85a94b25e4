"""LISTEN for announced ends, for those who wait for jobs in this process; workers have ``listener``."""

import logging
import math
import time
from typing import Any

import psycopg
from django.db import Error
from psycopg import sql

from django_pgqueue.base.backoff import reconnect_delay
from django_pgqueue.base.conf import conf
from django_pgqueue.base.database_errors import one_line
from django_pgqueue.db import QueueConnection, only_reads
from django_pgqueue.lifecycle.wake import ENDS

logger = logging.getLogger("django_pgqueue")

TRY_AGAIN_SECONDS = 300.0
"""Where LISTEN is of no use, it is tried so often again."""


class Ear:
    """The connection that listens; None where that is of no use, or not possible at the moment.

    Attributes:
        try_at: when to try again to listen, monotonic; infinity while it does.
    """

    def __init__(self, alias: str) -> None:
        self.connection: Any = None
        self.try_at = 0.0
        self._database = QueueConnection(alias, "waiting listener")
        self._failures = 0

    def begins(self) -> bool:
        """Listen, if it does not already and it is time to try; return whether that has just begun."""
        if self.connection is not None or time.monotonic() < self.try_at:
            return False
        self.try_at = time.monotonic() + TRY_AGAIN_SECONDS
        if conf.notify:
            try:
                self._connect()
            except (Error, psycopg.Error) as error:
                self._failed(one_line(error))
        return self.connection is not None

    def heard(self) -> set[int]:
        """Return which jobs were announced since the last time."""
        try:
            payloads = {notify.payload for notify in self.connection.notifies(timeout=0)}
        except psycopg.Error as error:
            self._failed(one_line(error))
            return set()
        if only_reads(self.connection):
            self._failed("the server takes no writes")  # whoever notifies is on another one by now
        return {int(payload) for payload in payloads if payload.isdecimal()}

    def close(self) -> None:
        self.connection = None
        self._database.close()

    def _connect(self) -> None:
        connection = self._database.autocommit()
        if self._database.is_pooled:  # nobody knows whom it lends the server to that listens
            self.close()
            return
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(ENDS)))
        self.connection, self.try_at, self._failures = connection, math.inf, 0

    def _failed(self, why: str) -> None:
        self.close()
        self._failures += 1
        self.try_at = time.monotonic() + reconnect_delay(self._failures)
        if self._failures == 1:
            logger.warning("Who waits for jobs cannot listen, and looks every %g s: %s", conf.poll_seconds, why)
