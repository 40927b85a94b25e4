"""LISTEN for requests to the supervisor; where processes cannot listen, also for announcements of work, to wake them.

Polling is the fallback.
"""

import logging
import os
import secrets
import selectors
import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import Error
from psycopg import sql

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection, only_reads
from django_pgqueue.db.errors import is_over_limit
from django_pgqueue.db.notify import CHANNEL, CONTROL, ECHO, send_notification
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.worker.heartbeat import Liveness

logger = logging.getLogger("django_pgqueue.worker")

ALL = QueueSelector()

SLEEP_AGAIN_SECONDS = 0.002  # pause after a try to sleep, which fails while a caller asks whether a session does
PING_SECONDS = 30.0  # between checks of a connection on which nothing comes
TRY_AGAIN_SECONDS = 300.0  # between tries of LISTEN where no notification arrives

ECHO_SECONDS = 2.0
"""Timeout of the notification that tests the connection; one that comes later counts as lost."""

NO_NOTIFICATIONS = (
    "gets no notifications: is a pooler in between, in transaction mode? Set PGQUEUE['LISTEN_DATABASE'] to an alias "
    "that leads to the same database directly."
)
FULL = (
    "is of no use now: the server takes no more notifications, as its queue of them is full: some session does not "
    "read it. The server's log names it."
)

LISTEN = sql.SQL("LISTEN {}")
BACKEND = "SELECT pg_backend_pid()"

UNLISTENS = 20  # maximum number of transactions until a pooler lends the same server again
LOOKS = 3
"""Number of looks for a sign that a pooler lends its servers for a transaction only; each takes three statements."""


class Listener:
    """One connection that listens, by the alias LISTEN_DATABASE.

    Args:
        alias: that of the queue.
        session: notified when this connection begins and ends.
        notified: called with the set of payloads, as ``db.notify`` describes them, of each batch of notifications,
            and with None after each (re)connect, when anything may have been missed.
    """

    def __init__(
        self, alias: str, session: Liveness, notified: Callable[[set[str] | None], None], served: QueueSelector = ALL
    ) -> None:
        self._served = served
        self.works: bool | None = None  # whether notifications arrive; None while that is not known
        self.is_settled = threading.Event()  # set once the first try is over, however it went
        self._queue_alias = alias
        self._alias = conf.listen_alias(alias)
        self._session = session
        self._notified = notified
        self._database = QueueConnection(self._alias, "listener")
        self._connection: Any = None
        self._stop_read, self._stop_write = os.pipe()

    def pass_once(self) -> float:
        try:
            if self._connection is None:
                self._connect()
            if self.works:
                self._wait()
        except BaseException:
            self.close()
            self.is_settled.set()
            raise
        return 0.0 if self.works else TRY_AGAIN_SECONDS

    def stop(self) -> None:
        """End a wait that is under way; may be called from any thread."""
        os.write(self._stop_write, b"s")

    def close(self) -> None:
        self._session.end()
        self._connection = None
        self._database.close()

    def _connect(self) -> None:
        connection: Any = self._database.autocommit()
        useless = listen(self._database, connection, self._queue_alias)
        if useless is None and (self._alias != self._queue_alias or self._database.is_pooled):
            self._stand_in(connection)
        worked, self.works = self.works, useless is None
        self.is_settled.set()
        if self.works:
            self._connection = connection
            [backend] = connection.execute(BACKEND).fetchone()
            self._session.begin(backend)
            self._notified(None)
            return
        if worked is not False:
            logger.warning(
                "LISTEN by way of %r %s Polling every %g s instead.", self._alias, useless, conf.poll_seconds
            )
        self.close()
        self._session.forgo()

    def _stand_in(self, connection: Any) -> None:
        """Listen for processes that cannot do so themselves, and never be awake, as they may sleep at any time."""
        connection.execute(LISTEN.format(sql.Identifier(CHANNEL)))
        queues = {"queues": list(self._served.names) or [""]}
        while connection.execute(statement("sleep"), queues).fetchall() != [(True,)]:
            time.sleep(SLEEP_AGAIN_SECONDS)

    def _wait(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection.fileno(), selectors.EVENT_READ)
            selector.register(self._stop_read, selectors.EVENT_READ)
            if not selector.select(PING_SECONDS):
                self._connection.execute("SELECT 1")  # a dead peer shows itself here; notifications may come along
        payloads = {notify.payload for notify in self._connection.notifies(timeout=0)}
        if payloads := {payload for payload in payloads if not payload.startswith(ECHO)}:
            self._notified(payloads)
        if only_reads(self._connection):
            self.close()  # the processes that notify are on another server by now


def try_out(listens: str, notifies: str) -> str | None:
    """Listen as a worker does, for a moment, by connections of its own; return what ``listen`` does.

    Raises:
        django.db.Error: a database cannot be reached.
        psycopg.Error: the connection to a database was lost.
    """
    database = QueueConnection(listens, "doctor")
    try:
        return listen(database, database.autocommit(), notifies)
    finally:
        database.close()


def listen(database: QueueConnection, connection: Any, notifies: str) -> str | None:
    """Listen, and see whether a notification arrives that was sent by the alias by which jobs are enqueued.

    Returns:
        Why it is of no use to listen: ``NO_NOTIFICATIONS`` or ``FULL``. None: notifications arrive.
    """
    other = QueueConnection(notifies, "listener echo")
    try:
        if database.is_pooled and is_lent(connection, other):
            return NO_NOTIFICATIONS
        with connection.transaction():  # a pooler may lend another server for the next one
            [backend] = connection.execute(BACKEND).fetchone()
            connection.execute(LISTEN.format(sql.Identifier(CONTROL)))
        if useless := _why_useless(connection, other, is_direct=not database.is_pooled):
            unlisten(connection, backend)
        return useless
    finally:
        other.close()


def _why_useless(connection: Any, other: QueueConnection, *, is_direct: bool) -> str | None:
    payload = ECHO + secrets.token_hex(8)
    try:
        send_notification(other, [payload])
    except Error as error:
        if is_over_limit(error):
            return FULL
        raise
    deadline = time.monotonic() + ECHO_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        if any(notify.payload == payload for notify in connection.notifies(timeout=left, stop_after=1)):
            return None
    if is_direct:  # a server sends pending notifications before its answer, even after a process was frozen
        connection.execute("SELECT 1")
    return None if any(notify.payload == payload for notify in connection.notifies(timeout=0)) else NO_NOTIFICATIONS


def is_lent(connection: Any, other: QueueConnection) -> bool:
    """Whether a pooler gives the server of ``connection`` to others between its transactions.

    A sign is proof. Where none shows, as when ``other`` by chance is lent other servers only, that is none.
    """
    for _ in range(LOOKS):
        before = connection.execute(BACKEND).fetchone()
        with other.transaction():
            if other.rows(BACKEND, {}) == [before] or connection.execute(BACKEND).fetchone() != before:
                return True
    return False


def unlisten(connection: Any, backend: int) -> None:
    """Have a server that was lent for one LISTEN listen no more; it would go on for the next session it is lent to."""
    for _ in range(UNLISTENS):
        with connection.transaction():
            connection.execute("UNLISTEN *")
            [reached] = connection.execute(BACKEND).fetchone()
        if reached == backend:
            return
