"""Clean up after each job as Django does after each request. Costs next to nothing if the job has used nothing.

Translation, time zone and other context variables need no cleaning: each job runs in a copy of its slot's context.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_pgqueue.db.connections import is_in_transaction, only_reads
from django_pgqueue.db.pipeline import impatience

logger = logging.getLogger("django_pgqueue.worker")

CHECK_SECONDS = 2.0
"""Timeout of the check of an idle connection. A server that is silent for longer costs the slot a new connection."""


class _Opened(threading.local):
    """Connections that this thread has opened: noted, so that no job's end has to search for them."""

    def __init__(self) -> None:
        self.connections: list[BaseDatabaseWrapper] = []


_opened = _Opened()


def watch_connections() -> None:
    """Note from now on which thread opens which connections; called once in a child."""
    connection_created.connect(_note, dispatch_uid="django_pgqueue.tidy")


def own_caches() -> list[BaseCache]:
    """Make this slot's cache objects, which its jobs then share; return those for which closing means something."""
    found = []
    for alias in caches:
        with contextlib.suppress(Exception):  # one that cannot be made is the business of the jobs that use it
            found.append(caches[alias])
    return [cache for cache in found if type(cache).close is not BaseCache.close]


def tidy(slot_caches: Iterable[BaseCache] = ()) -> None:
    """Put this thread back into the state in which the next job may start.

    Connections stay open between jobs, because opening one costs more than most jobs; one that a job left inside a
    transaction, or that has failed, is closed instead.
    """
    if _opened.connections:
        _for_each_open(_tidy_connection)
    for cache in slot_caches:
        with contextlib.suppress(Exception):  # the job is done, also if a cache server fails
            cache.close()


def disown() -> None:
    """Let go of this thread's connections without a word to their servers, in a copy of this process made by fork.

    The sockets are shared with the original process: all messages of the copy, even a close, would count as messages of
    the original. Code that goes on in the copy gets connections of its own; code in a transaction gets an error.
    """
    for connection in _opened.connections:
        _inherited.append(connection.connection)
        connection.connection = None
        connection.closed_in_transaction = connection.needs_rollback = connection.in_atomic_block


_inherited: list[Any] = []
"""Connections of the original, kept in the copy: to collect them would close them."""


def opened() -> list[BaseDatabaseWrapper]:
    """Return the list in which this thread's connections are noted; it stays the same."""
    return _opened.connections


def is_tidy(connection: BaseDatabaseWrapper) -> bool:
    """Whether a job has left nothing behind on a connection. Asks no server, so any thread may ask."""
    return connection.connection is None or not (
        is_in_transaction(connection)
        or connection.errors_occurred
        or connection.run_on_commit
        or connection.queries_log
        or connection.settings_dict["OPTIONS"].get("pool")
    )


def check_connections() -> None:
    """Close connections that have died while this thread was idle; the next job opens new ones."""
    _for_each_open(_discard_if_useless)


def drop_connections() -> None:
    """Close what this thread has open: after an interruption the state of a connection is unknown."""
    _for_each_open(_discard)


def _for_each_open(function: Callable[[BaseDatabaseWrapper], None]) -> None:
    for connection in list(_opened.connections):
        try:
            if connection.connection is not None:
                function(connection)
        except Exception:
            logger.exception("The connection %r of a slot cannot be tidied up; it is forgotten", connection.alias)
            _forget(connection)


def _note(connection: BaseDatabaseWrapper, **_: Any) -> None:
    if connection not in _opened.connections:
        _opened.connections.append(connection)


def _tidy_connection(connection: BaseDatabaseWrapper) -> None:
    if is_in_transaction(connection) and connection.settings_dict["AUTOCOMMIT"]:
        logger.warning("A job left a transaction open on %r; it is rolled back", connection.alias)
        _discard(connection)
    elif connection.errors_occurred and not _is_useful(connection):
        _discard(connection)
    elif connection.settings_dict["OPTIONS"].get("pool"):
        connection.close()  # back into the pool, which is smaller than the slots may be many
    else:
        connection.errors_occurred = False
        connection.run_on_commit.clear()
        connection.queries_log.clear()


def _is_useful(connection: BaseDatabaseWrapper) -> bool:
    """Whether it works, and leads to a server that takes writes if that is known; asks the server.

    One of psycopg waits for the answer for ``CHECK_SECONDS`` at most, one of another driver as its settings make it.
    """
    beneath = connection.connection
    if not isinstance(beneath, psycopg.Connection):
        return connection.is_usable()
    with impatience(beneath, CHECK_SECONDS):
        return connection.is_usable() and not only_reads(beneath)


def _discard_if_useless(connection: BaseDatabaseWrapper) -> None:
    if not _is_useful(connection):
        _discard(connection)


def _discard(connection: BaseDatabaseWrapper) -> None:
    """Close the driver's connection and forget the wrapper, in any state."""
    beneath, pool = connection.connection, getattr(connection, "pool", None)
    _forget(connection)
    beneath.close()
    if pool:
        pool.putconn(beneath)  # it counts its connections, closed ones too


def _forget(connection: BaseDatabaseWrapper) -> None:
    with contextlib.suppress(ValueError):  # it may have been forgotten before its close failed
        _opened.connections.remove(connection)
    with contextlib.suppress(AttributeError):
        del connections[connection.alias]
