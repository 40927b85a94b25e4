"""Which database, which connection, how a statement is run, and what its errors mean.

``CallerConnection`` is the connection of whoever calls, inside their transaction: enqueueing and staff actions use it.
``QueueConnection`` is a worker's own, apart from user code: claim, ack, heartbeat and housekeeping use it.
"""

import contextlib
import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, DataError, Error, InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionDoesNotExist

from django_pgqueue.base.conf import conf
from django_pgqueue.base.exceptions import ConfigurationError

Row = tuple[Any, ...]
Parameters = Mapping[str, Any]

# Time limits; and plans by index only, in the order of the index. Statistics of a table that swings between empty and
# full may say "a few rows", or none at all after a vacuum of the empty table, and a batch joined to them by hash or by
# scan then reads the whole backlog, or sorts it. No statistics can tell which plan is best, so each statement is
# planned once. All of it SET LOCAL: nothing is left behind on a connection that a pooler hands to somebody else.
SESSION = (
    "SELECT set_config('statement_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true), "
    "set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), "
    "set_config('enable_sort', 'off', true), set_config('enable_hashjoin', 'off', true), "
    "set_config('enable_mergejoin', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)"
)


class Database(Protocol):
    """What the verbs of ``lifecycle/`` need of a connection."""

    def rows(self, sql: str, parameters: Parameters) -> list[Row]:
        """Run one statement that returns rows, as every statement of the queue does; return them all."""
        ...


class Answer(Protocol):
    """What a statement that was only sent will return."""

    def fetchall(self) -> list[Row]:
        """Wait for the rows, and return all of them."""
        ...


class CallerConnection:
    """The caller's Django connection. Statements join the transaction that is open on it, if one is."""

    def __init__(self, alias: str | None = None) -> None:
        self.alias = alias or conf.database

    def rows(self, sql: str, parameters: Parameters) -> list[Row]:
        with postgresql(self.alias).cursor() as cursor:
            cursor.execute(sql, parameters)
            rows: list[Row] = cursor.fetchall()
            return rows


class QueueConnection:
    """A connection of the queue's own, opened when first needed and again after it broke.

    It is a second Django wrapper of the alias with what the queue relies on overridden: READ COMMITTED, autocommit, no
    pool, no debug log, server-side binding and prepared statements. Not safe for two threads at once.

    Args:
        purpose: ends up in ``application_name``, so that ``pg_stat_activity`` tells who it is.
    """

    def __init__(self, alias: str, purpose: str) -> None:
        self.alias = alias
        self._wrapper = own_wrapper(alias, purpose)
        self._inside = False
        self._must_begin = False  # the server's default isolation is another than the queue's

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Run a few statements in one short transaction, with time limits and planner settings of its own.

        What is only sent in it makes one round trip altogether, commit included. An error in between rolls back.

        Raises:
            django.db.Error: as Django maps it. After trouble with the connection or the server, it is closed; the next
                use opens a new one, perhaps to another server.
        """
        try:
            with self._wrapper.wrap_database_errors:
                connection = self._open()
                self._inside = True
                with _one_transaction(connection, begins=self._must_begin):
                    connection.execute(SESSION, _limits())
                    yield
        except Error as error:
            if is_transient(error):
                self.close()
            raise
        finally:
            self._inside = False

    def rows(self, sql: str, parameters: Parameters) -> list[Row]:
        """Run one statement, inside ``transaction()`` or in one of its own."""
        if not self._inside:
            with self.transaction():
                return self.rows(sql, parameters)
        return self._wrapper.connection.execute(sql, parameters).fetchall()  # type: ignore[no-any-return]

    def send(self, sql: str, parameters: Parameters) -> "Answer":
        """Send one statement inside ``transaction()``, whose answer may be read once that is over."""
        cursor = self._wrapper.connection.cursor(binary=True)
        return cursor.execute(sql, parameters)  # type: ignore[no-any-return]

    def autocommit(self) -> psycopg.Connection[Row]:
        """Return the psycopg connection beneath, for LISTEN and for statements that refuse a transaction."""
        with self._wrapper.wrap_database_errors:
            connection: psycopg.Connection[Row] = self._open()
            return connection

    def close(self) -> None:
        with contextlib.suppress(DatabaseError, InterfaceError):
            self._wrapper.close()
        self._wrapper.connection = None

    def _open(self) -> Any:
        if self._wrapper.connection is None or self._wrapper.connection.closed:
            self._wrapper.connection = None
            self._wrapper.connect()
            self._wrapper.connection.prepare_threshold = 2 if conf.prepared_statements else None
            [(default,)] = self._wrapper.connection.execute("SHOW default_transaction_isolation").fetchall()
            self._must_begin = default != "read committed"
        return self._wrapper.connection


def own_wrapper(alias: str, purpose: str) -> Any:
    """Make a Django wrapper for ``alias`` that shares nothing with the one in ``connections``."""
    original = postgresql(alias)
    settings = copy.deepcopy(original.settings_dict)
    options = settings["OPTIONS"]
    options.pop("pool", None)
    options.pop("cursor_factory", None)
    options.update(
        server_side_binding=True,
        isolation_level=psycopg.IsolationLevel.READ_COMMITTED,
        application_name=f"pgqueue {purpose}"[:63],
    )
    for option, seconds in KEEPALIVE.items():
        options.setdefault(option, seconds)
    settings.update(AUTOCOMMIT=True, ATOMIC_REQUESTS=False, CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=False)
    wrapper = type(original)(settings, alias)
    wrapper.inc_thread_sharing()
    return wrapper


# A firewall that forgets a connection says nothing; the kernel notices within half a minute.
# Source: https://www.postgresql.org/docs/current/libpq-connect.html
KEEPALIVE = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def number_array(numbers: Iterable[float]) -> str:
    """Return numbers as the text of a PostgreSQL array, to be cast in the statement: faster than to adapt a list."""
    return f"{{{','.join(map(str, numbers))}}}"


def postgresql(alias: str) -> BaseDatabaseWrapper:
    """Return Django's connection for ``alias``.

    Raises:
        ConfigurationError: there is no such alias, or it is not PostgreSQL by way of psycopg 3.
    """
    try:
        connection = connections[alias]
    except ConnectionDoesNotExist as error:
        raise ConfigurationError(
            f"The queue's database {alias!r} is not in DATABASES. "
            f"Set PGQUEUE['DATABASE'] to one of {list(connections)}."
        ) from error
    if connection.vendor != "postgresql":
        raise ConfigurationError(
            f"The queue's database {alias!r} is {connection.vendor}. "
            "Set PGQUEUE['DATABASE'] to the alias of a PostgreSQL database."
        )
    return connection


def is_transient(error: BaseException) -> bool:
    """Whether trying again later can help: the server is away, busy, full, read-only, or broke a deadlock."""
    if isinstance(error, ImproperlyConfigured):
        return False
    cause = error.__cause__ if isinstance(error, DatabaseError | InterfaceError) else error
    sqlstate = getattr(cause, "sqlstate", None)
    if sqlstate is None:
        return isinstance(error, OperationalError | InterfaceError | psycopg.OperationalError | psycopg.InterfaceError)
    return sqlstate[:2] in TRANSIENT_CLASSES or sqlstate in TRANSIENT_STATES


# Source: https://www.postgresql.org/docs/current/errcodes-appendix.html
TRANSIENT_CLASSES = {"08", "40", "53", "57", "58"}  # connection, rollback, resources, intervention, system
TRANSIENT_STATES = {"25006", "25P03", "55P03", "55006"}  # read-only, idle in transaction, lock, in use


def is_refusal(error: Error) -> bool:
    """Whether the database refuses the very values it was given, so that trying again cannot help."""
    sqlstate = getattr(error.__cause__, "sqlstate", None) or ""
    return sqlstate[:2] in REFUSING_CLASSES or isinstance(error, DataError)


def is_too_much(error: Error) -> bool:
    """Whether less work in one statement may help: it took too long, or more memory or room than there is."""
    sqlstate = getattr(error.__cause__, "sqlstate", None) or ""
    return sqlstate == "57014" or sqlstate[:2] == "53"


REFUSING_CLASSES = {"22", "23", "54"}  # data, integrity, program limits


def _limits() -> tuple[str, str]:
    timeout = f"{conf.statement_timeout_seconds}s"
    return timeout, timeout


@contextlib.contextmanager
def _one_transaction(connection: Any, *, begins: bool) -> Iterator[None]:
    """Send statements without waiting for each answer, where the client library can.

    Without BEGIN and COMMIT: to the server, all that comes before the pipeline's one Sync is one transaction. If the
    caller fails for reasons of its own, that Sync must not be sent.
    Source: https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-PIPELINING

    Args:
        begins: whether a BEGIN is needed after all, to say READ COMMITTED.
    """
    if not psycopg.Pipeline.is_supported():
        with connection.transaction():
            yield
        return
    with connection.pipeline():
        try:
            if begins:
                connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            yield
            if begins:
                connection.execute("COMMIT")
        except BaseException as error:
            if begins or not isinstance(error, psycopg.Error):  # else the server has rolled back
                connection.close()
            raise
