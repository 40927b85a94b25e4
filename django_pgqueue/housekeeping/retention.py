"""One partition of finished_jobs for each UTC day: made ahead, dropped when it is older than the retention."""

import datetime as dt
import logging
import re

import psycopg
from psycopg import sql

from django_pgqueue.db import QueueConnection

logger = logging.getLogger("django_pgqueue.worker")

PARENT = "pgqueue_finished_jobs"
DAYS_AHEAD = 7
PARTITION = re.compile(rf"{PARENT}_(\d{{8}})")


def keep_partitions(database: QueueConnection, *, retention_days: int) -> tuple[int, int]:
    """Make the partitions of today and the week ahead; drop those older than the retention.

    DDL with a lock timeout of 100 ms: a reader in the way postpones it to the next pass and is not queued behind. The
    worker's role needs to own the table; where it does not, this logs a warning and jobs go to the default partition.

    Args:
        retention_days: whole days to keep besides today; 0 or more.

    Returns:
        How many were made and how many dropped.
    """
    connection = database.autocommit()
    today = connection.execute("SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date").fetchone()[0]  # type: ignore[index]
    present = _days(connection)
    missing = [day for ahead in range(DAYS_AHEAD + 1) if (day := today + dt.timedelta(ahead)) not in present]
    expired = [day for day in present if day < today - dt.timedelta(retention_days)]
    try:
        made = sum(_make(connection, day) for day in missing)
        dropped = sum(_drop(connection, day) for day in expired)
    except psycopg.errors.InsufficientPrivilege as error:
        logger.warning("Partitions of %s cannot be kept: %s. The worker's role must own the table.", PARENT, error)
        return 0, 0
    return made, dropped


def _days(connection: psycopg.Connection) -> list[dt.date]:
    rows = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", [PARENT]
    ).fetchall()
    names = (PARTITION.search(name) for (name,) in rows)
    return sorted(dt.datetime.strptime(name[1], "%Y%m%d").replace(tzinfo=dt.UTC).date() for name in names if name)


def _make(connection: psycopg.Connection, day: dt.date) -> bool:
    """Make a table of its own and attach it: a shorter lock on the parent than CREATE … PARTITION OF."""
    name = sql.Identifier(f"{PARENT}_{day:%Y%m%d}")
    bounds = [f"{day} 00:00:00+00", f"{day + dt.timedelta(1)} 00:00:00+00"]
    return _brief(
        connection,
        sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(name, sql.Identifier(PARENT)),
        sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(
            sql.Identifier(PARENT), name, *map(sql.Literal, bounds)
        ),
    )


def _drop(connection: psycopg.Connection, day: dt.date) -> bool:
    return _brief(connection, sql.SQL("DROP TABLE {}").format(sql.Identifier(f"{PARENT}_{day:%Y%m%d}")))


def _brief(connection: psycopg.Connection, *statements: sql.Composed) -> bool:
    """Run DDL unless somebody is in the way: another worker that makes the same, a reader, rows of that day."""
    try:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '100ms'")
            for statement in statements:
                connection.execute(statement)
    except (
        psycopg.errors.LockNotAvailable,
        psycopg.errors.DuplicateTable,
        psycopg.errors.UniqueViolation,
        psycopg.errors.UndefinedTable,
        psycopg.errors.CheckViolation,
        psycopg.errors.InvalidObjectDefinition,
    ) as error:
        logger.info("Left for the next pass: %s", error.diag.message_primary)
        return False
    return True
