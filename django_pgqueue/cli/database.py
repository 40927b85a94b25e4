"""Connect to the queue's database at the start of a command, and wait until it is there."""

import logging
import time

from django.core.management.base import CommandError
from django.db import Error, OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import own_wrapper, postgresql
from django_pgqueue.db.errors import one_line
from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.retry_policy import reconnect_delay

logger = logging.getLogger("django_pgqueue.worker")


def await_database(alias: str, *, seconds: float) -> None:
    """Connect to a database; where it is away, try again until the timeout, and log each new reason.

    What else may be wrong with it is left to the checks.

    Raises:
        CommandError: it cannot be reached.
    """
    until, failures, told = time.monotonic() + seconds, 0, ""
    wrapper = own_wrapper(alias, "start")  # one with a limit to how long it takes to connect
    try:
        while (reason := _why_away(wrapper)) and time.monotonic() < until:
            if reason != told:
                logger.warning("Waiting for the database of alias %r: %s", alias, reason)
            told, failures = reason, failures + 1
            time.sleep(max(min(reconnect_delay(failures), until - time.monotonic()), 0.0))
    finally:
        wrapper.close()
    if reason:
        raise CommandError(
            f"The database of alias {alias!r} cannot be reached: {reason} "
            "Start with --wait-for-database to wait for it."
        )


def _why_away(wrapper: BaseDatabaseWrapper) -> str:
    try:
        wrapper.ensure_connection()
    except OperationalError as error:
        return one_line(error)
    except Error:
        return ""
    return ""


def check_database(alias: str | None = None) -> None:
    """Raise CommandError unless the queue's database is PostgreSQL, answers, and its tables are there."""
    alias = alias or conf.database
    try:
        connection = postgresql(alias)
        tables = connection.introspection.table_names()
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    except OperationalError as error:
        raise CommandError(f"The database of alias {alias!r} cannot be reached: {one_line(error)}") from error
    if "pgqueue_jobs" not in tables:
        name = connection.settings_dict["NAME"]
        raise CommandError(
            f"There is no table pgqueue_jobs in {name!r} (alias {alias!r}). "
            f"Run: manage.py migrate django_pgqueue --database {alias}"
        )
