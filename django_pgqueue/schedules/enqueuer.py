"""Enqueue the jobs of due ticks, and advance their schedules."""

import datetime as dt
import hashlib
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db import Error

from django_pgqueue import keys, registry
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.errors import first_line, is_locked, is_too_much, is_transient
from django_pgqueue.db.notify import ADMIT, queue_payload
from django_pgqueue.db.queries import ladder_size, sized, statement
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.jobs.enqueue import insert, send_enqueued
from django_pgqueue.jobs.serialization import check_signature
from django_pgqueue.jobs.unique import InsertResult
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.schedules.periodic import declared
from django_pgqueue.schedules.recurrence import SHORTEST
from django_pgqueue.schedules.rows import ScheduleRow
from django_pgqueue.schedules.sync import SyncResult, sync_schedules
from django_pgqueue.services import LOCKED_SECONDS, SPELL_SECONDS
from django_pgqueue.signals import close_broken_connections
from django_pgqueue.states import CatchUp

logger = logging.getLogger("django_pgqueue.worker")

LATE = dt.timedelta(minutes=1)  # a tick that is no later is not taken for missed
MOST_IN_TIME = int(LATE / SHORTEST) + 1  # ticks no later than that, of the shortest interval
MOST_TICKS = 100  # of one schedule that become jobs in one pass: 10,000 would take seconds
PUT_OFF = dt.timedelta(hours=1)  # of a schedule whose ticks cannot be computed

MOST_TOGETHER = 20  # schedules that are moved on in one transaction
LOCK_MILLISECONDS = 100

DECLARE_SECONDS = 60.0
STRANGE_SECONDS = 5.0  # between looks where all that is due is unknown to this worker's code, or locked


@dataclass
class FireResult:
    jobs: int = 0
    payloads: set[str] = field(default_factory=set)  # of wake-ups that are to be sent
    next_seconds: float | None = None  # until the next tick; None: there is none

    def add(self, other: "FireResult") -> None:
        self.jobs += other.jobs
        self.payloads |= other.payloads


Ticks = Sequence[tuple[dt.datetime, TaskDefinition]]
"""Those that become jobs, with the task of each job: its keys are computed."""

Compute = Callable[[str, Callable[[], Ticks]], Ticks]
"""Calls what computes the keys of the schedule with this name, and returns what that returns."""


def directly(_: str, call: Callable[[], Ticks]) -> Ticks:
    return call()


class DueSchedule(NamedTuple):
    row: ScheduleRow
    next_at: dt.datetime
    ticks: Ticks = ()
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    error: str = ""


class InsertedJob(NamedTuple):
    """The job of one tick."""

    task: TaskDefinition
    result: InsertResult


def fire_due(
    database: QueueConnection,
    *,
    limit: int = 100,
    until: float = math.inf,
    now: dt.datetime | None = None,
    known: Mapping[str, Sequence[str]] | None = None,
    compute: Compute = directly,
) -> FireResult:
    """Make jobs of the ticks of up to ``limit`` schedules, 1 to 1,000, that are due.

    The jobs and the next tick of a schedule are written in one transaction, which waits for no lock. A schedule that
    cannot be enqueued moves on with ``last_error`` and stands in no other's way. Keys are computed before: functions
    of the project run while no transaction is open, and whatever they raise is the schedule's own trouble, an error of
    another database too.

    Args:
        until: no keys are computed after this instant, monotonic, but those of the first; nor does a transaction begin.
        now: None: the time of the database's clock.
        known: ``names`` of schedules of the code, and ``tasks`` of others. None: all that this code knows.
        compute: calls the functions of the project.
    """
    known = {"names": list(declared()), "tasks": registry.answering()} if known is None else known
    coming = database.rows(sized("next_schedules", ladder_size(limit)), {**known, "now": now})
    due = [schedule_id for schedule_id, seconds in coming if seconds <= 0]
    fired = FireResult(next_seconds=max(coming[0][1], 0.0) if coming else None)
    for start in range(0, len(due), MOST_TOGETHER):
        if start and time.monotonic() >= until:
            break
        rows = _take(database, due[start : start + MOST_TOGETHER], now)
        fired.add(_fire(database, list(_turns(rows, compute, until)), now))
    return fired


def _turns(rows: Sequence[ScheduleRow], compute: Compute, until: float) -> Iterator[DueSchedule]:
    for position, row in enumerate(rows):
        if position and time.monotonic() >= until:
            return
        yield _turn(row, compute)


def _take(database: QueueConnection, ids: Sequence[int], now: dt.datetime | None) -> list[ScheduleRow]:
    """Return those that are due; they stay locked for as long as the transaction that is open."""
    rows = database.rows(statement("take_schedules"), {"ids": list(ids), "now": now})
    return [ScheduleRow._make(row) for row in rows]


def _fire(database: QueueConnection, turns: Sequence[DueSchedule], now: dt.datetime | None) -> FireResult:
    """Move schedules on in one transaction, in smaller ones where one of them fails."""
    try:
        return _move(database, turns, now)
    except Error as error:
        if is_transient(error) and not is_locked(error) and not (is_too_much(error) and len(turns) > 1):
            raise
        reason: Exception = error
    except Exception as error:  # noqa: BLE001 - whatever is odd about one is not to stop the others
        reason = error
    if len(turns) > 1:
        fired, half = FireResult(), len(turns) // 2
        for part in (turns[:half], turns[half:]):
            fired.add(_fire(database, part, now))
        return fired
    if is_locked(reason):
        return FireResult()  # an open transaction has enqueued a job with the same unique key
    return _move(database, [_passed(turns[0].row, first_line(reason))], now)


def _move(database: QueueConnection, turns: Sequence[DueSchedule], now: dt.datetime | None) -> FireResult:
    """Write the jobs and the next ticks of schedules; one that was changed since it was looked at is left alone."""
    if not turns:
        return FireResult()
    with database.transaction(lock_milliseconds=LOCK_MILLISECONDS):
        rows = {row.id: row for row in _take(database, [turn.row.id for turn in turns], now)}
        turns = [turn for turn in turns if turn.row.is_as(rows.get(turn.row.id))]
        inserted = [_enqueue(database, turn) for turn in turns]
        if turns:
            _advance(database, turns, inserted)
    for turn in turns:
        _log_turn(turn)
    fired = FireResult()
    for task, result in itertools.chain(*inserted):
        fired.jobs += len(result.ids)
        fired.payloads |= payloads_of(result)
        send_enqueued(task, result)
    return fired


def _enqueue(database: QueueConnection, turn: DueSchedule) -> list[InsertedJob]:
    """Insert the jobs of a schedule; return what is announced after the commit."""
    spread = dt.timedelta(seconds=spread_seconds(turn.row.name, turn.row.jitter_seconds))
    inserted = []
    for tick, of_tick in turn.ticks:
        task = of_tick.using(run_at=tick + spread, database=database.alias)
        check_signature(task, turn.args, turn.kwargs)
        result = insert(database, task, turn.args, turn.kwargs, schedule_id=turn.row.id)
        inserted.append(InsertedJob(task, result))
    return inserted


def _advance(
    database: QueueConnection, turns: Sequence[DueSchedule], inserted: Sequence[Sequence[InsertedJob]]
) -> None:
    parameters = {
        "ids": [turn.row.id for turn in turns],
        "ticks": [turn.row.next_at for turn in turns],
        "next_ats": [turn.next_at for turn in turns],
        "last_ats": [turn.ticks[-1][0] if turn.ticks else None for turn in turns],
        "job_ids": [jobs[-1].result.ids[-1] if jobs else None for jobs in inserted],
        "errors": [turn.error for turn in turns],
    }
    if len(database.rows(statement("advance_schedules"), parameters)) != len(turns):
        raise RuntimeError("another session has advanced a schedule that was locked here")


def payloads_of(result: InsertResult) -> set[str]:
    """Return the payloads of the wake-ups that an insert is followed by."""
    return {*map(queue_payload, result.ready), *(ADMIT + key for key in result.limited)}


def _turn(row: ScheduleRow, compute: Compute) -> DueSchedule:
    try:
        task, args, kwargs = row.call()
        ticks = _ticks(row)
        following = ticks[MOST_TICKS:] or [row.rhythm().next_after(row.now, known=row.next_at)]
        made: Ticks = [(tick, task) for tick in ticks[:MOST_TICKS]]
        if task.keys_by != keys.NONE:
            made = compute(row.name, lambda: [(tick, task.with_keys(args, kwargs)) for tick, _ in made])
        return DueSchedule(row, following[0], made, args, kwargs)
    except PgQueueError as error:
        return _passed(row, str(error))
    except Exception as error:  # noqa: BLE001 - as from a function of the project that computes a key
        close_broken_connections()
        return _passed(row, first_line(error))


def _ticks(row: ScheduleRow) -> list[dt.datetime]:
    """Return the ticks that become jobs: the latest, as many as are in time, or as many as may be caught up with."""
    most_missed = {CatchUp.NONE: 0, CatchUp.LAST: 1}.get(CatchUp(row.catch_up), row.catch_up_limit)
    most_in_time = 2 if row.every_seconds is None else MOST_IN_TIME  # a cron entry has no more than one in a minute
    ticks = row.rhythm().due(row.next_at, row.now, limit=max(most_missed, most_in_time))
    wanted = max(most_missed, sum(row.now - tick <= LATE for tick in ticks))
    return ticks[max(len(ticks) - wanted, 0) :]


def _passed(row: ScheduleRow, error: str) -> DueSchedule:
    try:
        return DueSchedule(row, row.rhythm().next_after(row.now, known=row.next_at), error=error)
    except PgQueueError:
        return DueSchedule(row, row.now + PUT_OFF, error=error)


def _log_turn(turn: DueSchedule) -> None:
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


class PeriodicEnqueuer:
    """Two services; ``announce`` is called with the payloads of wake-ups, once jobs are committed."""

    def __init__(
        self, database: QueueConnection, announce: Callable[[set[str]], None], compute: Compute = directly
    ) -> None:
        self._database = database
        self._compute = compute
        self._announce = announce
        self._told: dict[str, set[str]] = {}  # of which schedules what was logged

    def declare_schedules(self) -> None:
        self._log_sync(sync_schedules(self._database))

    def fire_schedules(self) -> float:
        fired = fire_due(self._database, until=time.monotonic() + SPELL_SECONDS, compute=self._compute)
        if fired.payloads:
            self._announce(fired.payloads)
        if fired.jobs:
            return 0.0  # there may be more of them
        if fired.next_seconds is None:
            return STRANGE_SECONDS
        return min(fired.next_seconds or LOCKED_SECONDS, STRANGE_SECONDS)

    def _log_sync(self, found: SyncResult) -> None:
        for name in found.new:
            logger.info("Schedule %s is new", name)
        for name in found.changed:
            logger.info("Schedule %s was changed in the code", name)
        for name in found.forgotten:
            logger.info("Schedule %s is removed: no code has declared it for 30 days", name)
        for name in self._fresh("edited", found.edited):
            logger.info("Schedule %s stays as it was edited in the admin, not as the code has it", name)
        for name in self._fresh("gone", found.gone):
            logger.info("Schedule %s is not in this code: this worker leaves it alone", name)
        for name in self._fresh("taken", found.taken):
            logger.warning("Schedule %s of the code is left out: one made in the admin has its name. Rename one", name)
        for name in self._fresh("wrong", found.wrong):
            logger.error("Schedule %s of the code is left out: %s", name, found.wrong[name])
        for name, task in found.strange.items():
            logger.error("Schedule %s waits: neither this worker nor another knows the task %s", name, task)

    def _fresh(self, kind: str, names: Iterable[str]) -> list[str]:
        before, now = self._told.get(kind, set()), set(names)
        self._told[kind] = now
        return sorted(now - before)
