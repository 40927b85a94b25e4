"""Pause, resume and limit queues for all workers; read their pauses and limits; maintain the rows that have them.

Pauses and limits apply when jobs are claimed: setting one moves no job, and it counts for jobs however they came into a
queue. Claims compare the end of a pause with the clock, so nothing waits for the pass that clears it. Enqueueing makes
no row of a queue: its first claim does, or maintenance where no worker claims.
"""

import datetime as dt
import functools
import logging
import math
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, ParamSpec, Self, TypeVar, overload

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection, Database, PendingResult, QueueConnection, Row
from django_pgqueue.db.notify import notify_limits
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidLimit, InvalidOption
from django_pgqueue.options import check_instant
from django_pgqueue.states import LONGEST_DELAY, LONGEST_PERIOD_SECONDS, LONGEST_QUEUE
from django_pgqueue.stored_values import aware
from django_pgqueue.validation import UNNAMED, By, check_name, is_text, name_of

logger = logging.getLogger("django_pgqueue")

P = ParamSpec("P")
R = TypeVar("R")

MOST = 1_000_000  # jobs at once, in a period of a rate, or in a burst

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
SHAPE = re.compile(r"(\d{1,7})/(\d{1,8}(?:\.\d{1,20})?)?([smhdw])", re.ASCII)  # of a rate

LOCK_MILLISECONDS = 20  # timeout of the wait for a row that an open transaction is making
MOST_LOCKED = 5  # maximum number of such rows in a pass: the same thread has other services

BURST_SECONDS: Final = 0.2  # default burst of a rate: as many jobs as it gives in this time, at least one


class _Unchanged:
    """Stands for a limit that is to stay as it is."""

    def __repr__(self) -> str:
        return "unchanged"


_UNCHANGED: Final = _Unchanged()


def on_each_database(action: Callable[P, R]) -> Callable[P, R]:
    """Let an action on a queue that is on several databases, and names none, be done on each of them.

    One after another; the result is true if it is on one of them.
    """

    @functools.wraps(action)
    def act(*args: P.args, **kwargs: P.kwargs) -> R:
        name = kwargs.get("name", args[0] if args else None)
        if kwargs.get("database") is not None or not isinstance(name, str) or not conf.is_on_several(name):
            return action(*args, **kwargs)
        done = [action(*args, **{**kwargs, "database": alias}) for alias in conf.queue_databases[name]]  # type: ignore[arg-type]
        return max(done, key=bool)

    return act


@on_each_database
def pause(
    name: str,
    *,
    by: By = "",
    reason: str = "",
    resume_at: dt.datetime | dt.timedelta | None = None,
    database: str | None = None,
) -> bool:
    """Let no worker start jobs of a queue, in the caller's transaction.

    Nothing is claimed from it once that has committed. Jobs that workers had fetched ahead go back within a second,
    their attempt restored; running jobs go on. Jobs can still be enqueued. One that is paused gets the new reason and
    time.

    Args:
        name: the queue; it need not have had a job yet.
        by: user who does it, or the username; shown to others.
        reason: any text; shown to others.
        resume_at: when the pause ends by itself, by the database's clock: an aware datetime, or a timedelta from now.
            None: when the queue is resumed.

    Returns:
        Whether it had not been paused before.

    Raises:
        InvalidLimit: a value is out of range or of the wrong type. Nothing was changed.
    """
    _check_name(name)
    caller = CallerConnection(database or conf.database_for(name))
    if not isinstance(reason, str) or not is_text(reason):
        raise InvalidLimit(f"reason is a text, not {reason!r}.")
    _check_resume_at(resume_at)
    parameters = {
        "name": name,
        "by": (by := checked_name(by)),
        "reason": reason,
        "resume_at": aware(resume_at) if isinstance(resume_at, dt.datetime) else None,
        "seconds": resume_at.total_seconds() if isinstance(resume_at, dt.timedelta) else None,
    }
    rows = caller.rows(statement("pause_queue"), parameters)
    if not rows:
        raise InvalidLimit(f"resume_at is over already: {resume_at}. To end a pause, resume the queue.")
    notify_limits(caller.alias, name)
    logger.info("Queue %s paused by %s: %s", name, by or UNNAMED, reason)
    return bool(rows[0][0])


@on_each_database
def resume(name: str, *, by: By = "", database: str | None = None) -> bool:
    """Let workers start jobs of a queue again, in the caller's transaction; they learn of it after its commit.

    Args:
        by: user who does it, or the username; kept in the log.

    Returns:
        Whether it was paused.

    Raises:
        InvalidLimit: this is no name of a queue.
    """
    _check_name(name)
    caller = CallerConnection(database or conf.database_for(name))
    by = checked_name(by)
    rows = caller.rows(statement("resume_queue"), {"name": name})
    if rows:
        notify_limits(caller.alias, name)
        logger.info("Queue %s resumed by %s", name, by or UNNAMED)
    return any(was_paused for (was_paused,) in rows)


@overload
def limit(name: str, *, max_running: int | None, by: By = ..., database: str | None = ...) -> None: ...


@overload
def limit(
    name: str, *, rate: int | str | None, burst: int | None = ..., by: By = ..., database: str | None = ...
) -> None: ...


@overload
def limit(
    name: str,
    *,
    max_running: int | None,
    rate: int | str | None,
    burst: int | None = ...,
    by: By = ...,
    database: str | None = ...,
) -> None: ...


@on_each_database
def limit(
    name: str,
    *,
    max_running: int | _Unchanged | None = _UNCHANGED,
    rate: int | str | _Unchanged | None = _UNCHANGED,
    burst: int | None = None,
    by: By = "",
    database: str | None = None,
) -> None:
    """Limit a queue for all workers together, in the caller's transaction. A limit that is not named stays as it is.

    It counts for every claim from the commit on. Jobs that run already count, and are not stopped. For a queue of
    ``PGQUEUE["QUEUES"]`` it overrides the setting, until ``restore``.

    Args:
        name: the queue; it need not have had a job yet.
        max_running: maximum number of its jobs that run at once, 1 to 1,000,000. None removes the limit.
        rate: maximum rate at which its jobs start: a number of jobs a second, or a text as in ``100/s``, ``60/m`` or
            ``5/10s`` (s, m, h, d, w); 1 to 1,000,000 jobs in a year at most. None removes the limit.
        burst: maximum number of its jobs that start at once after a time without starts, 1 to 1,000,000. None: what the
            rate gives in a fifth of a second, at least one.
        by: user who does it, or the username; shown to others.

    Raises:
        InvalidLimit: a value is out of range or of the wrong type, there is a burst without a rate, or no limit is
            named. Nothing was changed.
    """
    _check_name(name)
    caller = CallerConnection(database or conf.database_for(name))
    by = checked_name(by)
    if isinstance(max_running, _Unchanged) and isinstance(rate, _Unchanged):
        raise InvalidLimit("Name a limit to set, or to remove by None: max_running or rate.")
    given = Limits.checked(
        None if isinstance(max_running, _Unchanged) else max_running,
        None if isinstance(rate, _Unchanged) else rate,
        burst,
    )
    parts = {"sets_max_running": not isinstance(max_running, _Unchanged), "sets_rate": not isinstance(rate, _Unchanged)}
    write_limits(caller, name, given, by=by, **parts)
    notify_limits(caller.alias, name)
    logger.info("Queue %s limited by %s: max_running %s, rate %s", name, by or UNNAMED, max_running, rate)


class Rate(NamedTuple):
    """A number of jobs in a period, 1 to 1,000,000 in up to a year."""

    number: int
    period_seconds: float


def rate_of(value: Any) -> Rate:
    """Return a rate: of a whole number, that many a second; of a text, as in ``100/s``, ``60/m`` or ``5/10s``.

    Raises:
        InvalidLimit: it is neither, or the number is not 1 to 1,000,000, or the period not above 0 and up to a year.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        rate = Rate(value, 1.0)
    elif isinstance(value, str) and (match := SHAPE.fullmatch(value)):
        rate = Rate(int(match[1]), float(match[2] or 1) * UNITS[match[3]])
    else:
        raise InvalidLimit(
            f"A rate is a whole number, of jobs a second, or a text as in 100/s, 60/m or 5/10s, not {value!r}."
        )
    if not 1 <= rate.number <= MOST or not 0 < rate.period_seconds <= LONGEST_PERIOD_SECONDS:
        raise InvalidLimit(f"A rate is 1 to {MOST:,} jobs in a period above 0 and of a year at most, not {value!r}.")
    return rate


class Limits(NamedTuple):
    """Limits of a queue: the columns of its row, in their order."""

    max_running: int | None = None
    rate: int | None = None
    period_seconds: float | None = None
    burst: int | None = None

    @classmethod
    def checked(cls, max_running: Any, rate: Any, burst: Any) -> Self:
        """Return limits with the default of the burst; raise InvalidLimit for the first value that cannot work."""
        for option, value in (("max_running", max_running), ("burst", burst)):
            if value is not None:
                _check_whole(option, value)
        if rate is None:
            if burst is not None:
                raise InvalidLimit("A burst belongs to a rate, and there is none.")
            return cls(max_running)
        if rate == 0 and not isinstance(rate, bool):
            _check_whole("rate", rate)
        found = rate_of(rate)
        return cls(max_running, *found, burst or default_burst(found))


def write_limits(
    database: Database,
    name: str,
    limits: Limits,
    *,
    by: str | None,
    sets_max_running: bool = True,
    sets_rate: bool = True,
    spares_edited: bool = False,
) -> list[Row]:
    """Set limits of a queue by one statement, without a notification.

    Args:
        by: name of the user who does it; None: they are those of the code.
        spares_edited: leave the queue alone where staff have set its limits.

    Returns:
        A row with whether staff had set them before; none where the queue was left alone.
    """
    parameters = {
        **limits._asdict(),
        "name": name,
        "sets_max_running": sets_max_running,
        "sets_rate": sets_rate,
        "by": by,
        "spares_edited": spares_edited,
    }
    return database.rows(statement("limit_queue"), parameters)


def default_burst(rate: Rate) -> int:
    return min(max(math.ceil(BURST_SECONDS * rate.number / rate.period_seconds), 1), MOST)


class QueueLimits(NamedTuple):
    is_paused: bool
    max_running: int | None
    rate: int | None
    period_seconds: float | None
    burst: int | None

    @property
    def is_limited(self) -> bool:
        return self.max_running is not None or self.rate is not None

    @property
    def fill_seconds(self) -> float | None:
        """Time for an empty bucket to be full; None without a rate."""
        if not (self.rate and self.period_seconds and self.burst):
            return None
        return self.burst * self.period_seconds / self.rate


class PendingLimits(NamedTuple):
    answer: PendingResult

    def read(self) -> tuple[dict[str, QueueLimits], float]:
        """Wait for the answer; return the limits by queue, and the seconds until the first pause ends by itself."""
        rows = self.answer.fetchall()
        found = {name: QueueLimits(*values) for name, *values, _ in rows}
        ends = [seconds for _, is_paused, *_, seconds in rows if is_paused and seconds is not None]
        shut = {name: limits for name, limits in found.items() if limits.is_paused or limits.is_limited}
        return shut, min(ends, default=math.inf)


def send_limits(database: QueueConnection) -> PendingLimits:
    """Ask for all limits, in the transaction that is open on ``database``, and do not wait for the answer."""
    return PendingLimits(database.send(statement("queue_limits"), {}))


def _check_name(name: Any) -> None:
    try:
        check_name("The name of a queue", name, LONGEST_QUEUE)
    except InvalidOption as error:
        raise InvalidLimit(str(error)) from error


def checked_name(by: By) -> str:
    try:
        return name_of(by)
    except InvalidOption as error:
        raise InvalidLimit(str(error)) from error


def _check_whole(option: str, value: Any) -> None:
    if value == 0 and not isinstance(value, bool):
        raise InvalidLimit(
            f"{option} is 1 or more, or None to remove the limit. To let nothing start, pause the queue."
        )
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise InvalidLimit(f"{option} is a whole number from 1 to {MOST:,}, or None, not {value!r}.")


def _check_resume_at(value: Any) -> None:
    if isinstance(value, dt.timedelta):
        if not dt.timedelta(0) < value <= LONGEST_DELAY:
            raise InvalidLimit(f"resume_at is a time from now of {LONGEST_DELAY.days} days at most, not {value!r}.")
    elif isinstance(value, dt.datetime):
        try:
            check_instant("resume_at", value)
        except InvalidOption as error:
            raise InvalidLimit(str(error)) from error
    elif value is not None:
        raise InvalidLimit(f"resume_at is a datetime or a timedelta, not {value!r}.")


# Rows


def register_queues(database: QueueConnection, *, limit: int = 100) -> list[str]:
    """Make the rows of queues that have jobs and none yet, up to ``limit``; return their names.

    One whose row another transaction has inserted and not committed is left for the next time.
    """
    noted, locked = [], 0
    for (name,) in database.rows(statement("unregistered_queues"), {"limit": limit}):
        if register_queue(database, name):
            noted.append(name)
        else:
            locked += 1
        if locked == MOST_LOCKED:
            break
    return noted


def register_queue(database: QueueConnection, name: str) -> bool:
    """Make the row of one queue; return whether it was new, and could be made without waiting for another session."""
    sql = statement("register_queue")
    return bool(database.rows_unless_locked(sql, {"name": name}, milliseconds=LOCK_MILLISECONDS))


def end_pauses(database: QueueConnection) -> list[str]:
    """Take down pauses that have ended by themselves; return the queues."""
    return [name for (name,) in database.rows(statement("end_pauses"), {})]
