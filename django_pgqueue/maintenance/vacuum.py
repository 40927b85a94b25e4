"""VACUUM the jobs table from the workers, when it has many dead rows and some of them can be removed.

Autovacuum looks at a table once a minute at most; at 50,000 jobs a second six million rows have died by then.

Nothing that has died since the oldest snapshot was taken can be removed, so a VACUUM under the same oldest snapshot as
the last one is useless and is not tried. Where long transactions overlap, the oldest moves but stays far behind; so one
that has left most of the dead rows makes the next wait, each time longer.

One at a time: VACUUM takes a lock that conflicts with itself and with DDL, but with no statement of the queue, and
SKIP_LOCKED steps back where another session has it or waits for more. There is no lock of our own that a pooler could
lose.
"""

import datetime as dt
import logging
import math
import time
from dataclasses import dataclass
from typing import NamedTuple

from django_pgqueue.db.connections import Database, QueueConnection
from django_pgqueue.db.queries import statement

logger = logging.getLogger("django_pgqueue.worker")

# TRUNCATE would take a lock that stops claims. PARALLEL workers would take cores from the workers.
VACUUM = "VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF, PARALLEL 0) pgqueue_jobs"

SHARE_OF_LIVE = 10
"""A VACUUM reads the indexes whole: in a long queue, wait until a tenth as many rows are dead as live."""

SHARE_OF_TIME = 5  # minimum time from one VACUUM's beginning to the next, as a multiple of its duration

LONGEST_PAUSE_SECONDS = 60.0
REFUSED_SECONDS = 3600.0
MANY = 10  # dead rows that are held, as a multiple of the threshold, from which on a log line says so

REMEDY = "Set PGQUEUE['MAINTENANCE_DATABASE'] to an alias whose role owns it, or GRANT MAINTAIN (PostgreSQL 17+)."


class TableCounters(NamedTuple):
    """The server's counters of the jobs table."""

    dead: int
    live: int
    vacuums: int  # ever, by any session
    vacuumed_at: dt.datetime | None  # by a command, of a worker or any other session
    autovacuumed_at: dt.datetime | None


class SnapshotHolder(NamedTuple):
    """Holder of the oldest snapshot of this database."""

    xid: str
    name: str
    kind: str  # session, standby, slot or prepared
    handle: str  # the pid of the first two, the name of the others
    seconds: float | None  # since when; None: not known, or not shown to this role


class Privileges(NamedTuple):
    may_vacuum: bool
    may_partition: bool
    may_prune: bool  # dead jobs


class VacuumResult(NamedTuple):
    dead: int  # rows before
    left: int  # dead rows after
    seconds: float


@dataclass
class VacuumHistory:
    """Memory of the VACUUMs before, of one worker. Kept by the caller between passes, written by ``vacuum``."""

    vacuums: int | None = None
    horizon: str | None = None  # the oldest snapshot under which the last one ran
    poor: int = 0  # number in a row that have left most of the dead rows
    not_before: float = -math.inf  # monotonic
    told: str | None = None  # the last complaint


def vacuum(database: QueueConnection, past: VacuumHistory, *, threshold: int) -> VacuumResult | None:
    """VACUUM the jobs table once, if that pays. It may take long, and blocks only DDL.

    Where the role may not, this warns, once, and looks again after an hour.

    Args:
        database: a connection of a role that owns the table, or has MAINTAIN on it.
        threshold: dead rows, 1 or more. In a long queue more are waited for.

    Returns:
        The numbers of a VACUUM; None if it was not needed, useless or not permitted, or another session ran one.
    """
    signs = look(database)
    if time.monotonic() < past.not_before or signs.dead < max(threshold, signs.live // SHARE_OF_LIVE):
        return None
    holder = oldest_snapshot(database)
    if not _is_useful(past, signs, holder, threshold) or not _is_free(database, past):
        return None
    begun = time.monotonic()
    database.autocommit(may_take_long=True).execute(VACUUM, prepare=False)
    seconds, after = time.monotonic() - begun, look(database)
    if after.vacuums == signs.vacuums:
        return None  # it stepped back
    done = VacuumResult(signs.dead, after.dead, seconds)
    _remember(past, done, after, holder)
    return done


def look(database: Database) -> TableCounters:
    """Read the counters: no table, so it costs a round trip and no more."""
    [row] = database.rows(statement("dead_rows"), {})
    return TableCounters._make(row)


def oldest_snapshot(database: Database) -> SnapshotHolder | None:
    """Return who holds the oldest snapshot that this role can see; None if there is none."""
    rows = database.rows(statement("oldest_snapshot"), {})
    return SnapshotHolder._make(rows[0]) if rows else None


def privileges(database: Database) -> Privileges | None:
    """Return what the role may do; None where the tables are not there."""
    rows = database.rows(statement("maintenance_privileges"), {})
    return Privileges._make(rows[0]) if rows else None


def _is_useful(past: VacuumHistory, signs: TableCounters, holder: SnapshotHolder | None, threshold: int) -> bool:
    """Whether more can be removed than by the last VACUUM; one of another session counts as if it had run just now."""
    xid = holder.xid if holder else None
    if past.vacuums not in (None, signs.vacuums):
        past.vacuums, past.horizon = signs.vacuums, xid
    if holder is None or xid != past.horizon:
        return True
    if signs.dead >= MANY * threshold and past.told != xid:
        past.told = xid
        logger.warning("An old snapshot keeps %d dead rows in pgqueue_jobs: that of %s", signs.dead, holder.name)
    return False


def _is_free(database: Database, past: VacuumHistory) -> bool:
    allowed = privileges(database)
    if allowed is None or not allowed.may_vacuum:
        past.not_before = time.monotonic() + REFUSED_SECONDS
        if past.told != REMEDY:
            past.told = REMEDY
            logger.warning("The worker's role may not VACUUM pgqueue_jobs. %s", REMEDY)
        return False
    [(is_taken,)] = database.rows(statement("vacuum_in_progress"), {})
    return not is_taken


def _remember(past: VacuumHistory, done: VacuumResult, after: TableCounters, holder: SnapshotHolder | None) -> None:
    past.vacuums, past.horizon = after.vacuums, holder.xid if holder else None
    past.poor = past.poor + 1 if done.left > done.dead // 2 else 0
    pause = min(2.0**past.poor, LONGEST_PAUSE_SECONDS) if past.poor else 0.0
    past.not_before = time.monotonic() + max(pause, done.seconds * (SHARE_OF_TIME - 1))
