"""Loader of SQL statements, and limits to what reading may cost.

Each statement is a file of its own, in the ``sql`` folder of the subject that runs it. No two files have the same name,
so the name alone finds one.
"""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

from django.db import OperationalError, connections, transaction
from psycopg import sql
from psycopg.errors import QueryCanceled, SerializationFailure

from django_pgqueue.conf import NUMBER_SHIFT, conf

PACKAGE = Path(__file__).parent.parent

# Sizes that a batch may have. LIMIT is a literal: with a parameter there, the planner of a prepared statement would
# assume a tenth of the table. A few sizes keep the number of prepared statements small.
LADDER = 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 64, 80, 100, 128, 160, 200, 250, 320, 400, 500, 700, 1000
LIMIT = "LIMIT 1000"


@functools.cache
def statement(name: str) -> str:
    """Return the text of ``name.sql``."""
    return files()[name].read_text()


@functools.cache
def files() -> dict[str, Path]:
    """Return the file of each statement by its name."""
    return {path.stem: path for path in PACKAGE.glob("*/sql/*.sql")}


@functools.cache
def sized(name: str, size: int) -> str:
    """Return ``name.sql`` with its LIMIT set to ``size``, one of ``LADDER``."""
    text = statement(name)
    if text.count(LIMIT) != 1 or size not in LADDER:
        raise ValueError(f"{name}.sql has no single {LIMIT!r}, or {size} is not in the ladder {LADDER}.")
    return text.replace(LIMIT, f"LIMIT {size:d}")


def ladder_size(wanted: int) -> int:
    """Return the largest size of the ladder that is not above ``wanted`` (1 or more)."""
    return max(size for size in LADDER if size <= wanted)


# Ids

MOST_OF_NUMBER = 1 << (NUMBER_SHIFT - 1)
"""Ids of jobs that one database gives out. Those above, up to the next number, are of jobs that come to it."""


def numbering(table: str, number: int, shift: int = NUMBER_SHIFT) -> str:
    """Return the statement that lets new ids of a table begin with the number of its database.

    Args:
        shift: bits of an id below the number, of which the highest is left free.
    """
    first = (number << shift) + 1
    last = first - 2 + (1 << (shift - 1))
    text = "ALTER TABLE {} ALTER COLUMN id SET MINVALUE {} SET MAXVALUE {} SET START WITH {} RESTART"
    return sql.SQL(text).format(sql.Identifier(table), first, last, first).as_string(None)


# Reading

READ_SETTINGS = (
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), "
    "set_config('enable_sort', 'off', true), set_config('jit', 'off', true), "
    "set_config('statement_timeout', COALESCE(%s, current_setting('statement_timeout')), true)"
)


class TookTooLong(Exception):  # noqa: N818 - reads as what happened
    """PostgreSQL has stopped a statement for the time it took."""


@contextlib.contextmanager
def bounded(alias: str | None = None) -> Iterator[None]:
    """Read inside, each statement for ``READ_TIMEOUT_SECONDS`` at most and along an index where there is one.

    It is a transaction, or a savepoint, that is rolled back to end the settings: write nothing inside. Raises
    TookTooLong where a statement was stopped, for its time or, on a replica, by the rows that replication removes.
    """
    try:
        with along_an_index(alias or conf.database_here, timeout_seconds=conf.read_timeout_seconds):
            yield
    except OperationalError as error:
        if isinstance(error.__cause__, (QueryCanceled, SerializationFailure)):
            raise TookTooLong(
                f"Reading took longer than {conf.read_timeout_seconds:g} s and was stopped. The server is busy, or "
                "short of memory. Try again, or allow more: PGQUEUE['READ_TIMEOUT_SECONDS']."
            ) from error
        raise


@contextlib.contextmanager
def along_an_index(alias: str, *, timeout_seconds: float | None = None) -> Iterator[None]:
    """Read in the order of an index where there is one, even if a scan and a sort seem cheaper.

    The hot table swings between empty and full, so its statistics mislead: a count that looks cheap may be a scan of
    everything. Nothing is written inside, so the transaction, or the savepoint, is rolled back to end the settings.
    """
    with transaction.atomic(using=alias):
        with connections[alias].cursor() as cursor:
            cursor.execute(READ_SETTINGS, [None if timeout_seconds is None else f"{timeout_seconds * 1000:.0f}ms"])
        yield
        transaction.set_rollback(True, using=alias)
