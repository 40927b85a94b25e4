"""What the end of a request would clean up, after each job: connections, caches, translation, time zone."""

import logging

from django.core.cache import close_caches
from django.db import connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone, translation

logger = logging.getLogger("django_pgqueue.worker")


def tidy() -> None:
    """Put this thread back into the state in which the next job may start.

    Connections stay open between jobs, because opening one costs more than most jobs; one that a job left inside a
    transaction, or that has failed, is closed instead.
    """
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None:
            _tidy_connection(connection)
    translation.deactivate()
    timezone.deactivate()
    close_caches()
    reset_queries()


def check_connections() -> None:
    """Close connections that have died while this thread was idle; the next job opens them anew."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and not connection.is_usable():
            _discard(connection)


def _tidy_connection(connection: BaseDatabaseWrapper) -> None:
    left_open = connection.in_atomic_block or not connection.get_autocommit()
    if left_open and connection.settings_dict["AUTOCOMMIT"]:
        logger.warning("A job left a transaction open on %r; it is rolled back", connection.alias)
        _discard(connection)
    elif connection.errors_occurred and not connection.is_usable():
        _discard(connection)
    else:
        connection.errors_occurred = False
        connection.run_on_commit.clear()


def _discard(connection: BaseDatabaseWrapper) -> None:
    """Close what is beneath and forget the wrapper, whatever state it claims to be in."""
    try:
        connection.connection.close()
    finally:
        del connections[connection.alias]
