"""Move the clocks of a test.

All that the queue decides by time it decides in SQL, by ``statement_timestamp()``. PostgreSQL looks for a function
without a schema along ``search_path``; so one of that name in a schema before ``pg_catalog`` takes its place, for this
connection only. Rows are left as they are.

Source: https://www.postgresql.org/docs/current/ddl-schemas.html#DDL-SCHEMAS-CATALOG
"""

import contextlib
import datetime as dt
from collections.abc import Iterator

from django.db import Error, connections, transaction

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.testing.connection import is_broken

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
        """Let it stand at this instant, while it is stopped."""
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
