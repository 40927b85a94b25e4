"""Cursors of Django's that insert jobs on the caller's connection: bound by the server, prepared, with the wake-up.

Code that watches Django's cursors sees the INSERT as any other statement. Where no transaction is open, the wake-up is
sent along with it and comes behind its commit, in a transaction of its own: the job never waits for the lock of the
whole cluster that NOTIFY takes at commit.
"""

import functools
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakKeyDictionary

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.base import Cursor, ServerBindingCursor
from django.db.backends.utils import CursorWrapper
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.generators import fetch, send
from psycopg.pq import ConnStatus, ExecStatus, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from django_pgqueue.conf import conf

if TYPE_CHECKING:  # its stubs know of nothing that it inherits
    DjangosCursor = psycopg.Cursor[tuple[Any, ...]]
else:
    DjangosCursor = ServerBindingCursor

UNPREPARED = 2  # number of INSERTs on one connection before they are prepared: most requests enqueue less
MOST_TEXTS = 20  # maximum number of statements prepared on one connection: there are fewer
FORGOTTEN = {"26000", "0A000"}  # errors by which a prepared statement is gone, or was made for other columns


@dataclass(eq=False)
class FollowUp:
    """A statement that goes to the server together with another one, and is run after its commit."""

    sql: str
    parameters: Mapping[str, Any]
    is_done: bool = False  # False: not run, as both could not go together, or it has failed


@dataclass(eq=False)
class Session:
    """Knowledge of one connection: whether statements may be prepared there, and which are."""

    may_prepare: bool | None = None  # None: not known yet
    inserts: int = 0
    texts: set[str] = field(default_factory=set)  # of statements while they may be prepared
    prepared: set[str] = field(default_factory=set)

    def prepares(self, text: str) -> bool:
        """Whether to prepare a statement. None any more where other code makes each text another one, by a comment."""
        if self.may_prepare:
            self.texts.add(text)
            self.may_prepare = len(self.texts) <= MOST_TEXTS
        return bool(self.may_prepare)


_sessions: WeakKeyDictionary[Any, Session] = WeakKeyDictionary()


def inserting(connection: BaseDatabaseWrapper, follow_up: FollowUp | None = None) -> CursorWrapper:
    """Return a cursor of Django's whose parameters go to the server apart from the statement.

    By default Django puts them into its text, which is in ``pg_stat_activity`` and in several logs of the server for
    more people than may read the table. All else is as with any cursor: transaction, log of queries, wrappers. A class
    of cursors that other code has chosen, as to trace them, is left, and runs no follow-up.
    """
    return _prepared(connection, follow_up, inserts=1)


def waking(connection: BaseDatabaseWrapper) -> CursorWrapper:
    """Return such a cursor for a wake-up by itself, which is prepared as soon as INSERTs are."""
    return _prepared(connection, None, inserts=0)


def _prepared(connection: BaseDatabaseWrapper, follow_up: FollowUp | None, *, inserts: int) -> CursorWrapper:
    connection.close_if_health_check_failed()  # as cursor() would, which then opens one that binds by itself
    connection.ensure_connection()
    beneath: Any = connection.connection
    factory = beneath.cursor_factory
    if factory is not Cursor and factory is not ServerBindingCursor:
        return connection.cursor()
    with connection.wrap_database_errors:
        session = _session(beneath, inserts)
    beneath.cursor_factory = functools.partial(InsertCursor, session, follow_up)
    try:
        return connection.cursor()
    finally:
        beneath.cursor_factory = factory


def _session(connection: Any, inserts: int) -> Session:
    session = _sessions.setdefault(connection, Session())
    session.inserts += inserts
    if session.may_prepare is None and session.inserts > UNPREPARED and _is_off(connection):
        wanted = conf.prepared_statements
        session.may_prepare = _is_direct(connection) if wanted is None else wanted
    return session


def _is_direct(connection: Any) -> bool:
    """Whether there is no pooler in between, which gives its clients process ids of its own; asks once a connection."""
    if connection.pgconn.transaction_status == TransactionStatus.INERROR:
        return False
    [(pid,)] = psycopg.Cursor(connection).execute("SELECT pg_backend_pid()").fetchall()
    return bool(pid == connection.info.backend_pid)


def _is_off(connection: Any) -> bool:
    return bool(connection.pgconn.pipeline_status == PipelineStatus.OFF)


class InsertCursor(DjangosCursor):
    """A cursor for one INSERT of jobs and the statement that follows it, or for that one alone."""

    def __init__(self, session: Session, follow_up: FollowUp | None, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self._session = session
        self._follow_up = follow_up
        self._answered: list[tuple[Any, ...]] | None = None

    def execute(self, query: Any, params: Any = None, **options: Any) -> Self:
        if params is None:  # a backend's own, as that which sets the search_path
            return super().execute(query, params, **options)
        if self._follow_up and self._goes_together():
            answer = self._execute_together(query, params, self._follow_up)
            if answer is not None:
                transformer = Transformer(self)
                transformer.set_pgresult(answer)
                self._answered = transformer.load_rows(0, answer.ntuples, tuple)
                return self._logged(query)
        return self._execute_alone(query, params, **options)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return super().fetchall() if self._answered is None else self._answered

    def _goes_together(self) -> bool:
        connection = self.connection
        is_idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        is_free = connection.autocommit and is_idle and _is_off(connection)
        return is_free and connection.info.encoding == "utf-8" and psycopg.Pipeline.is_supported()

    def _execute_alone(self, query: Any, params: Any, **options: Any) -> Self:
        if not self._session.prepares(query):
            return super().execute(query, params, **options)
        connection: Any = self.connection
        before = connection.prepare_threshold
        connection.prepare_threshold = 0  # Django's is None, by which nothing is prepared
        try:
            super().execute(query, params, **options)
        except psycopg.Error as error:
            if error.sqlstate not in FORGOTTEN:
                raise
            self._session.may_prepare = False  # something resets this connection, and may do so again
            if connection.pgconn.transaction_status == TransactionStatus.INERROR:
                raise
            return super().execute(query, params, **{**options, "prepare": False})
        finally:
            connection.prepare_threshold = before
        return self._logged(query)

    def _logged(self, query: str) -> Self:
        """Leave the text of the statement where Django's log of queries looks for it; psycopg leaves none here."""
        self._query: Any = SimpleNamespace(query=numbered(query)[0])
        return self

    def _execute_together(self, query: str, params: Mapping[str, Any], follow_up: FollowUp) -> PGresult | None:
        """Return the answer to the statement; None: its prepared statement is gone."""
        answers: list[list[PGresult]] = []
        connection: Any = self.connection
        try:
            with connection.lock:
                self._talk(connection, ((query, params), (follow_up.sql, follow_up.parameters)), answers)
        except psycopg.Error:
            if not answers:
                raise  # else it is committed, and the connection broke after that
        answer, *others = map(_outcome, answers)
        if not isinstance(answer, psycopg.Error):
            follow_up.is_done = bool(others) and not isinstance(others[0], psycopg.Error)
            return answer
        if self._session.may_prepare and answer.sqlstate in FORGOTTEN:
            self._session.may_prepare = False
            return None
        raise answer

    def _talk(
        self, connection: Any, statements: tuple[tuple[str, Mapping[str, Any]], ...], answers: list[list[PGresult]]
    ) -> None:
        """Send the statements, each with a Sync behind it, which commits it; add the answers to each as they come."""
        pgconn: PGconn = connection.pgconn
        try:  # a time limit may be raised at any point
            pgconn.enter_pipeline_mode()
            for query, params in statements:
                self._send(pgconn, query, params)
                pgconn.pipeline_sync()
            connection.wait(_answers(pgconn, answers, len(statements)))
        finally:
            if pgconn.status == ConnStatus.OK:
                try:
                    pgconn.exit_pipeline_mode()
                except psycopg.Error:  # cut short, with answers on their way
                    connection.close()

    def _send(self, pgconn: PGconn, query: str, params: Mapping[str, Any]) -> None:
        command, names = numbered(query)
        values = [_written(params[name]) for name in names]
        if not self._session.prepares(query):
            pgconn.send_query_params(command, values)
            return
        name = f"pgqueue_{hash(query):x}".encode()
        if query not in self._session.prepared:
            pgconn.send_prepare(name, command)
            self._session.prepared.add(query)
        pgconn.send_query_prepared(name, values)


def _written(value: Any) -> bytes | None:
    """Return a value as the server reads it. The text of an Enum with values of such a type is its name."""
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case int():
            return b"%d" % value
        case _:
            return str(value).encode()


PARAMETER = re.compile(r"%\((\w+)\)s")


@functools.lru_cache(maxsize=64)
def numbered(query: str) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with its parameters by number, as the server takes them, and their names in that order."""
    names = tuple(dict.fromkeys(PARAMETER.findall(query)))
    numbers = {name: f"${number}" for number, name in enumerate(names, 1)}
    return PARAMETER.sub(lambda match: numbers[match[1]], query).encode(), names


def _answers(pgconn: PGconn, answers: list[list[PGresult]], number: int) -> Generator[Any, Any, None]:
    yield from send(pgconn)
    results: list[PGresult] = []
    while len(answers) < number:
        result = yield from fetch(pgconn)
        if result is None:
            continue
        if result.status == ExecStatus.PIPELINE_SYNC:
            answers.append(results)
            results = []
        else:
            results.append(result)


def _outcome(results: list[PGresult]) -> PGresult | psycopg.Error:
    """Return the last answer to a statement; or the error with which it, its preparation or its commit has failed."""
    failed = next((result for result in results if result.status == ExecStatus.FATAL_ERROR), None)
    return results[-1] if failed is None else error_from_result(failed)
