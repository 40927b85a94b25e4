"""Assertions on jobs that were enqueued."""

import datetime as dt
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from django.db import connections
from django.db.models.functions import Now

from django_pgqueue import registry
from django_pgqueue.conf import conf
from django_pgqueue.db.notify import Notification
from django_pgqueue.exceptions import delay_seconds
from django_pgqueue.jobs.redaction import scrubber, shown
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.states import Status
from django_pgqueue.stored_values import aware
from django_pgqueue.tasks import Call
from django_pgqueue.testing.connection import is_broken
from django_pgqueue.testing.selection import AnyTask, checked, names_of, task_of

if TYPE_CHECKING:
    from django.db.models import QuerySet

LONGEST_VALUE = 80  # characters; of longer arguments the beginning is shown
MOST_SHOWN = 10
MOST_COMPARED = 1000

COLUMNS = {"limit_key": "concurrency_key"}  # of options that are called otherwise


class Wanted(TypedDict, total=False):
    """Arguments of the assertions, as ``assert_enqueued`` documents them."""

    args: Sequence[Any] | None
    kwargs: Mapping[str, Any] | None
    queue: str | None
    run_at: dt.datetime | None
    delay: float | dt.timedelta | None
    tolerance: float | dt.timedelta
    priority: int | None
    unique_key: str | None
    limit_key: str | None
    fair_key: str | None


class Expected:
    """The values asked for; None stands for any."""

    def __init__(
        self,
        task: AnyTask | None = None,
        *,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        queue: str | None = None,
        run_at: dt.datetime | None = None,
        delay: float | dt.timedelta | None = None,
        tolerance: float | dt.timedelta = 1,
        priority: int | None = None,
        unique_key: str | None = None,
        limit_key: str | None = None,
        fair_key: str | None = None,
    ) -> None:
        if isinstance(task, Call):
            if args is not None or kwargs is not None:
                raise TypeError(f"{task!r} has its arguments: args and kwargs are given with a task.")
            args, kwargs, task = task.args, task.kwargs, task.task
        if isinstance(args, str) or not isinstance(args, Sequence | None) or not isinstance(kwargs, Mapping | None):
            raise TypeError(f"args is a tuple or list and kwargs a dict, as in args=(1,), not {args!r} and {kwargs!r}.")
        is_given = args is not None or kwargs is not None
        keys = {"unique_key": unique_key, "limit_key": limit_key, "fair_key": fair_key}
        columns = {"queue": queue, "priority": priority, **keys}
        self.task = None if task is None else task_of(task)
        self.call = (as_json(list(args or ())), as_json(dict(kwargs or {}))) if is_given else None
        self.columns = {name: value for name, value in columns.items() if value is not None}
        self.run_at = _due(run_at, delay)
        self.tolerance = tolerance if isinstance(tolerance, dt.timedelta) else dt.timedelta(seconds=tolerance)

    def conditions(self) -> dict[str, Any]:
        of_task = {} if self.task is None else {"task__in": names_of(self.task)}
        return of_task | {COLUMNS.get(name, name): value for name, value in self.columns.items()}

    def is_other_task(self, job: Job) -> bool:
        return self.task is not None and job.task not in names_of(self.task)

    def differences(self, job: Job) -> list[str]:
        found = []
        if self.is_other_task(job):
            found.append("of another task")
        elif self.call is not None and self._bound(*self.call) != self._bound(job.args, job.kwargs):
            found.append("with other arguments")
        there = {name: getattr(job, COLUMNS.get(name, name)) for name in self.columns}
        found += [f"with {name}={there[name]!r}" for name, wanted in self.columns.items() if there[name] != wanted]
        if self.run_at is not None:
            due = aware(job.enqueued_at) + self.run_at if isinstance(self.run_at, dt.timedelta) else self.run_at
            if abs(aware(job.run_at) - due) > self.tolerance:
                found.append(f"due {_due_in_words(job, is_instant=isinstance(self.run_at, dt.datetime))}")
        return found

    def show(self, job: Job) -> str:
        return show(job, is_instant=isinstance(self.run_at, dt.datetime))

    def __str__(self) -> str:
        call = self.call and (shown(self.task, *self.call) if self.task else self.call)
        queue, priority = map(self.columns.get, ("queue", "priority"))
        words = [
            f"of {self.task.name}" if self.task else None,
            f"called with {_call('', *call)}" if call else None,
            None if queue is None else f"on {queue!r}",
            None if self.run_at is None else f"due {_moment(self.run_at)}",
            None if priority is None else f"with priority {priority}",
            *(f"with {name.replace('_', ' ')} {key!r}" for name, key in self.columns.items() if name.endswith("_key")),
        ]
        told = ", ".join(filter(None, words)) or "of any task"
        return scrubber(self.task, *self.call)(told) if self.task and self.call else told

    def _bound(self, args: Any, kwargs: Any) -> Any:
        if self.task is None:
            return args, kwargs
        try:
            bound = self.task.signature.bind(*args, **kwargs)
        except TypeError:
            return args, kwargs
        bound.apply_defaults()
        return {name: as_json(value) for name, value in bound.arguments.items()}


def show(job: Job, *, is_instant: bool = False) -> str:
    """Return a job on one line, without sensitive values; ``is_instant``: due by the calendar, not after a delay."""
    task = registry.find(job.task)
    line = f"job {job.pk}: {_call(job.task, *shown(task, job.args, job.kwargs))} on {job.queue!r}"
    line += f", priority {job.priority}" if job.priority else ""
    line += f", unique key {job.unique_key!r}" if job.unique_key else ""
    line += f", {job.status}, due {_due_in_words(job, is_instant=is_instant)}"
    return scrubber(task, job.args, job.kwargs)(line)


def as_json(value: Any) -> Any:
    """Return a value as it comes back from the table. What JSON cannot hold stays, so that it may equal anything."""
    match value:
        case dict():
            return {_key(key): as_json(item) for key, item in value.items()}
        case list() | tuple():
            return [as_json(item) for item in value]
        case _:
            try:
                return value if _is_like_any(value) else json.loads(json.dumps(value, cls=conf.json_encoder))
            except (TypeError, ValueError, RecursionError):
                return value


def _is_like_any(value: Any) -> bool:
    """Whether a value equals any other, as ``unittest.mock.ANY`` does: an encoder may write it as text."""
    return bool(value == object())


def _key(key: Any) -> Any:
    """Return a key of a mapping as JSON writes it: a text."""
    return key if isinstance(key, str) else next(iter(json.loads(json.dumps({key: None}))), key)


def _call(name: str, args: Any, kwargs: Any) -> str:
    """Return a call as Python writes it; args and kwargs may be the replacement of hidden values."""
    positional = [_short(value) for value in args] if isinstance(args, list) else [f"*{args}"]
    named = [f"{key}={_short(value)}" for key, value in kwargs.items()] if isinstance(kwargs, dict) else [f"**{kwargs}"]
    return f"{name}({', '.join([*positional, *named])})"


def _due(run_at: Any, delay: Any) -> dt.datetime | dt.timedelta | None:
    """Return when a job should be due; a timedelta from when it was enqueued; None: at any time."""
    if run_at is not None and delay is not None:
        raise ValueError("run_at says when the job is due, and delay how long after it was enqueued: give one of them.")
    if delay is not None:
        return dt.timedelta(seconds=delay_seconds("delay", delay))
    if isinstance(run_at, dt.timedelta):
        raise TypeError(f"run_at is a datetime, not {run_at!r}. From when the job was enqueued it is delay=….")
    return None if run_at is None else cast("dt.datetime", checked("run_at", run_at))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def _due_in_words(job: Job, *, is_instant: bool) -> str:
    delay = aware(job.run_at) - aware(job.enqueued_at)
    if is_instant:
        return _moment(aware(job.run_at))
    return _moment(delay) if delay > dt.timedelta() else "at once"


def _moment(moment: dt.datetime | dt.timedelta) -> str:
    return f"{moment} after it was enqueued" if isinstance(moment, dt.timedelta) else f"at {moment.isoformat()}"


# Assertions

__unittest = True  # unittest leaves the frames of such modules out of its tracebacks

TO_RUN = (Status.SCHEDULED, Status.QUEUED, Status.LIMITED, Status.BLOCKED)


def assert_enqueued(
    task: AnyTask | None = None, *, count: int | None = None, database: str | None = None, **wanted: Unpack[Wanted]
) -> Job:
    """Assert that a job like this is there and still to run. Omitted values are not compared.

    Args:
        task: the task, or its name; or a call that ``bind`` has made, in place of ``args`` and ``kwargs``. Its options
            are not compared.
        args: with ``kwargs`` the whole call; an omitted one is empty. Where the task is given, ``(1,)``
            is the same call as ``{"order_id": 1}``, and a default is the same as its value. Values are compared as JSON
            has them; ``unittest.mock.ANY`` equals all.
        kwargs: see ``args``.
        queue: its name.
        run_at: an aware datetime.
        delay: in place of it, seconds or a timedelta from when the job was enqueued.
        tolerance: by how much these may differ, in seconds or as a timedelta. Default: a second.
        priority: -100 to 100.
        unique_key: the key, whether the call has given it or the task has computed it; so are those that follow.
        limit_key: the concurrency key.
        fair_key: the fair key.
        count: how many there are, exactly, 1 or more. None: one or more.
        database: the alias. None: ``PGQUEUE["DATABASE"]``.

    Returns:
        The job; of several the one that was enqueued first. ``enqueued`` returns all.

    Raises:
        ValueError: count is below 1.
        AssertionError: there is none, or another number of them. The message lists the jobs that are there, the nearest
            first, without sensitive arguments.
        TaskDoesNotExist: no task has this name.
    """
    __tracebackhide__ = True
    _check_names("assert_enqueued", wanted, also=("count", "database"))
    if count is not None and count < 1:
        raise ValueError(f"count is 1 or more, not {count!r}; that there is none is said by assert_not_enqueued().")
    expected = Expected(task, **wanted)
    alias = database or conf.database
    found = _found(alias, expected)
    if found and count in (None, len(found)):
        return found[0]
    head = "No job is to run" if count is None else f"{_jobs(len(found))} to run, not {count},"
    raise AssertionError("\n".join([f"{head} that is {expected}.", *_instead(alias, expected, found)]))


def assert_not_enqueued(task: AnyTask | None = None, *, database: str | None = None, **wanted: Unpack[Wanted]) -> None:
    """Assert that no job like this is there and still to run; see ``assert_enqueued``.

    Raises:
        AssertionError: there is one; the message lists all.
        TaskDoesNotExist: no task has this name.
    """
    __tracebackhide__ = True
    _check_names("assert_not_enqueued", wanted, also=("database",))
    expected = Expected(task, **wanted)
    if found := _found(database or conf.database, expected):
        lines = listed([f"  {expected.show(job)}" for job in found])
        raise AssertionError("\n".join([f"{_jobs(len(found))} to run that should not be: {expected}.", *lines]))


def enqueued(task: AnyTask | None = None, *, database: str | None = None, **wanted: Unpack[Wanted]) -> list[Job]:
    """Return the jobs like this that are still to run, in the order in which they were enqueued.

    Takes what ``assert_enqueued`` takes, but for ``count``; without arguments, returns all that are to run.

    Raises:
        TaskDoesNotExist: no task has this name.
    """
    _check_names("enqueued", wanted, also=("database",))
    return _found(database or conf.database, Expected(task, **wanted))


def _check_names(name: str, given: Iterable[str], *, also: Sequence[str]) -> None:
    __tracebackhide__ = True
    if unknown := sorted({*given} - {*Wanted.__annotations__}):
        known = ", ".join(["task", *Wanted.__annotations__, *also])
        raise TypeError(f"{name}() has no argument {', '.join(unknown)}; it takes {known}.")


def to_run(alias: str) -> "QuerySet[Job]":
    """Return the jobs that are still to run, as they were enqueued."""
    return Job.objects.using(alias).filter(status__in=TO_RUN).order_by("pk")


def _found(alias: str, expected: Expected) -> list[Job]:
    jobs = to_run(alias).filter(**expected.conditions())
    return [job for job in jobs if not expected.differences(job)]


def _instead(alias: str, expected: Expected, found: list[Job]) -> list[str]:
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
    if expected.task is None:
        return []
    names = names_of(expected.task)
    succeeded = SucceededJob.objects.using(alias).filter(task__in=names).count()
    dead = DeadJob.objects.using(alias).filter(task__in=names).count()
    words = [f"{number} {word}" for number, word in ((succeeded, "succeeded"), (dead, "dead")) if number]
    return [f"Of this task are not to run any more: {' and '.join(words)}."] if words else []


def _callbacks(alias: str) -> list[str]:
    connection = connections[alias]
    waiting = [hook for _, hook, *_ in connection.run_on_commit if not isinstance(hook, Notification)]
    if not waiting or not connection.in_atomic_block:
        return []
    callbacks = (
        "A callback of on_commit() waits" if len(waiting) == 1 else f"{len(waiting)} callbacks of on_commit() wait"
    )
    return [f"{callbacks} for a commit, which a TestCase never makes, but captureOnCommitCallbacks(execute=True) does."]


def _jobs(number: int) -> str:
    return "A job is" if number == 1 else f"{number} jobs are"


# Jobs left behind


def due_jobs(aliases: Iterable[str]) -> dict[tuple[str, int], Job]:
    """Return the jobs that are to run now, by alias and id; none where a broken transaction allows no query."""
    return {
        (alias, job.pk): job
        for alias in aliases
        if not is_broken(connections[alias])
        for job in to_run(alias).filter(run_at__lte=Now())
    }


def complaint(aliases: Iterable[str], before: Collection[tuple[str, int]]) -> str:
    """Return a complaint about jobs that are due and were not among these; empty if there are none."""
    left = [job for place, job in due_jobs(aliases).items() if place not in before]
    if not left:
        return ""
    jobs = "a job" if len(left) == 1 else f"{len(left)} jobs"
    head = f"The test has left {jobs} behind to run now. Run them, or mark the test with pgqueue_leftovers:"
    return "\n".join([head, *listed([f"  {show(job)}" for job in left])])
