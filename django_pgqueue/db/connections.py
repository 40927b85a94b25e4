"""Connections to the queue's database, and the ways to run a statement on them.

``CallerConnection`` is the caller's connection, inside their transaction: enqueueing and staff actions use it.
``QueueConnection`` is a worker's own, apart from user code: claim, ack, heartbeat and maintenance use it.
"""

import contextlib
import copy
import functools
import math
import secrets
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import Any, Protocol

import psycopg
from django.db import DatabaseError, Error, InterfaceError, ProgrammingError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionDoesNotExist
from psycopg import sql
from psycopg.pq import TransactionStatus

from django_pgqueue.conf import conf
from django_pgqueue.db.cursors import FollowUp, inserting, waking
from django_pgqueue.db.errors import Silence, is_locked, is_of_another_schema, is_rolled_back, is_transient
from django_pgqueue.db.pipeline import impatient, one_transaction
from django_pgqueue.exceptions import ConfigurationError

Row = tuple[Any, ...]
Parameters = Mapping[str, Any]

# Time limits; and plans by index only, in the order of the index. Statistics of a table that swings between empty and
# full may say "a few rows", or none at all after a vacuum of the empty table, and a batch joined to them by hash, by
# scan or over a copy of them then reads the whole backlog, or sorts it. No statistics can show which plan is best, so
# each statement is planned once. A step that is off and done all the same, as a sort of five rows, has an absurd
# price, for which servers before 18 would compile the plan first, and that takes a second. All of it SET LOCAL:
# nothing is left behind on a connection that a pooler hands to another client.
PLANNER_SETTINGS = (
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), "
    "set_config('enable_sort', 'off', true), set_config('enable_hashjoin', 'off', true), "
    "set_config('enable_mergejoin', 'off', true), set_config('enable_material', 'off', true), "
    "set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true)"
)
SET_LOCAL = (
    f"{PLANNER_SETTINGS}, set_config('statement_timeout', %s, true), "
    "set_config('idle_in_transaction_session_timeout', %s, true)"
)

# Neither of the two limits counts between the statements of a pipeline. A process that is frozen there would keep its
# locks, and VACUUM from its work, until it thaws. Older servers have no word for it.
POSTGRESQL_17 = 170_000
SET_LOCAL_FROM_17 = f"{SET_LOCAL}, set_config('transaction_timeout', %s, true)"
LOCK_TIMEOUT = ", set_config('lock_timeout', %s, true)"  # behind either of them


class Database(Protocol):
    """Interface of connections, as the functions of ``jobs/``, ``flow/`` and ``schedules/`` need it."""

    alias: str

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open: what a statement locks stays locked behind it."""
        ...

    def rows(self, sql: str, parameters: Parameters) -> list[Row]: ...

    def rows_or_undo(self, sql: str, parameters: Parameters, *, number: int) -> list[Row]:
        """Run one statement; return its ``number`` rows. If there are fewer, release its locks and return none."""
        ...

    def notify(self, sql: str, parameters: Parameters) -> None:
        """Run one statement that notifies, which the server may refuse as late as at its commit."""
        ...


class PendingResult(Protocol):
    """The result of a statement that was sent and not yet awaited."""

    def fetchall(self) -> list[Row]: ...


WAKE_UP = "payload"  # parameter of the statement that wakes the workers of one queue
ARGUMENTS = "args"  # parameter of statements that insert jobs, or change their arguments


OPEN = {TransactionStatus.ACTIVE, TransactionStatus.INTRANS, TransactionStatus.INERROR}


def is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction is open for Django or for the driver: Django does not know of a BEGIN that was executed."""
    return connection.in_atomic_block or not connection.autocommit or _is_open_beneath(connection)


def has_transaction(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction is open for Django; does not connect."""
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)


def _is_open_beneath(connection: BaseDatabaseWrapper) -> bool:
    pgconn = getattr(connection.connection, "pgconn", None)  # of psycopg; it knows without asking
    return pgconn is not None and pgconn.transaction_status in OPEN


@contextlib.contextmanager
def undoable(alias: str) -> Iterator[Callable[[], None]]:
    """Open a transaction, or a savepoint if one is open; it ends in a rollback if the function it gives is called.

    Django's ``atomic()`` refuses a transaction of which it does not know, so psycopg sets the savepoint there.
    """
    connection = postgresql(alias)
    if connection.in_atomic_block or not connection.autocommit or not _is_open_beneath(connection):
        with transaction.atomic(using=alias):
            yield functools.partial(transaction.set_rollback, True, using=alias)
        return
    beneath: Any = connection.connection
    undone: list[bool] = []
    with connection.wrap_database_errors, beneath.transaction() as savepoint:
        yield functools.partial(undone.append, True)
        if undone:
            raise psycopg.Rollback(savepoint)


def as_one(caller: "Database") -> contextlib.AbstractContextManager[object]:
    """Make the statements of an action one transaction, where none is open on the caller's connection."""
    if caller.in_transaction or not isinstance(caller, CallerConnection):
        return contextlib.nullcontext()
    return transaction.atomic(using=caller.alias)


class CallerConnection:
    """The caller's Django connection. Statements join the transaction that is open on it, if one is.

    Attributes:
        follow_up: is run after the next statement that inserts jobs, where both can go together.
    """

    def __init__(self, alias: str | None = None) -> None:
        self.alias = alias or conf.database_here
        self.follow_up: FollowUp | None = None

    @property
    def in_transaction(self) -> bool:
        connection = postgresql(self.alias)
        connection.ensure_connection()
        return is_in_transaction(connection)

    def rows(self, sql: str, parameters: Parameters) -> list[Row]:
        connection = postgresql(self.alias)
        try:
            with self._cursor(connection, parameters) as cursor:
                cursor.execute(sql, parameters)
                rows: list[Row] = cursor.fetchall()
                return rows
        except ProgrammingError as error:
            if is_of_another_schema(error):
                error.add_note(how_to_migrate(self.alias))
            raise

    def _cursor(self, connection: BaseDatabaseWrapper, parameters: Parameters) -> Any:
        """Return a cursor for a statement; those that come once a job are prepared where that is safe."""
        if ARGUMENTS in parameters:
            return inserting(connection, self.follow_up)
        return waking(connection) if WAKE_UP in parameters else connection.cursor()

    def rows_or_undo(self, sql: str, parameters: Parameters, *, number: int) -> list[Row]:
        """Run it in a transaction, or behind a savepoint: rolling back to that gives row locks back too."""
        with undoable(self.alias) as undo:
            rows = self.rows(sql, parameters)
            if is_short := len(rows) < number:
                undo()
        return [] if is_short else rows

    def notify(self, sql: str, parameters: Parameters) -> None:
        """Run it. In an open transaction it is that one's commit that may be refused."""
        self.rows(sql, parameters)


class MaintenanceConnection:
    """The connection of a maintenance pass: announcements of actions in it are kept until it has committed."""

    def __init__(self, database: "QueueConnection") -> None:
        self.alias = database.alias
        self.announcements: dict[str, set[str]] = {}  # payloads by channel
        self._database = database

    @property
    def in_transaction(self) -> bool:
        return self._database.in_transaction

    def rows(self, sql: str, parameters: Parameters) -> list[Row]:
        return self._database.rows(sql, parameters)

    def rows_or_undo(self, sql: str, parameters: Parameters, *, number: int) -> list[Row]:
        return self._database.rows_or_undo(sql, parameters, number=number)

    def notify(self, sql: str, parameters: Parameters) -> None:
        self._database.notify(sql, parameters)


class QueueConnection:
    """A connection of the queue's own, opened when first needed and again after it broke.

    It is a second Django wrapper of the alias with what the queue relies on overridden: READ COMMITTED, autocommit, no
    pool, no debug log, server-side binding and prepared statements. Not safe for two threads at once.

    A server, or a proxy on the way to it, that takes statements and never answers would hold up the caller without
    end: no statement of a server that works takes longer than its own limit. So after twice that time without a word
    the connection is given up, as if it had broken.

    Args:
        purpose: part of ``application_name``, which ``pg_stat_activity`` shows.
        patience_seconds: for how long the server may be silent. None: twice ``STATEMENT_TIMEOUT_SECONDS``.
    """

    def __init__(self, alias: str, purpose: str, *, patience_seconds: float | None = None) -> None:
        self.alias = alias
        self._wrapper = own_wrapper(alias, purpose)
        self._new_connection = self._wrapper.get_new_connection
        self._wrapper.get_new_connection = self._impatient
        self.is_pooled = False  # whether a pooler is in between; known once it is open
        self.is_preparing: bool | None = None  # whether statements run often are prepared; None: not known yet
        self.has_begun = False  # whether the last transaction had a session: what ended that may be a statement in it
        self.may_be_committed = False  # whether a transaction may be since that was set, though an error was raised
        self.is_listening = False  # notifications come to this connection
        self._is_set_up = False  # the settings of transactions hold for the whole session
        self.clock_offset = 0.0  # the server's clock, in seconds since 1970, less the monotonic one of this machine
        self._least_patience = patience_seconds
        self._patience = math.inf if patience_seconds is None else patience_seconds  # in force, in seconds
        self._inside = False
        self._channel = ""
        self._heard: Callable[[str | None], object] = lambda _: None
        self._must_begin = False  # the server's default isolation is another than the queue's
        self._knows_transaction_timeout = False

    @contextlib.contextmanager
    def transaction(
        self, *, commits: bool = False, lock_milliseconds: int | None = None, is_single: bool = False
    ) -> Iterator[None]:
        """Run a few statements in one short transaction, with time limits and planner settings of its own.

        Statements that are only sent make one round trip altogether, commit included. An error in between rolls back.

        Args:
            commits: say COMMIT, so that what the server answers to it is known, and the connection outlives a refusal.
            lock_milliseconds: maximum wait for each lock, 1 or more. None: as the role has it.
            is_single: each statement may be a transaction by itself, and is awaited: a single one is quicker so.

        Raises:
            django.db.Error: as Django maps it. After trouble with the connection or the server, it is closed; the next
                use opens a new one, perhaps to another server.
        """
        before, self.has_begun = self.may_be_committed, False
        try:
            with self._wrapper.wrap_database_errors:
                connection = self._open(self._least_patience)
                self._inside = self.has_begun = True
                if is_single and self._is_set_up and not self._must_begin:
                    self.may_be_committed = True
                    yield
                    return
                with one_transaction(connection, begins=self._must_begin or commits):
                    if not self._is_set_up or lock_milliseconds is not None:
                        connection.execute(*self._set_local(lock_milliseconds))
                    yield
                    self.may_be_committed = True  # the commit is sent from here on
        except Error as error:
            if is_rolled_back(error):
                self.may_be_committed = before
            if is_transient(error) and not is_locked(error):
                self.close()
            raise
        finally:
            self._inside = False

    @property
    def in_transaction(self) -> bool:
        return self._inside

    def rows(self, sql: str, parameters: Parameters) -> list[Row]:
        if not self._inside:
            with self.transaction():
                return self.rows(sql, parameters)
        return self._wrapper.connection.execute(sql, parameters).fetchall()  # type: ignore[no-any-return]

    def rows_or_undo(self, sql: str, parameters: Parameters, *, number: int) -> list[Row]:
        """Run it, and undo nothing: the locks go with the transaction, which is short."""
        rows = self.rows(sql, parameters)
        return rows if len(rows) == number else []

    def rows_unless_locked(self, sql: str, parameters: Parameters, *, milliseconds: int) -> list[Row] | None:
        """Run one statement in a transaction of its own; None: it would wait for a lock for longer than that."""
        try:
            with self.transaction(lock_milliseconds=milliseconds):
                return self.rows(sql, parameters)
        except Error as error:
            if not is_locked(error):
                raise
            return None

    def notify(self, sql: str, parameters: Parameters) -> None:
        with contextlib.nullcontext() if self._inside else self.transaction(commits=True):
            self.rows(sql, parameters)

    def send(self, sql: str, parameters: Parameters) -> "PendingResult":
        """Send one statement inside ``transaction()``, whose answer may be read once that is over."""
        cursor = self._wrapper.connection.cursor(binary=True)
        return cursor.execute(sql, parameters)  # type: ignore[no-any-return]

    def autocommit(self, *, may_take_long: bool = False) -> psycopg.Connection[Row]:
        """Return the psycopg connection beneath, for LISTEN and for statements that refuse a transaction.

        Args:
            may_take_long: wait for its answers without an end, until the next ``transaction()``.
        """
        with self._wrapper.wrap_database_errors:
            connection: psycopg.Connection[Row] = self._open(math.inf if may_take_long else self._least_patience)
            return connection

    def listen(self, channel: str, heard: Callable[[str | None], object]) -> None:
        """Listen to a channel from the next connect on, unless a pooler is in between, where nothing would arrive.

        Such a session is this connection's own, so the settings of its transactions are made once for all of them.

        Args:
            heard: called with the payload of each notification, inside statements or ``take_notifications()``; with
                None after each connect, when some may have been missed.
        """
        self._channel, self._heard = channel, heard

    @property
    def can_listen(self) -> bool:
        """Whether notifications come to this connection once it is open, as far as is known."""
        return bool(self._channel) and not self.is_pooled

    def take_notifications(self) -> None:
        """Pass the notifications on that have come. Does not wait.

        Raises:
            django.db.Error: the connection is broken.
        """
        with self._wrapper.wrap_database_errors:
            pgconn = self._wrapper.connection.pgconn
            pgconn.consume_input()
            while notification := pgconn.notifies():
                pgconn.notify_handler(notification)

    def fileno(self) -> int:
        return self._wrapper.connection.fileno()  # type: ignore[no-any-return]

    def lend(self) -> None:
        """Have this thread use this connection where it would use Django's own of the alias, from here on.

        ``autocommit()`` opens it: used otherwise, it may wait for a silent server without end, unless it was made with
        ``patience_seconds``.
        """
        connections[self.alias] = self._wrapper

    def close(self) -> None:
        with contextlib.suppress(DatabaseError, InterfaceError):
            self._wrapper.close()
        self._wrapper.connection = None
        self.is_listening = self._is_set_up = False

    def _open(self, patience_seconds: float | None) -> Any:
        self._patience = 2.0 * conf.statement_timeout_seconds if patience_seconds is None else patience_seconds
        connection = self._wrapper.connection
        if connection is None or connection.closed or only_reads(connection):
            self.close()  # one that only reads would show a frozen queue: nothing there changes any more
            self._wrapper.connect()
            connection = self._wrapper.connection
            self._learn(connection)
        return connection

    def _impatient(self, parameters: Parameters) -> Any:
        """Connect as Django does, which then sends statements to set the connection up: none is waited for without end.

        A pooler lets clients in that has no server for them, and may keep their first statement without end.
        """
        connection = self._new_connection(parameters)
        connection.wait = functools.partial(self._wait, connection)
        return connection

    def _learn(self, connection: Any) -> None:
        """Find out whether the other end is a server, or a pooler that lends one for each transaction.

        A pooler gives its clients process ids of its own, by which it knows the statement that they want cancelled.
        """
        asked_at = time.monotonic()
        [(default, pid, clock)] = connection.execute(
            "SELECT current_setting('default_transaction_isolation'), pg_backend_pid(), "
            "date_part('epoch', statement_timestamp())"
        ).fetchall()
        self.clock_offset = clock - (asked_at + time.monotonic()) / 2
        self._must_begin = default != "read committed"
        self.is_pooled = pid != connection.info.backend_pid
        wanted = conf.prepared_statements
        self.is_preparing = not self.is_pooled or keeps_apart(connection) if wanted is None else wanted
        connection.prepare_threshold = 2 if self.is_preparing else None
        self._knows_transaction_timeout = connection.info.server_version >= POSTGRESQL_17
        if not self.is_pooled:
            connection.execute("SET idle_session_timeout = 0")  # it may have nothing to say for as long as it likes
        if self.can_listen:
            connection.add_notify_handler(lambda notification: self._heard(notification.payload))
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
            text, limits = self._set_local(None)
            connection.execute(text.replace("true", "false"), limits)
            self.is_listening = self._is_set_up = True
            self._heard(None)

    def _set_local(self, lock_milliseconds: int | None) -> tuple[str, tuple[str, ...]]:
        seconds = conf.statement_timeout_seconds
        limits: tuple[str, ...] = (f"{seconds}s", f"{seconds}s", f"{2 * seconds}s")
        text, limits = (SET_LOCAL_FROM_17, limits) if self._knows_transaction_timeout else (SET_LOCAL, limits[:2])
        if lock_milliseconds is None:
            return text, limits
        return text + LOCK_TIMEOUT, (*limits, f"{lock_milliseconds}ms")

    def _wait(self, connection: Any, steps: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return type(connection).wait(connection, impatient(steps, self._patience), *args, **kwargs)
        except Silence:
            connection.close()  # else leaving the pipeline would wait as long again
            raise


Where = str | Database | None  # an alias, None for ``database_here``, or a connection whose transaction it joins


def caller_of(where: Where) -> Database:
    """Return the connection that an action is to use."""
    return CallerConnection(where) if where is None or isinstance(where, str) else where


LARGEST = 2**63 - 1
"""Of the ids that PostgreSQL can be asked for."""


def ids_of(given: Iterable[Any]) -> list[int]:
    """Return the ids that an action is given, those of Django's Tasks framework as texts; 0 for too large ones.

    Raises:
        TypeError: it is one id, of which a text is digits that look like ids, or something else is among them.
    """
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        remedy = "its id in a list" if hasattr(given, "id") else f"[{given!r}]"
        raise TypeError(f"{given!r} is no list of ids: write {remedy}.")
    ids = list(given)
    for place, one in enumerate(ids):
        if not isinstance(one, Integral) and not (isinstance(one, str) and one.isdecimal()):
            remedy = ": write its id" if hasattr(one, "id") else ""
            raise TypeError(f"ids[{place}] is {one!r}, and no id{remedy}.")
    return [number if abs(number) <= LARGEST else 0 for number in map(int, ids)]


class HandleOfJob(Protocol):
    """A job by its id, as ``JobHandle`` is."""

    @property
    def id(self) -> int: ...

    @property
    def database(self) -> str: ...


JobIds = Iterable[int | HandleOfJob]


def job_ids_of(given: JobIds, alias: str) -> list[int]:
    """Return the ids of the jobs that an action on ``alias`` is given, by ids or handles.

    Raises:
        TypeError: as ``ids_of``.
        ValueError: one is the handle of a job on another database.
    """
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        given = [_id_of(one, alias) for one in given]
    return ids_of(given)


def caller_of_jobs(given: JobIds, where: Where) -> tuple[Database, list[int]]:
    """Return the connection that an action on jobs is to use, and their ids; None: that of their database.

    Raises:
        TypeError: as ``ids_of``.
        ValueError: they are on several databases, or one is the handle of a job on another than is said.
        JobDoesNotExist: an id begins with the number of no database.
    """
    if where is None and isinstance(given, Iterable) and not isinstance(given, str | bytes):
        given = list(given)
        where = _alias_of(given)
    caller = caller_of(where)
    return caller, job_ids_of(given, caller.alias)


def _alias_of(jobs: Sequence[Any]) -> str | None:
    ids = ids_of([one.id if _is_handle(one) else one for one in jobs])
    found: dict[str, Any] = {}
    for one, job_id in zip(jobs, ids, strict=True):
        found.setdefault(one.database if _is_handle(one) else conf.database_of(job_id), one)
    if len(found) > 1:
        (first, one), (second, other), *_ = found.items()
        raise ValueError(
            f"{one!r} is a job on {first!r}, and {other!r} on {second!r}: name those of each by themselves."
        )
    return next(iter(found), None)


def _is_handle(one: Any) -> bool:
    return not isinstance(one, Integral) and hasattr(one, "id") and hasattr(one, "database")


def _id_of(one: Any, alias: str) -> Any:
    if not _is_handle(one):
        return one
    if one.database != alias:
        raise ValueError(f"{one!r} is a job on {one.database!r}, not on {alias!r}: say database={one.database!r}.")
    return one.id


def only_reads(connection: Any) -> bool:
    """Whether the server takes no writes, as an old primary that is up; another connection may find another server.

    Sends nothing: the server says so with its answer to the last statement.
    Source: https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-ASYNC
    """
    told = connection.info.parameter_status
    return "on" in (told("default_transaction_read_only"), told("in_hot_standby"))


def keeps_apart(connection: Any) -> bool:
    """Whether a pooler keeps its clients' prepared statements apart, by names of its own at the server.

    Where it passes names on, a server may know none of that name, or another client's: a wrong statement would be run.
    Source: https://www.pgbouncer.org/config.html#max_prepared_statements
    """
    name = f"pgqueue_{secrets.token_hex(8)}"
    with connection.transaction():
        if connection.pgconn.prepare(name.encode(), b"SELECT 1").status != psycopg.pq.ExecStatus.COMMAND_OK:
            return False
        known = connection.execute("SELECT 1 FROM pg_prepared_statements WHERE name = %s", [name]).fetchall()
        if known:
            connection.execute(sql.SQL("DEALLOCATE {}").format(sql.Identifier(name)))  # nothing is left behind
    return not known


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


class Fenced(Protocol):
    """A job with the token of one claim; 0: it is not running."""

    @property
    def id(self) -> int: ...
    @property
    def lease_token(self) -> int: ...


def fence(rows: Sequence[Fenced]) -> dict[str, Any]:
    """Return the parameters ``ids`` and ``lease_tokens``, in the order of the rows."""
    return {
        "ids": number_array([row.id for row in rows]),
        "lease_tokens": number_array([row.lease_token for row in rows]),
    }


def postgresql(alias: str) -> BaseDatabaseWrapper:
    """Return Django's connection for ``alias``.

    Raises:
        ConfigurationError: there is no such alias, or it is not PostgreSQL by way of psycopg 3.
    """
    try:
        connection = connections[alias]
    except ConnectionDoesNotExist as error:
        raise ConfigurationError(
            f"The database {alias!r} is not in DATABASES. {_remedy(alias)} one of {', '.join(map(repr, connections))}."
        ) from error
    if connection.vendor != "postgresql":
        raise ConfigurationError(
            f"The database {alias!r} is {connection.vendor}. {_remedy(alias)} the alias of a PostgreSQL database."
        )
    return connection


def _remedy(alias: str) -> str:
    """Return the beginning of what to do about an alias, which the settings or a call have named."""
    return "Set PGQUEUE['DATABASE'] to" if alias == conf.database else "Name"


def how_to_migrate(alias: str, *, app: str = "pgqueue", is_recorded: bool | None = None) -> str:
    """Return what to do where a database lacks the tables.

    Args:
        app: label of the app whose tables these are: that of the queue, or of its outbox.
        is_recorded: whether its migrations are recorded as applied, as they are where they were run while it was not
            the queue's. ``migrate`` does nothing then. None: not known.
    """
    migrate = f"manage.py migrate {app} --database {alias}"
    forget = f"manage.py migrate {app} zero --fake --database {alias}"
    if alias not in (conf.databases if app == "pgqueue" else [*conf.databases, *conf.outboxes]):
        known = ", ".join(map(repr, conf.databases))
        return (
            f"The queue is on {known}, and migrations make no tables of it on {alias!r}. Use that, or name {alias!r} "
            f"in PGQUEUE['SHARDS'] or as PGQUEUE['DATABASE']. Then run: {forget} && {migrate}"
        )
    if is_recorded is None:
        return f"Run: {migrate} (if it has nothing to apply, run before it: {forget})"
    if is_recorded:
        return (
            f"Its migrations are recorded as applied: they were run while PGQUEUE did not name {alias!r}, or its "
            f"tables were removed. Run: {forget} && {migrate}"
        )
    return f"Run: {migrate}"
