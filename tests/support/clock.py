"""A database with another clock, so that neither an hour nor a day is over in the middle of a test.

The queue decides by ``statement_timestamp()``, and tests ask for ``now()``. PostgreSQL looks for both along
``search_path``: functions of a schema before ``pg_catalog`` take their place. It stands behind the schema in which
tables are made. Only the defaults of columns go by the right time.

Source: https://www.postgresql.org/docs/current/ddl-schemas.html#DDL-SCHEMAS-CATALOG
"""

import contextlib
from collections.abc import Iterator

from django.db import connection
from psycopg import sql

SCHEMA = "clock_of_tests"
NOON = "(date_trunc('day', now() AT TIME ZONE 'UTC') + interval '12 h') AT TIME ZONE 'UTC'"
HALF_PAST = "date_trunc('hour', now()) + interval '90 min'"
"""Half past the next hour: what is due by the right time is due by then."""

MAKE = """
DROP SCHEMA IF EXISTS {schema} CASCADE;
CREATE SCHEMA {schema};
GRANT USAGE ON SCHEMA {schema} TO PUBLIC;
CREATE FUNCTION {schema}.now() RETURNS timestamptz LANGUAGE sql STABLE
AS $$ SELECT pg_catalog.now() + {ahead}::interval $$;
CREATE FUNCTION {schema}.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
AS $$ SELECT pg_catalog.statement_timestamp() + {ahead}::interval $$;
ALTER DATABASE {database} SET search_path = {path}, {schema}, pg_catalog;
"""
END = "ALTER DATABASE {database} RESET search_path; DROP SCHEMA {schema} CASCADE"


@contextlib.contextmanager
def clock_set(instant: str) -> Iterator[None]:
    """Set the clock of the connections that are opened from now on to an instant, in SQL; it goes on from there."""
    names = {"schema": sql.Identifier(SCHEMA), "database": sql.Identifier(connection.settings_dict["NAME"])}
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT ({instant} - now())::text")
        [ahead] = cursor.fetchone()
        cursor.execute("SELECT current_setting('search_path')")
        [path] = cursor.fetchone()
        cursor.execute(sql.SQL(MAKE).format(ahead=sql.Literal(ahead), path=sql.SQL(path), **names))
    connection.close()
    try:
        yield
    finally:
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute(sql.SQL(END).format(**names))
        connection.close()
