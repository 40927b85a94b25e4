"""Whether jobs were enqueued, and what was enqueued instead."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from django.db import connections

from django_pgqueue.conf import conf
from django_pgqueue.db.notify import WakeUp
from django_pgqueue.models import DeadJob, FinishedJob, Job
from django_pgqueue.states import Status
from django_pgqueue.testing.expected import Expected
from django_pgqueue.testing.wanted import AnyTask, names_of

if TYPE_CHECKING:
    from django.db.models import QuerySet

__unittest = True  # unittest leaves the frames of such modules out of its tracebacks

TO_RUN = (Status.SCHEDULED, Status.QUEUED, Status.WAITING)
"""The statuses of jobs that are still to run."""

MOST_SHOWN = 10
MOST_COMPARED = 1000


@overload
def assert_enqueued(
    task: AnyTask | None = None,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    queue: str | None = None,
    run_at: dt.datetime | dt.timedelta | None = None,
    tolerance: float | dt.timedelta = 1,
    priority: int | None = None,
    unique_key: str | None = None,
    count: None = None,
    database: str | None = None,
) -> Job: ...
@overload
def assert_enqueued(
    task: AnyTask | None = None,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    queue: str | None = None,
    run_at: dt.datetime | dt.timedelta | None = None,
    tolerance: float | dt.timedelta = 1,
    priority: int | None = None,
    unique_key: str | None = None,
    count: int,
    database: str | None = None,
) -> list[Job]: ...
def assert_enqueued(
    task: AnyTask | None = None,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    queue: str | None = None,
    run_at: dt.datetime | dt.timedelta | None = None,
    tolerance: float | dt.timedelta = 1,
    priority: int | None = None,
    unique_key: str | None = None,
    count: int | None = None,
    database: str | None = None,
) -> Job | list[Job]:
    """Assert that a job like this is there and still to run. What is not given is not compared.

    Args:
        task: the task, or its name.
        args: with ``kwargs`` the whole call; what is not given of the two is empty. Where the task is given, ``(1,)``
            is the same call as ``{"order_id": 1}``, and a default is the same as its value. Values are compared as JSON
            has them; ``unittest.mock.ANY`` equals all.
        kwargs: see ``args``.
        queue: its name.
        run_at: an aware datetime, or a timedelta from when the job was enqueued.
        tolerance: by how much ``run_at`` may differ, in seconds or as a timedelta. Default: a second.
        priority: -100 to 100.
        unique_key: the key.
        count: how many there are, exactly. None: one or more.
        database: the alias. None: ``PGQUEUE["DATABASE"]``.

    Returns:
        The job, and of several the one that was enqueued first; with ``count`` a list of all, in the order in which
        they were enqueued.

    Raises:
        AssertionError: there is none, or another number of them. The message lists what is there, the nearest first,
            without sensitive arguments.
        UnknownTask: no task has this name.
    """
    __tracebackhide__ = True
    expected = Expected.of(
        task,
        args=args,
        kwargs=kwargs,
        queue=queue,
        run_at=run_at,
        tolerance=tolerance,
        priority=priority,
        unique_key=unique_key,
    )
    alias = database or conf.database
    found = _found(alias, expected)
    if count is None and found:
        return found[0]
    if count is not None and len(found) == count:
        return found
    wanted = "No job is to run" if count is None else f"{_jobs(len(found))} to run, not {count},"
    raise AssertionError("\n".join([f"{wanted} that is {expected}.", *_instead(alias, expected, found)]))


def refute_enqueued(
    task: AnyTask | None = None,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    queue: str | None = None,
    run_at: dt.datetime | dt.timedelta | None = None,
    tolerance: float | dt.timedelta = 1,
    priority: int | None = None,
    unique_key: str | None = None,
    database: str | None = None,
) -> None:
    """Assert that no job like this is there and still to run; see ``assert_enqueued``.

    Raises:
        AssertionError: there is one; the message lists all.
        UnknownTask: no task has this name.
    """
    __tracebackhide__ = True
    expected = Expected.of(
        task,
        args=args,
        kwargs=kwargs,
        queue=queue,
        run_at=run_at,
        tolerance=tolerance,
        priority=priority,
        unique_key=unique_key,
    )
    if found := _found(database or conf.database, expected):
        lines = listed([f"  {expected.show(job)}" for job in found])
        raise AssertionError("\n".join([f"{_jobs(len(found))} to run that should not be: {expected}.", *lines]))


def to_run(alias: str) -> "QuerySet[Job]":
    """Return the jobs that are still to run, as they were enqueued."""
    return Job.objects.using(alias).filter(status__in=TO_RUN).order_by("pk")


def _found(alias: str, expected: Expected) -> list[Job]:
    jobs = to_run(alias).filter(**expected.conditions())
    return [job for job in jobs if not expected.differences(job)]


def _instead(alias: str, expected: Expected, found: list[Job]) -> list[str]:
    """Return the lines of what is there instead, and what may explain it."""
    others = [job for job in to_run(alias)[:MOST_COMPARED] if job not in found]
    others.sort(key=lambda job: (expected.is_other_task(job), len(expected.differences(job)), job.pk))
    lines = [f"  {expected.show(job)}" for job in found]
    lines += [f"  {expected.show(job)}\n    but {', and '.join(expected.differences(job))}" for job in others]
    return [
        "To run are, the nearest first:" if lines else "No job is to run at all.",
        *listed(lines),
        *_already_run(alias, expected),
        *_callbacks(alias),
    ]


def listed(lines: list[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    more = len(lines) - MOST_SHOWN
    return lines[:MOST_SHOWN] + ([f"  ... and {more} more"] if more > 0 else [])


def _already_run(alias: str, expected: Expected) -> list[str]:
    """Say that jobs of the task are not to run any more."""
    if expected.task is None:
        return []
    names = names_of(expected.task)
    finished = FinishedJob.objects.using(alias).filter(task__in=names).count()
    dead = DeadJob.objects.using(alias).filter(task__in=names).count()
    words = [f"{number} {word}" for number, word in ((finished, "finished"), (dead, "dead")) if number]
    return [f"Of this task are not to run any more: {' and '.join(words)}."] if words else []


def _callbacks(alias: str) -> list[str]:
    """Say that something waits for a commit which a TestCase never makes."""
    connection = connections[alias]
    waiting = [hook for _, hook, *_ in connection.run_on_commit if not isinstance(hook, WakeUp)]
    if not waiting or not connection.in_atomic_block:
        return []
    callbacks = (
        "A callback of on_commit() waits" if len(waiting) == 1 else f"{len(waiting)} callbacks of on_commit() wait"
    )
    return [f"{callbacks} for a commit, which a TestCase never makes, but captureOnCommitCallbacks(execute=True) does."]


def _jobs(number: int) -> str:
    return "A job is" if number == 1 else f"{number} jobs are"


def many(number: int) -> str:
    """Return how many jobs there are, in words."""
    return "a job" if number == 1 else f"{number} jobs"
