"""Classify database errors: try again, do less, or give up.

The functions take Django's errors, whose cause is the driver's.
"""

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, DataError, Error, InterfaceError, InternalError, OperationalError

from django_pgqueue.log_lines import without_detail


class Silence(psycopg.OperationalError):
    """The server has not said a word for longer than any statement may take."""


class CommitFailed(psycopg.OperationalError):
    """All statements went well, and their commit did not, as when a deferred trigger fails."""


def is_transient(error: BaseException) -> bool:
    """Whether trying again later can help: the server is away, busy, full, read-only, or broke a deadlock."""
    if isinstance(error, ImproperlyConfigured):
        return False
    cause = error.__cause__ if isinstance(error, DatabaseError | InterfaceError) else error
    sqlstate = getattr(cause, "sqlstate", None)
    if sqlstate is None:  # the driver itself has raised it
        return isinstance(error, TRANSIENT_KINDS)
    return sqlstate[:2] in TRANSIENT_CLASSES or sqlstate in TRANSIENT_STATES


TRANSIENT_KINDS = (
    *(OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError),
    *(InternalError, psycopg.InternalError),  # a pooler's farewell counted as an answer more than was asked for
)
# Source: https://www.postgresql.org/docs/current/errcodes-appendix.html
TRANSIENT_CLASSES = {"08", "40", "53", "57", "58"}  # connection, rollback, resources, intervention, system
TRANSIENT_STATES = {"25006", "25P03", "25P04", "55P03", "55006"}  # read-only, two time limits, lock, in use


def _state(error: BaseException) -> str:
    """Return the server's code of an error of Django; empty where the driver itself has raised it."""
    return getattr(error.__cause__, "sqlstate", None) or ""


def is_rolled_back(error: BaseException) -> bool:
    """Whether the server has said of the transaction itself that it failed, so that nothing of it is committed.

    A session that ends says nothing about its last commit, even where the server gives the reason why it ends.
    """
    return _state(error) != "" and not _state(error).startswith(OF_CONNECTION)


def is_of_connection(error: BaseException) -> bool:
    """Whether the session has ended, cannot begin or does not answer, which says nothing about its statements."""
    if not _state(error):
        return isinstance(error, OperationalError | InterfaceError)
    return _state(error).startswith(OF_CONNECTION)


def is_conflict(error: BaseException) -> bool:
    """Whether a transaction lost against another one, and may go well when it is repeated as a whole.

    Source: https://www.postgresql.org/docs/current/mvcc-serialization-failure-handling.html
    """
    return _state(error) in {"40001", "40P01"}


def is_locked(error: BaseException) -> bool:
    """Whether a wait for a lock ended after ``lock_timeout``."""
    return _state(error) == "55P03"


def is_refusal(error: Error) -> bool:
    """Whether the database refuses the very values it was given, so that trying again cannot help."""
    return _state(error)[:2] in REFUSING_CLASSES or isinstance(error, DataError)


def is_of_a_row(error: Error) -> bool:
    """Whether a row may be the cause by itself, as where a trigger raises an error or a page is damaged."""
    return _state(error) != "" and not is_transient(error) and not _state(error).startswith(NOT_OF_A_ROW)


def is_too_much(error: Error) -> bool:
    """Whether less work in one statement may help: it took too long, or more memory or room than there is."""
    return is_too_slow(error) or isinstance(error.__cause__, Silence) or _state(error).startswith(("53", "25P04"))


def is_of_another_schema(error: BaseException) -> bool:
    """Whether a table, column or function is not there, as before a migration."""
    return _state(error) in {"42P01", "42703", "42883"}


def is_too_slow(error: BaseException) -> bool:
    """Whether a statement was cancelled: it took longer than it may. The database itself is well."""
    return _state(error) == "57014"


def is_of_one_statement(error: BaseException) -> bool:
    """Whether a statement asked for too much, and others may go on: it took too long, or needs too many locks."""
    return is_too_slow(error) or _state(error) == "53200"


def is_over_limit(error: BaseException) -> bool:
    """Whether a limit of the server is exceeded; by a notification, because the queue of those is full."""
    return _state(error) == "54000"


OF_CONNECTION = ("08", "57P")
NOT_OF_A_ROW = ("0A", "25", "26", "28", "34", "3D", "3F", "42", "F0")  # of the session, or of the schema for any row
REFUSING_CLASSES = {"22", "23", "54"}  # data, integrity, program limits


def primary(error: BaseException) -> str:
    """Return what the database says in its first sentence, without details: these may quote a whole row."""
    diagnosis = getattr(error.__cause__, "diag", None)
    return getattr(diagnosis, "message_primary", None) or one_line(error)


def first_line(error: BaseException) -> str:
    """Return the kind of an error and the first line of its message: the rest may have values of arguments."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def one_line(error: BaseException) -> str:
    """Return what an error says, on one line, without the values that the database quotes in its detail."""
    return " ".join(without_detail(str(error)).split())
