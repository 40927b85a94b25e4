"""Ticks that are over become jobs. Any number of workers may try: each tick is moved on by one of them."""

import datetime as dt
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django.db import Error

from django_pgqueue import tasks
from django_pgqueue.base.database_errors import is_locked, is_too_much, is_transient
from django_pgqueue.base.exceptions import PgQueueError
from django_pgqueue.base.states import CatchUp
from django_pgqueue.db import QueueConnection
from django_pgqueue.lifecycle.enqueue import enqueue_tick
from django_pgqueue.lifecycle.schedules import ScheduleRow
from django_pgqueue.lifecycle.sql import ladder_size, sized, statement
from django_pgqueue.timetable import declared

logger = logging.getLogger("django_pgqueue.worker")

LATE = dt.timedelta(minutes=1)
"""A tick that is no later than this is not taken for missed."""

PUT_OFF = dt.timedelta(hours=1)
"""When to look again at a schedule whose ticks cannot be reckoned."""

MOST_TOGETHER = 20  # schedules that are moved on in one transaction
LOCK_MILLISECONDS = 100


@dataclass
class Fired:
    """What a pass came to."""

    jobs: int = 0
    payloads: set[str] = field(default_factory=set)  # of wake-ups that are to be sent
    next_seconds: float | None = None  # until the next tick; None: there is none

    def add(self, other: "Fired") -> None:
        self.jobs += other.jobs
        self.payloads |= other.payloads


class Turn(NamedTuple):
    """What is to be done about one schedule that is due."""

    row: ScheduleRow
    ticks: list[dt.datetime]  # those that become jobs
    next_at: dt.datetime
    error: str = ""


def fire_due(
    database: QueueConnection,
    *,
    limit: int = 100,
    now: dt.datetime | None = None,
    known: Mapping[str, Sequence[str]] | None = None,
) -> Fired:
    """Make jobs of the ticks of up to ``limit`` schedules, 1 to 1,000, that are due.

    The jobs and the next tick of a schedule are written in one transaction, which waits for nobody. A schedule that
    cannot be enqueued moves on with ``last_error`` and stands in no other's way.

    Args:
        now: None: the time of the database's clock.
        known: ``names`` of schedules of the code, and ``tasks`` of others. None: all that this code knows.
    """
    known = {"names": list(declared()), "tasks": tasks.answering()} if known is None else known
    coming = database.rows(sized("next_schedules", ladder_size(limit)), {**known, "now": now})
    due = [schedule_id for schedule_id, seconds in coming if seconds <= 0]
    fired = Fired(next_seconds=max(coming[0][1], 0.0) if coming else None)
    for start in range(0, len(due), MOST_TOGETHER):
        fired.add(_fire(database, due[start : start + MOST_TOGETHER], now))
    return fired


def _fire(database: QueueConnection, ids: Sequence[int], now: dt.datetime | None) -> Fired:
    """Move schedules on in one transaction, in smaller ones where one of them fails."""
    try:
        return _move(database, ids, now, _turn)
    except Error as error:
        if is_transient(error) and not is_locked(error) and not (is_too_much(error) and len(ids) > 1):
            raise
        reason: Exception = error
    except Exception as error:  # noqa: BLE001 - as from a function of the project that computes a key
        reason = error
    if len(ids) > 1:
        fired, half = Fired(), len(ids) // 2
        for part in (ids[:half], ids[half:]):
            fired.add(_fire(database, part, now))
        return fired
    if is_locked(reason):
        return Fired()  # somebody has just enqueued a job with the same unique key; its transaction is open
    why = f"{type(reason).__name__}: {reason}".partition("\n")[0]  # what follows may have values of arguments
    return _move(database, ids, now, lambda row: _passed(row, why))


def _move(
    database: QueueConnection, ids: Sequence[int], now: dt.datetime | None, decide: Callable[[ScheduleRow], Turn]
) -> Fired:
    fired = Fired()
    announcements: list[Callable[[], None]] = []
    with database.transaction():
        database.rows(statement("lock_timeout"), {"milliseconds": LOCK_MILLISECONDS})
        rows = database.rows(statement("take_schedules"), {"ids": list(ids), "now": now})
        turns = [decide(ScheduleRow._make(row)) for row in rows]
        jobs = [_enqueue(database, turn, fired.payloads, announcements) for turn in turns]
        if turns:
            _advance(database, turns, jobs)
    fired.jobs = sum(map(len, jobs))
    for turn in turns:
        _tell(turn)
    for announce in announcements:
        announce()
    return fired


def _enqueue(
    database: QueueConnection, turn: Turn, payloads: set[str], announcements: list[Callable[[], None]]
) -> list[int]:
    if not turn.ticks:
        return []
    task, args, kwargs = turn.row.call()
    spread = dt.timedelta(seconds=spread_seconds(turn.row.name, turn.row.jitter_seconds))
    return [
        enqueue_tick(
            database,
            task.using(run_at=tick + spread, database=database.alias),
            args,
            kwargs,
            schedule_id=turn.row.id,
            payloads=payloads,
            announcements=announcements,
        )
        for tick in turn.ticks
    ]


def _advance(database: QueueConnection, turns: Sequence[Turn], jobs: Sequence[list[int]]) -> None:
    parameters = {
        "ids": [turn.row.id for turn in turns],
        "ticks": [turn.row.next_at for turn in turns],
        "next_ats": [turn.next_at for turn in turns],
        "last_ats": [turn.ticks[-1] if turn.ticks else None for turn in turns],
        "job_ids": [ids[-1] if ids else None for ids in jobs],
        "errors": [turn.error for turn in turns],
    }
    if len(database.rows(statement("advance_schedules"), parameters)) != len(turns):
        raise RuntimeError("a tick was moved on by somebody else, though its schedule was locked")


def _turn(row: ScheduleRow) -> Turn:
    """Decide which ticks of a schedule become jobs."""
    try:
        row.call()
        rhythm = row.rhythm()
        return Turn(row, list(_ticks(row)), rhythm.next_after(row.now, known=row.next_at))
    except PgQueueError as error:
        return _passed(row, str(error))


def _ticks(row: ScheduleRow) -> Iterator[dt.datetime]:
    limit = row.catch_up_limit if row.catch_up == CatchUp.ALL else 1
    for tick in row.rhythm().due(row.next_at, row.now, limit=limit):
        if row.catch_up != CatchUp.NONE or row.now - tick <= LATE:
            yield tick


def _passed(row: ScheduleRow, error: str) -> Turn:
    """Let a schedule that cannot be enqueued wait for its next tick."""
    try:
        return Turn(row, [], row.rhythm().next_after(row.now, known=row.next_at), error)
    except PgQueueError:
        return Turn(row, [], row.now + PUT_OFF, error)


def _tell(turn: Turn) -> None:
    row = turn.row
    if turn.error:
        if turn.error != row.last_error:
            logger.error("Schedule %s is passed over: %s", row.name, turn.error)
    elif row.now - row.next_at > LATE:
        logger.info(
            "Schedule %s was due at %s: %d jobs, as it is to catch up: %s",
            *(row.name, row.next_at.isoformat(), len(turn.ticks), row.catch_up),
        )


def spread_seconds(name: str, jitter_seconds: float) -> float:
    """Return how much later the jobs of a schedule start: its own part of the jitter, always the same."""
    part = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) / 2**64
    return part * jitter_seconds
