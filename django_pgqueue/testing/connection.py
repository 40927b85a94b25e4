"""The test's own connection in the place of a worker's."""

import contextlib
import datetime as dt
from collections.abc import Iterator
from typing import Any, NamedTuple

from django.db import Error, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg.pq import TransactionStatus

from django_pgqueue.db.connections import CallerConnection, Parameters, PendingResult, QueueConnection, Row
from django_pgqueue.exceptions import ConfigurationError


class TestConnection(CallerConnection, QueueConnection):
    """Runs the statements of workers on the caller's connection, in the transaction that is open there.

    Statements that are sent run at once. No session is notified: none can see the jobs.
    """

    __test__ = False  # for pytest, which takes the name for that of a test

    @contextlib.contextmanager
    def transaction(
        self,
        *,
        commits: bool = False,  # noqa: ARG002 - a worker's has it
        lock_milliseconds: int | None = None,  # noqa: ARG002 - no other session holds a lock, and it would stay set
        is_single: bool = False,  # noqa: ARG002 - a worker's has it
    ) -> Iterator[None]:
        with transaction.atomic(using=self.alias):
            yield

    def send(self, sql: str, parameters: Parameters) -> PendingResult:
        return FetchedRows(self.rows(sql, parameters))

    def notify(self, sql: str, parameters: Parameters) -> None:
        pass

    def close(self) -> None:
        pass


def must_be_migrated(alias: str) -> None:
    """Raise ConfigurationError where the tables were made from the models alone, without functions and partitions."""
    [(is_there,)] = CallerConnection(alias).rows("SELECT to_regproc('pgqueue_turns') IS NOT NULL", {})
    if not is_there:
        raise ConfigurationError(
            f"The tables of the queue on {alias!r} were made without its migrations, and lack what models cannot say. "
            "Run tests without --no-migrations, or leave django_pgqueue out of MIGRATION_MODULES."
        )


def is_broken(connection: BaseDatabaseWrapper) -> bool:
    """Whether nothing but a rollback is possible on a connection."""
    beneath = connection.connection
    if connection.needs_rollback or beneath is None or connection.vendor != "postgresql":
        return connection.needs_rollback
    return bool(beneath.info.transaction_status == TransactionStatus.INERROR)


def is_of_test(block: Any) -> bool:
    """Whether an atomic block is a test case's own, which Django takes for none where code wants to be durable."""
    return bool(block._from_testcase)  # noqa: SLF001 - Django's own tests know no other way


class FetchedRows(NamedTuple):
    """An answer that is there already."""

    rows: list[Row]

    def fetchall(self) -> list[Row]:
        return self.rows


SCHEMA = "pgqueue_testing"
SETTING = "pgqueue.stopped_at"

MAKE = f"""
CREATE SCHEMA IF NOT EXISTS {SCHEMA};
CREATE OR REPLACE FUNCTION {SCHEMA}.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
AS $$ SELECT current_setting('{SETTING}')::timestamptz $$;
"""
DROP = f"DROP SCHEMA {SCHEMA} CASCADE"


class Clock:
    """That of the connection for one alias."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._database = CallerConnection(alias)

    def now(self) -> dt.datetime:
        [(now,)] = self._database.rows("SELECT (statement_timestamp() AT TIME ZONE 'UTC')::text", {})
        return dt.datetime.fromisoformat(now).replace(tzinfo=dt.UTC)

    def set(self, instant: dt.datetime) -> None:
        """Set the stopped clock to this instant."""
        self._configure(SETTING, instant.isoformat())

    @contextlib.contextmanager
    def stopped(self, now: dt.datetime) -> Iterator[None]:
        """Stop it at this instant; it goes right again afterwards. Raises ConfigurationError where it cannot stop."""
        [(path,)] = self._database.rows("SELECT current_setting('search_path')", {})
        try:
            with transaction.atomic(using=self._alias), connections[self._alias].cursor() as cursor:
                cursor.execute(MAKE)
        except Error as error:
            raise ConfigurationError(
                f"The clock of {self._alias!r} cannot be moved: {error} The role of the tests needs the right to make "
                "a schema in the test database."
            ) from error
        self.set(now)
        self._configure("search_path", ", ".join(filter(None, [SCHEMA, "pg_catalog", path])))
        try:
            if self.now() != now:
                raise ConfigurationError(
                    f"The clock of {self._alias!r} cannot be moved: something sets search_path before each statement."
                )
            yield
        finally:
            self._go_on(path)

    def _go_on(self, path: str) -> None:
        if is_broken(connections[self._alias]):
            return  # what stopped it is rolled back too
        self._configure("search_path", path)
        with connections[self._alias].cursor() as cursor:
            cursor.execute(DROP)

    def _configure(self, name: str, value: str) -> None:
        self._database.rows("SELECT set_config(%(name)s, %(value)s, false)", {"name": name, "value": value})
