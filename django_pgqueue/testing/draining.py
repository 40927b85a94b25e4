"""Run jobs in a test, one after the other, in the order in which a worker with one slot would start them."""

import datetime as dt
import functools
import math
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from django_pgqueue.conf import conf
from django_pgqueue.flow.queue_limits import send_limits
from django_pgqueue.models import Workflow
from django_pgqueue.schedules.enqueuer import fire_due
from django_pgqueue.schedules.sync import sync_schedules
from django_pgqueue.states import Status, WorkflowStatus
from django_pgqueue.stored_values import aware
from django_pgqueue.testing.assertions import to_run
from django_pgqueue.testing.connection import Clock, must_be_migrated
from django_pgqueue.testing.run import MOST_RUNS, EndlessJobs, RunReport, Work
from django_pgqueue.testing.selection import AnyTask, Selection, checked

__unittest = True  # unittest leaves the frames of such modules out of its tracebacks

MOST_MOVES = 10 * MOST_RUNS


class Mover(Protocol):
    """A function that moves Python's clock, as ``time_machine.travel`` and ``freezegun.freeze_time`` do."""

    def __call__(self, destination: dt.datetime, /) -> AbstractContextManager[Any]: ...


def run_jobs(
    *,
    queue: str | Iterable[str] | None = None,
    task: AnyTask | Iterable[AnyTask] | None = None,
    limit: int | None = None,
    errors: Literal["raise", "collect"] = "raise",
    until: dt.datetime | dt.timedelta | None = None,
    clock: Mover | None = None,
    schedules: bool = True,
    database: str | None = None,
) -> RunReport:
    """Run the jobs that are due, and those that they enqueue, on the test's own connection.

    Args:
        queue: only those of this queue, or of these; names, patterns and exclusions as ``--queue`` of the worker
            takes them, served in strict order.
        task: only those of this task, or of these; tasks or their names.
        limit: how many runs to make, 1 or more; other jobs stay. None: all there are, and more than 1,000 beyond
            the jobs that were there are taken for a chain without an end.
        errors: ``"raise"`` the first error that a task raises, once its outcome is written; or ``"collect"`` them in
            the report. ``Discard``, exceptions of ``discard_on``, ``Snooze``, and ``Retry`` while there are attempts
            left, are no errors.
        until: go on with jobs that are due by then: an aware datetime, or a timedelta from the database's now. The
            clock of the connection is moved from one due moment to the next, without sleeping. Deadlines of workflows
            are due moments too.
        clock: moves Python's clock as well while jobs run: takes the moment, returns a context manager.
        schedules: whether schedules tick until then; with ``task`` only those of these tasks.
        database: the alias. None: ``PGQUEUE["DATABASE"]``.

    Returns:
        The report of all runs.

    Raises:
        EndlessJobs: there were more than 1,000 runs beyond the jobs that were there, or time was moved too often.
        ValueError: errors or limit is another value, or until is over, or naive while USE_TZ is on.
        TaskDoesNotExist: a job has a task that this code does not know, where errors are raised.
        ConfigurationError: the clock of the connection cannot be moved, or the tables were made without migrations.
    """
    __tracebackhide__ = True
    if errors not in ("raise", "collect"):
        raise ValueError(f"errors is 'raise' or 'collect', not {errors!r}.")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ValueError(f"limit is a whole number of 1 or more, or None, not {limit!r}.")
    alias = database or conf.database
    must_be_migrated(alias)
    work = Work(alias, Selection.of(queue, task), limit=limit, raises=errors == "raise")
    if until is None:
        work.run_due()
    else:
        _travel(work, until, clock, with_schedules=schedules)
    return RunReport(work.runs)


# Moving to the next due job


def _travel(work: Work, until: dt.datetime | dt.timedelta, mover: Mover | None, *, with_schedules: bool) -> None:
    __tracebackhide__ = True
    clock = Clock(work.alias)
    now = clock.now()
    end = _end(until, now)
    with clock.stopped(now):
        if with_schedules:
            sync_schedules(work.database)
        for _ in range(MOST_MOVES):
            work.now = now = clock.now()
            if mover is not None:
                work.python_clock = functools.partial(mover, now)
            tick = _fire(work) if with_schedules else None
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


def _waiting(work: Work) -> Any:
    return to_run(work.alias).exclude(status=Status.BLOCKED)


def _next(work: Work, now: dt.datetime, tick: float | None) -> dt.datetime | None:
    _, pause_seconds = send_limits(work.database).read()
    seconds = [pause_seconds, *work.token_seconds(), math.inf if tick is None else tick]
    found = [now + dt.timedelta(seconds=each) for each in seconds if 0 < each < math.inf]
    found += [aware(job.run_at) for job in _waiting(work).filter(run_at__gt=now).order_by("run_at")[:1]]
    found += [aware(flow.deadline_at) for flow in _open_workflows(work).filter(deadline_at__gt=now)[:1]]
    return min(found, default=None)


def _open_workflows(work: Work) -> Any:
    return Workflow.objects.using(work.alias).filter(status=WorkflowStatus.OPEN).order_by("deadline_at")
