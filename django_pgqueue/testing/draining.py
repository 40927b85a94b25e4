"""Run jobs in a test, one after the other, in the order in which a worker with one slot would start them."""

import datetime as dt
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from django_pgqueue.conf import conf
from django_pgqueue.testing.connection import must_be_migrated
from django_pgqueue.testing.run import Report, Work, raise_error
from django_pgqueue.testing.selection import AnyTask, Selection
from django_pgqueue.testing.time import Clock, travel

__unittest = True  # unittest leaves the frames of such modules out of its tracebacks


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
) -> Report:
    """Run the jobs that are due, and those that they enqueue, on the test's own connection.

    Args:
        queue: only those of this queue, or of these; names, patterns and exclusions as ``--queues`` of the worker
            takes them, served in strict order.
        task: only those of this task, or of these; tasks or their names.
        limit: how many runs to make, 1 or more; what is left is left. None: all there are, and more than 1,000 beyond
            the jobs that were there are taken for a chain without an end.
        errors: ``"raise"`` the first error that a task raises, once its outcome is written; or ``"collect"`` them in
            the report. ``Discard`` and ``RetryLater`` are no errors.
        until: go on with what is due by then: an aware datetime, or a timedelta from the database's now. The clock of
            the connection is moved from one due moment to the next, without sleeping.
        clock: moves Python's clock as well while jobs run: takes the moment, returns a context manager.
        schedules: whether schedules tick until then; with ``task`` only those of these tasks.
        database: the alias. None: ``PGQUEUE["DATABASE"]``.

    Returns:
        The report of all runs.

    Raises:
        EndlessJobs: there were more than 1,000 runs beyond the jobs that were there.
        UnknownTask: a job has a task that this code does not know, where errors are raised.
        ConfigurationError: the clock of the connection cannot be moved, or the tables were made without migrations.
    """
    __tracebackhide__ = True
    if errors not in ("raise", "collect"):
        raise ValueError(f"errors is 'raise' or 'collect', not {errors!r}.")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ValueError(f"limit is a whole number of 1 or more, or None, not {limit!r}.")
    alias = database or conf.database
    must_be_migrated(alias)
    work = Work(
        alias,
        Selection.of(queue, task),
        limit=limit,
        handle_error=raise_error if errors == "raise" else None,
    )
    if until is None:
        work.run_due()
    else:
        travel(work, Clock(alias), until, clock_of_python=clock, fires=schedules)
    return Report(tuple(work.runs))
