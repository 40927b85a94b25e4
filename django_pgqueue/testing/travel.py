"""Move the time from one due moment to the next, and run what is due at each."""

import datetime as dt
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from django_pgqueue.flow.queue_limits import send_gates
from django_pgqueue.models import Job
from django_pgqueue.schedules.enqueuer import fire_due
from django_pgqueue.schedules.sync import declare
from django_pgqueue.states import Status
from django_pgqueue.testing.clock import Clock
from django_pgqueue.testing.failing import EndlessJobs
from django_pgqueue.testing.instants import aware, checked
from django_pgqueue.testing.work import MOST_RUNS, Work

__unittest = True

MOST_MOVES = 10 * MOST_RUNS


def travel(
    work: Work,
    clock: Clock,
    until: dt.datetime | dt.timedelta,
    *,
    clock_of_python: Callable[[dt.datetime], AbstractContextManager[Any]] | None,
    fires: bool,
) -> None:
    """Run what is due until then.

    Args:
        clock_of_python: returns what moves Python's clock to a moment while a job runs.
        fires: whether schedules tick.

    Raises:
        ValueError: until is over, or naive while USE_TZ is on.
        EndlessJobs: time was moved more often than is likely.
    """
    __tracebackhide__ = True
    now = clock.now()
    end = _end(until, now)
    with clock.stopped(now):
        if fires:
            declare(work.database)
        for _ in range(MOST_MOVES):
            work.now = now = clock.now()
            if clock_of_python is not None:
                work.python_clock = _at(clock_of_python, now)
            tick = _fire(work) if fires else None
            work.run_due()
            following = None if work.is_done else _next(work, now, tick)
            if following is None or following > end:
                return
            clock.set(following)
    raise EndlessJobs(f"run_jobs() has moved the time {MOST_MOVES:,} times, up to {now}. Give it an earlier until=.")


def _end(until: dt.datetime | dt.timedelta, now: dt.datetime) -> dt.datetime:
    given = checked("until", until)
    end: dt.datetime = now + given if isinstance(given, dt.timedelta) else given
    if end < now:
        raise ValueError(f"until is {end}, which is over: the database says {now}. Time only goes forward.")
    return end


def _fire(work: Work) -> float | None:
    """Make jobs of the ticks that are due; return the seconds until the next one, if there is one."""
    for _ in range(MOST_RUNS):
        seconds = fire_due(work.database, known=work.wanted.schedules()).next_seconds
        if seconds != 0:
            return seconds
    return None


def _next(work: Work, now: dt.datetime, tick: float | None) -> dt.datetime | None:
    """Return the next moment at which something becomes due; None if there is none."""
    _, pause_seconds = send_gates(work.database).read()
    seconds = [pause_seconds, *work.token_seconds(), math.inf if tick is None else tick]
    found = [now + dt.timedelta(seconds=each) for each in seconds if 0 < each < math.inf]
    due = (Status.SCHEDULED, Status.QUEUED, Status.WAITING)
    jobs = Job.objects.using(work.alias).filter(status__in=due, run_at__gt=now).order_by("run_at")
    found += [aware(job.run_at) for job in jobs[:1]]
    return min(found, default=None)


def _at(
    clock_of_python: Callable[[dt.datetime], AbstractContextManager[Any]], moment: dt.datetime
) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: clock_of_python(moment)
