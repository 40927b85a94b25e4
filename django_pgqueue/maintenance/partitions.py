"""Make one partition of succeeded_jobs for each UTC day ahead; drop it when it is older than the retention.

Any worker does it, several at once if it happens so: the second finds it done. No lock is waited for longer than
100 ms, and nothing is drained: a day whose rows lie in the default partition already gets no partition of its own, and
those rows are pruned there, see ``pruner``.
"""

import datetime as dt
import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import psycopg
from django.utils import timezone
from psycopg import sql

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import Database, QueueConnection, Row
from django_pgqueue.db.queries import statement

logger = logging.getLogger("django_pgqueue.worker")

PARENT = "pgqueue_succeeded_jobs"
DAYS_AHEAD = 7
LIMITS = sql.SQL("SELECT set_config('lock_timeout', '100ms', true), set_config('statement_timeout', {}, true)")


class Partition(NamedTuple):
    """One partition; the columns of ``partitions.sql``."""

    schema: str
    name: str
    is_default: bool
    begins_at: dt.datetime | None
    ends_at: dt.datetime | None  # its rows have succeeded before that; None: the default one, or one without an end

    def holds(self, instant: dt.datetime) -> bool:
        begins_at, ends_at = self.begins_at, self.ends_at
        return begins_at is not None and ends_at is not None and begins_at <= instant < ends_at


class PartitionPlan(NamedTuple):
    today: dt.date  # in UTC, by the database's clock
    present: Sequence[Partition]
    make: Sequence[dt.date]
    drop: Sequence[Partition]


class PartitionsResult(NamedTuple):
    made: int = 0
    dropped: int = 0
    is_blocked: bool = False  # another session had locked the rest: soon it may be free


def plan(database: Database, *, retention_days: int) -> PartitionPlan:
    """Return what a pass would do now. Reads the catalogue alone."""
    [(today,)] = database.rows("SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date", {})
    present = [
        Partition(schema, name, is_default, _aware(begins_at), _aware(ends_at))
        for schema, name, is_default, begins_at, ends_at in database.rows(statement("partitions"), {})
    ]
    ahead = [today + dt.timedelta(days) for days in range(DAYS_AHEAD + 1)] if retention_days else []
    kept_from = midnight(today - dt.timedelta(retention_days))
    return PartitionPlan(
        today,
        present,
        make=[day for day in ahead if not any(partition.holds(midnight(day)) for partition in present)],
        drop=[partition for partition in present if partition.ends_at is not None and partition.ends_at <= kept_from],
    )


def maintain_partitions(database: QueueConnection, *, retention_days: int) -> PartitionsResult:
    """Make the partitions of today and the week ahead; drop those older than the retention.

    The worker's role needs to own the table; where it does not, this logs a warning and jobs go to the default
    partition. ``retention_days`` are whole days to keep in addition to today; 0: history is off, none are made.
    """
    planned = plan(database, retention_days=retention_days)
    connection = database.autocommit()
    try:
        made, is_making_blocked = _do(connection, map(_making, planned.make))
        dropped, is_dropping_blocked = _do(connection, map(_dropping, planned.drop))
    except psycopg.errors.InsufficientPrivilege as error:
        logger.warning("Partitions of %s cannot be kept: %s. The worker's role must own the table.", PARENT, error)
        return PartitionsResult()
    if made or dropped:
        logger.info("Partitions of %s: %d made, %d dropped", PARENT, made, dropped)
    return PartitionsResult(made, dropped, is_making_blocked or is_dropping_blocked)


def _aware(instant: dt.datetime | None) -> dt.datetime | None:
    """Return an instant with its zone: where ``USE_TZ`` is off, Django reads them without, in that of the settings."""
    if instant is None or timezone.is_aware(instant):
        return instant
    return timezone.make_aware(instant, timezone.get_default_timezone())


def midnight(day: dt.date) -> dt.datetime:
    """Return the instant at which a day begins, in UTC."""
    return dt.datetime.combine(day, dt.time(), dt.UTC)


Statements = Sequence[sql.Composed]


def _making(day: dt.date) -> Statements:
    """Make a table of its own and attach it: a shorter lock on the parent than CREATE … PARTITION OF."""
    parent, name = sql.Identifier(PARENT), sql.Identifier(f"{PARENT}_{day:%Y%m%d}")
    bounds = [f"{day} 00:00:00+00", f"{day + dt.timedelta(1)} 00:00:00+00"]
    return [
        sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING ALL)").format(name, parent),
        sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(
            parent, name, *map(sql.Literal, bounds)
        ),
    ]


def _dropping(partition: Partition) -> Statements:
    """Lock the partition before DROP locks the parent: acks would queue behind a session that waits for that.

    A session that reads all of the history reads the partition too, so a long reader is waited for there. One that
    reads other days alone is waited for at the parent, with acks behind, until the lock timeout.
    """
    name = sql.Identifier(partition.schema, partition.name)
    return [
        sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(name),
        sql.SQL("DROP TABLE {}").format(name),
    ]


def _do(connection: psycopg.Connection[Row], works: Iterable[Statements]) -> tuple[int, bool]:
    """Do one after the other, until another session holds a lock, or one takes too long: so would all the others."""
    done = 0
    for statements in works:
        try:
            done += _brief(connection, statements)
        except psycopg.errors.LockNotAvailable as error:
            logger.info(
                "Partition maintenance is blocked by another session and will be tried again soon: %s",
                error.diag.message_primary,
            )
            return done, True
        except psycopg.errors.QueryCanceled as error:
            logger.info("Left for the next pass, with the others: %s", error.diag.message_primary)
            return done, False
    return done, False


def _brief(connection: psycopg.Connection[Row], statements: Statements) -> bool:
    """Run DDL in a transaction of its own; leave what another worker has done, and a day that has rows elsewhere.

    All of it is sent at once, which makes it one transaction: its locks are not held while an answer is on its way.
    Source: https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-MULTI-STATEMENT

    To look for such rows, ATTACH reads the default partition, which may take too long where that is large; acks of kept
    jobs wait meanwhile.
    """
    try:
        limits = LIMITS.format(sql.Literal(f"{conf.statement_timeout_seconds}s"))
        connection.execute(sql.SQL("; ").join([limits, *statements]))
    except (
        psycopg.errors.DuplicateTable,
        psycopg.errors.DuplicateObject,  # its row type, where both make it at the same moment
        psycopg.errors.UniqueViolation,
        psycopg.errors.UndefinedTable,
        psycopg.errors.CheckViolation,
        psycopg.errors.InvalidObjectDefinition,
    ) as error:
        logger.info("Left for the next pass: %s", error.diag.message_primary)
        return False
    return True
