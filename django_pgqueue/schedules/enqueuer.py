"""Enqueue the jobs of due ticks, and advance their schedules.

A pass takes the schedules that are due, decides about each of them, and writes jobs and next ticks in one transaction
for several schedules. Functions of the project compute keys while it decides, when no transaction is open.
"""

import datetime as dt
import hashlib
import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django.db import Error

from django_pgqueue import keys, registry
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.errors import first_line, is_locked, is_too_much, is_transient
from django_pgqueue.db.notify import ADMIT, queue_payload
from django_pgqueue.db.queries import ladder_size, sized, statement
from django_pgqueue.exceptions import InvalidSchedule, PgQueueError
from django_pgqueue.jobs.enqueue import insert, send_enqueued
from django_pgqueue.jobs.redaction import Scrub, scrubber
from django_pgqueue.jobs.serialization import check_signature
from django_pgqueue.jobs.unique import InsertResult
from django_pgqueue.middleware import is_of_middleware
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.schedules.periodic import declared, stored_options
from django_pgqueue.schedules.recurrence import SHORTEST, Recurrence, recurrence_of
from django_pgqueue.services import LOCKED_SECONDS, SPELL_SECONDS
from django_pgqueue.signals import close_broken_connections
from django_pgqueue.states import CatchUp
from django_pgqueue.stored_values import in_utc

logger = logging.getLogger("django_pgqueue.worker")

LATE = dt.timedelta(minutes=1)
"""Maximum delay of a tick that does not count as missed."""

MOST_IN_TIME = int(LATE / SHORTEST) + 1  # ticks in that time, of the shortest interval
MOST_TICKS = 100  # of one schedule that become jobs in one pass: 10,000 would take seconds
PUT_OFF = dt.timedelta(hours=1)  # of a schedule whose ticks cannot be computed

MOST_TOGETHER = 20  # schedules that are advanced in one transaction
LOCK_MILLISECONDS = 100

STRANGE_SECONDS = 5.0
"""Interval of the pass while all due schedules are locked, or unknown to this worker's code."""

Ticks = Sequence[tuple[dt.datetime, TaskDefinition]]
"""Ticks that become jobs, with the task of each job: its keys are computed."""

Compute = Callable[[str, Callable[[], Ticks]], Ticks]
"""Calls a function that computes the keys of the schedule with this name, and returns its result."""


def directly(_: str, call: Callable[[], Ticks]) -> Ticks:
    return call()


class ScheduleRow(NamedTuple):
    """One schedule, in the order in which ``take_schedules.sql`` returns its columns."""

    id: int
    name: str
    task: str
    cron: str
    every_seconds: float | None
    timezone: str
    jitter_seconds: float
    catch_up: str
    catch_up_limit: int
    args: str  # JSON text, as the two below
    kwargs: str
    options: str
    last_error: str
    next_at: dt.datetime
    now: dt.datetime  # by the clock of the database

    def rhythm(self) -> Recurrence:
        return recurrence_of(self.cron, self.every_seconds, self.timezone)

    def is_unchanged_in(self, other: "ScheduleRow | None") -> bool:
        """Whether the row is the same in a later read, except for the time of the read."""
        return other is not None and self == other._replace(now=self.now)

    def call(self) -> tuple[TaskDefinition, tuple[Any, ...], dict[str, Any]]:
        """Return the task with its options, and the arguments.

        Raises:
            PgQueueError: the task is unknown here, an option is wrong, or the arguments are not an array and an object.
        """
        args, kwargs, given = json.loads(self.args), json.loads(self.kwargs), json.loads(self.options)
        if not isinstance(args, list) or not isinstance(kwargs, dict) or not isinstance(given, dict):
            raise InvalidSchedule("args is a JSON array, kwargs and options are JSON objects.")
        task = registry.get(self.task)
        return task.using(**stored_options(task, given)), tuple(args), kwargs


class Decision(NamedTuple):
    """Jobs to enqueue for a due schedule, or the error that keeps it from them; and its next tick."""

    row: ScheduleRow
    next_at: dt.datetime
    ticks: Ticks = ()
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    error: str = ""


class InsertedJob(NamedTuple):
    task: TaskDefinition
    result: InsertResult


@dataclass
class FireResult:
    jobs: int = 0
    payloads: set[str] = field(default_factory=set)  # of wake-ups that must be sent
    next_seconds: float | None = None  # until the next tick; None: there is none

    def add(self, other: "FireResult") -> None:
        self.jobs += other.jobs
        self.payloads |= other.payloads


class PeriodicEnqueuer:
    """The service; ``announce`` is called with the payloads of wake-ups, once jobs are committed."""

    def __init__(
        self, database: QueueConnection, announce: Callable[[set[str]], None], compute: Compute = directly
    ) -> None:
        self._database = database
        self._compute = compute
        self._announce = announce

    def fire_schedules(self) -> float:
        fired = fire_due(self._database, until=time.monotonic() + SPELL_SECONDS, compute=self._compute)
        if fired.payloads:
            self._announce(fired.payloads)
        if fired.jobs:
            return 0.0  # there may be more of them
        if fired.next_seconds is None:
            return STRANGE_SECONDS
        return min(fired.next_seconds or LOCKED_SECONDS, STRANGE_SECONDS)


def fire_due(
    database: QueueConnection,
    *,
    limit: int = 100,
    until: float = math.inf,
    now: dt.datetime | None = None,
    known: Mapping[str, Sequence[str]] | None = None,
    compute: Compute = directly,
) -> FireResult:
    """Enqueue the jobs of the ticks of up to ``limit`` due schedules, 1 to 1,000.

    The jobs and the next tick of a schedule are written in one transaction, which waits for no lock. A schedule that
    cannot be enqueued advances with ``last_error`` and does not hold up the others. Errors of the project's functions
    that compute keys, also those of another database, are errors of their schedule.

    Args:
        until: instant, monotonic, after which no keys are computed but those of the first schedule, and no transaction
            begins.
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
        fired.add(_write_or_halve(database, list(_decide_all(rows, compute, until)), now))
    return fired


def _take(database: QueueConnection, ids: Sequence[int], now: dt.datetime | None) -> list[ScheduleRow]:
    """Return those that are due; they stay locked for as long as the transaction that is open."""
    rows = database.rows(statement("take_schedules"), {"ids": list(ids), "now": now})
    found = map(ScheduleRow._make, rows)
    return [row._replace(next_at=in_utc(row.next_at), now=in_utc(row.now)) for row in found]


# Deciding


def _decide_all(rows: Sequence[ScheduleRow], compute: Compute, until: float) -> Iterator[Decision]:
    for position, row in enumerate(rows):
        if position and time.monotonic() >= until:
            return
        yield _decide(row, compute)


def _decide(row: ScheduleRow, compute: Compute) -> Decision:
    scrub: Scrub = str
    try:
        task, args, kwargs = row.call()
        scrub = scrubber(task, args, kwargs)
        ticks = _ticks(row)
        following = ticks[MOST_TICKS:] or [row.rhythm().next_after(row.now, known=row.next_at)]
        made: Ticks = [(tick, task) for tick in ticks[:MOST_TICKS]]
        if task.keys_by != keys.NONE:
            made = compute(row.name, lambda: [(tick, task.with_keys(args, kwargs)) for tick, _ in made])
        return Decision(row, following[0], made, args, kwargs)
    except PgQueueError as error:
        return _skip(row, str(error))
    except Exception as error:  # noqa: BLE001 - of a function of the project that computes a key
        close_broken_connections()
        return _skip(row, scrub(first_line(error)))


def _ticks(row: ScheduleRow) -> list[dt.datetime]:
    """Return the ticks that become jobs: the latest, as many as are in time, or as many as may be caught up with."""
    most_missed = {CatchUp.NONE: 0, CatchUp.LAST: 1}.get(CatchUp(row.catch_up), row.catch_up_limit)
    most_in_time = 2 if row.every_seconds is None else MOST_IN_TIME  # a cron entry has no more than one in a minute
    ticks = row.rhythm().due(row.next_at, row.now, limit=max(most_missed, most_in_time))
    wanted = max(most_missed, sum(row.now - tick <= LATE for tick in ticks))
    return ticks[max(len(ticks) - wanted, 0) :]


def _skip(row: ScheduleRow, error: str) -> Decision:
    try:
        return Decision(row, row.rhythm().next_after(row.now, known=row.next_at), error=error)
    except PgQueueError:
        return Decision(row, row.now + PUT_OFF, error=error)


# Writing


def _write_or_halve(database: QueueConnection, decisions: Sequence[Decision], now: dt.datetime | None) -> FireResult:
    """Write decisions in one transaction; if that fails, in smaller ones, until the one that fails is alone."""
    try:
        return _write(database, decisions, now)
    except (Exception, SystemExit) as error:
        close_broken_connections()  # those of a middleware
        reason, own = error, error if isinstance(error, Error) and not is_of_middleware(error) else None
        if own and is_transient(own) and not is_locked(own) and not (is_too_much(own) and len(decisions) > 1):
            raise
    if len(decisions) > 1:
        fired, half = FireResult(), len(decisions) // 2
        for part in (decisions[:half], decisions[half:]):
            fired.add(_write_or_halve(database, part, now))
        return fired
    if own and is_locked(own):
        return FireResult()  # an open transaction has enqueued a job with the same unique key
    scrub = scrubber(registry.find(decisions[0].row.task), decisions[0].args, decisions[0].kwargs)
    return _write(database, [_skip(decisions[0].row, scrub(first_line(reason)))], now)


def _write(database: QueueConnection, decisions: Sequence[Decision], now: dt.datetime | None) -> FireResult:
    """Write jobs and next ticks, except of schedules that were changed since the decision; then announce the jobs."""
    if not decisions:
        return FireResult()
    with database.transaction(lock_milliseconds=LOCK_MILLISECONDS):
        rows = {row.id: row for row in _take(database, [decision.row.id for decision in decisions], now)}
        decisions = [decision for decision in decisions if decision.row.is_unchanged_in(rows.get(decision.row.id))]
        inserted = [_enqueue(database, decision) for decision in decisions]
        if decisions:
            _advance(database, decisions, inserted)
    for decision in decisions:
        _log(decision)
    fired = FireResult()
    for task, result in (job for jobs in inserted for job in jobs):
        fired.jobs += len(result.ids)
        fired.payloads |= payloads_of(result)
        send_enqueued(task, result)
    return fired


def _enqueue(database: QueueConnection, decision: Decision) -> list[InsertedJob]:
    spread = dt.timedelta(seconds=spread_seconds(decision.row.name, decision.row.jitter_seconds))
    inserted = []
    for tick, of_tick in decision.ticks:
        task = of_tick.using(run_at=tick + spread, database=database.alias)
        check_signature(task, decision.args, decision.kwargs)
        result = insert(database, task, decision.args, decision.kwargs, schedule_id=decision.row.id)
        inserted.append(InsertedJob(task, result))
    return inserted


def spread_seconds(name: str, jitter_seconds: float) -> float:
    """Return the delay of the jobs of a schedule: its own part of the jitter, always the same."""
    part = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) / 2**64
    return part * jitter_seconds


def _advance(
    database: QueueConnection, decisions: Sequence[Decision], inserted: Sequence[Sequence[InsertedJob]]
) -> None:
    parameters = {
        "ids": [decision.row.id for decision in decisions],
        "ticks": [decision.row.next_at for decision in decisions],
        "next_ats": [decision.next_at for decision in decisions],
        "last_ats": [decision.ticks[-1][0] if decision.ticks else None for decision in decisions],
        "job_ids": [jobs[-1].result.ids[-1] if jobs else None for jobs in inserted],
        "errors": [decision.error for decision in decisions],
    }
    if len(database.rows(statement("advance_schedules"), parameters)) != len(decisions):
        raise RuntimeError("another session has advanced a schedule that was locked here")


def _log(decision: Decision) -> None:
    row = decision.row
    if decision.error:
        if decision.error != row.last_error:
            logger.error("Schedule %s is passed over: %s", row.name, decision.error)
    elif row.now - row.next_at > LATE:
        logger.info(
            "Schedule %s was due at %s: %d jobs, as it is to catch up: %s",
            *(row.name, row.next_at.isoformat(), len(decision.ticks), row.catch_up),
        )


def payloads_of(result: InsertResult) -> set[str]:
    return {*map(queue_payload, result.ready), *(ADMIT + key for key in result.limited)}
