"""Pass of maintenance: bring the jobs of fair keys forward that are further behind than their turns.

A turn is given when a job is enqueued, after the jobs that are visible then. Jobs of a transaction that was still open
may appear far before those of other keys; so may jobs that were moved, or inserted by plain SQL. Then the first jobs of
the others are brought forward, a hundred of each key at a time.
"""

import datetime as dt
import time
from collections.abc import Sequence
from typing import NamedTuple

from django_pgqueue.db.connections import Database
from django_pgqueue.db.queries import statement

MOST_LATE = 10  # maximum number of keys that catch up in one statement
TOLERATED = dt.timedelta(microseconds=100)  # lag of a key, in turns of a microsecond, behind the twentieth job
SLOW_SECONDS = 0.02  # of the search for the heads of queues, from which on they are noted for sessions that enqueue

LATE_SECONDS = 0.1  # while a key is behind: the jobs that were brought forward may be done soon
TURNS_SECONDS = 1.0  # while there are fair keys
NONE_SECONDS = 10.0

Place = tuple[str, str, int]  # of the round of all keys: queue, fair key, rank

START: Place = ("", "", -32768)


class FairKeyHead(NamedTuple):
    """Position of a key: the columns of ``fair_key_heads.sql``."""

    queue: str
    fair_key: str
    rank: int  # the priority, negated
    run_at: dt.datetime  # of its first job
    first: dt.datetime | None  # of the first job of the queue at this priority
    far: dt.datetime | None  # of its twentieth: a few may be anywhere, as those of a worker that died

    @property
    def lag(self) -> dt.timedelta:
        return self.run_at - self.far if self.far else dt.timedelta(0)


class FairnessResult(NamedTuple):
    keys: int  # looked at
    late: int  # keys that were behind
    next: Place  # where the next pass begins


def advance_fair_keys(database: Database, *, after: Place = START, limit: int = 500) -> FairnessResult:
    """Look at up to ``limit`` fair keys, and bring jobs of those forward that are behind.

    Any number of workers may do it: jobs that are being changed or claimed are left alone.
    """
    begun = time.monotonic()
    parameters = {"queue": after[0], "fair_key": after[1], "rank": after[2], "limit": limit}
    fronts = [FairKeyHead._make(row) for row in database.rows(statement("fair_key_heads"), parameters)]
    if time.monotonic() - begun > SLOW_SECONDS:
        _note_heads(database, fronts)
    late = [front for front in fronts if front.lag > TOLERATED]
    for begin in range(0, len(late), MOST_LATE):
        _catch_up(database, late[begin : begin + MOST_LATE])
    return FairnessResult(len(fronts), len(late), fronts[-1][:3] if len(fronts) == limit else START)


def _catch_up(database: Database, late: Sequence[FairKeyHead]) -> None:
    parameters = {
        "queues": [front.queue for front in late],
        "fair_keys": [front.fair_key for front in late],
        "ranks": [front.rank for front in late],
        "run_ats": [front.run_at for front in late],
        "lags": [front.lag for front in late],
    }
    database.rows(statement("advance_fair_keys"), parameters)


def _note_heads(database: Database, fronts: Sequence[FairKeyHead]) -> None:
    heads = {(front.queue, front.rank): front.first for front in fronts if front.first}
    parameters = {
        "queues": [queue for queue, _ in heads],
        "ranks": [rank for _, rank in heads],
        "run_ats": list(heads.values()),
    }
    database.rows(statement("save_queue_heads"), parameters)


class FairKeys:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._place = START

    def keep_turns(self) -> float:
        """Do the next part of the round of all fair keys; return the seconds until the one after it."""
        done = advance_fair_keys(self._database, after=self._place)
        self._place = done.next
        return LATE_SECONDS if done.late else TURNS_SECONDS if done.keys else NONE_SECONDS
