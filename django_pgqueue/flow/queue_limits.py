"""Pause, resume and limit queues for all workers, and read their pauses and limits.

They apply when jobs are claimed: setting one moves no job, and it counts for jobs however they came into a queue.
"""

import datetime as dt
import logging
import math
from typing import Any, Final, NamedTuple

from django.conf import settings
from django.utils import timezone

from django_pgqueue.db.connections import CallerConnection, PendingResult, QueueConnection
from django_pgqueue.db.notify import notify_limits
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidJob, InvalidLimit
from django_pgqueue.states import LONGEST_DELAY, LONGEST_PERIOD_SECONDS, LONGEST_QUEUE
from django_pgqueue.stored_values import aware
from django_pgqueue.validation import check_name, seconds_of

logger = logging.getLogger("django_pgqueue")

MOST: Final = 1_000_000  # jobs in a limit
BURST_SECONDS: Final = 0.2  # default burst of a rate: as many jobs as it gives in this time, at least one


class Unchanged:
    """Stands for a limit that is to stay as it is."""

    def __repr__(self) -> str:
        return "unchanged"


UNCHANGED: Final = Unchanged()


def pause(
    name: str,
    *,
    by: str,
    reason: str = "",
    resume_at: dt.datetime | dt.timedelta | None = None,
    database: str | None = None,
) -> bool:
    """Let no worker start jobs of a queue, in the caller's transaction.

    Nothing is claimed from it once that has committed. What workers had fetched ahead goes back within a second, its
    attempt restored; what runs goes on. Jobs can still be enqueued. One that is paused gets the new reason and time.

    Args:
        name: the queue; it need not have had a job yet.
        by: user who does it; shown to others.
        reason: any text; shown to others.
        resume_at: when the pause ends by itself, by the database's clock: an aware datetime, or a timedelta from now.
            None: when the queue is resumed.

    Returns:
        Whether it had not been paused before.

    Raises:
        InvalidLimit: a value is out of range or of the wrong type. Nothing was changed.
    """
    caller = CallerConnection(database)
    _check_name(name)
    for option, text in (("by", by), ("reason", reason)):
        if not isinstance(text, str) or "\0" in text:
            raise InvalidLimit(f"{option} is a text, not {text!r}.")
    _check_resume_at(resume_at)
    parameters = {
        "name": name,
        "by": by,
        "reason": reason,
        "resume_at": aware(resume_at) if isinstance(resume_at, dt.datetime) else None,
        "seconds": resume_at.total_seconds() if isinstance(resume_at, dt.timedelta) else None,
    }
    [(is_new,)] = caller.rows(statement("pause_queue"), parameters)
    notify_limits(caller.alias, name)
    logger.info("Queue %s paused by %s: %s", name, by, reason)
    return bool(is_new)


def resume(name: str, *, by: str, database: str | None = None) -> bool:
    """Let workers start jobs of a queue again, in the caller's transaction; they learn of it after its commit.

    Args:
        by: user who does it; kept in the log.

    Returns:
        Whether it was paused.

    Raises:
        InvalidLimit: this is no name of a queue.
    """
    caller = CallerConnection(database)
    _check_name(name)
    rows = caller.rows(statement("resume_queue"), {"name": name})
    if rows:
        notify_limits(caller.alias, name)
        logger.info("Queue %s resumed by %s", name, by)
    return any(was_paused for (was_paused,) in rows)


def limit(
    name: str,
    *,
    max_running: int | Unchanged | None = UNCHANGED,
    rate: int | Unchanged | None = UNCHANGED,
    period: float | dt.timedelta = 1.0,
    burst: int | None = None,
    database: str | None = None,
) -> None:
    """Limit a queue for all workers together, in the caller's transaction. A limit that is not named stays as it is.

    It counts for every claim from the commit on. Jobs that run already count, and are not stopped.

    Args:
        name: the queue; it need not have had a job yet.
        max_running: maximum number of its jobs that run at once, 1 to 1,000,000. None removes the limit.
        rate: maximum number of its jobs that start in each period, 1 to 1,000,000. None removes the limit.
        period: of the rate, in seconds above 0, or a timedelta; a year at most. Default: a second.
        burst: maximum number of its jobs that start at once after a time without starts, 1 to 1,000,000. None: what the
            rate gives in a fifth of a second, at least one.

    Raises:
        InvalidLimit: a value is out of range or of the wrong type, or there is a burst or a period without a rate.
            Nothing was changed.
    """
    caller = CallerConnection(database)
    _check_name(name)
    seconds = _check_limits(max_running, rate, period, burst)
    has_rate = isinstance(rate, int)
    parameters = {
        "name": name,
        "sets_max_running": not isinstance(max_running, Unchanged),
        "max_running": max_running if isinstance(max_running, int) else None,
        "sets_rate": not isinstance(rate, Unchanged),
        "rate": rate if has_rate else None,
        "period": seconds if has_rate else None,
        "burst": burst or default_burst(rate, seconds) if isinstance(rate, int) else None,
    }
    caller.rows(statement("limit_queue"), parameters)
    notify_limits(caller.alias, name)


def default_burst(rate: int, period_seconds: float) -> int:
    return min(max(math.ceil(BURST_SECONDS * rate / period_seconds), 1), MOST)


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
    except InvalidJob as error:
        raise InvalidLimit(str(error)) from error


def _check_limits(max_running: Any, rate: Any, period: Any, burst: Any) -> float:
    """Raise InvalidLimit for the first value that cannot work; return the period in seconds."""
    for option, value in (("max_running", max_running), ("rate", rate), ("burst", burst)):
        if value is not None and not isinstance(value, Unchanged):
            _check_whole(option, value)
    seconds = seconds_of(period)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds <= LONGEST_PERIOD_SECONDS:
        raise InvalidLimit(f"period is a number of seconds above 0, or a timedelta, of a year at most, not {period!r}.")
    if not isinstance(rate, int) and (burst is not None or seconds != 1):
        raise InvalidLimit(f"A burst and a period belong to a rate, and rate is {rate!r}.")
    return float(seconds)


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
        if settings.USE_TZ and timezone.is_naive(value):
            raise InvalidLimit(
                f"resume_at is naive ({value!r}) while USE_TZ is on. Use django.utils.timezone.make_aware()."
            )
    elif value is not None:
        raise InvalidLimit(f"resume_at is a datetime or a timedelta, not {value!r}.")
