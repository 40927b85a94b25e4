"""What a job is expected to be, compared with what one is."""

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django_pgqueue import registry
from django_pgqueue.conf import conf
from django_pgqueue.jobs.redaction import scrubber, shown
from django_pgqueue.models import Job
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.testing.instants import aware, checked
from django_pgqueue.testing.wanted import AnyTask, names_of, task_of

LONGEST_VALUE = 80
"""In characters; of longer arguments the beginning is shown."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What was asked for; None stands for anything."""

    task: TaskDefinition | None
    call: tuple[Any, Any] | None  # positional and keyword arguments, as JSON has them
    queue: str | None
    run_at: dt.datetime | dt.timedelta | None
    tolerance: dt.timedelta
    priority: int | None
    unique_key: str | None

    @classmethod
    def of(
        cls,
        task: AnyTask | None,
        *,
        args: Sequence[Any] | None,
        kwargs: Mapping[str, Any] | None,
        queue: str | None,
        run_at: dt.datetime | dt.timedelta | None,
        tolerance: float | dt.timedelta,
        priority: int | None,
        unique_key: str | None,
    ) -> "Expected":
        """Make one of what the asserts take.

        Raises:
            UnknownTask: no task has this name.
            TypeError: args is no sequence, kwargs no mapping, or run_at of another type.
            ValueError: run_at is naive while USE_TZ is on.
        """
        if isinstance(args, str) or not isinstance(args, Sequence | None) or not isinstance(kwargs, Mapping | None):
            raise TypeError(f"args is a tuple or list and kwargs a dict, as in args=(1,), not {args!r} and {kwargs!r}.")
        is_given = args is not None or kwargs is not None
        return cls(
            task=None if task is None else task_of(task),
            call=(as_json(list(args or ())), as_json(dict(kwargs or {}))) if is_given else None,
            queue=queue,
            run_at=None if run_at is None else checked("run_at", run_at),
            tolerance=tolerance if isinstance(tolerance, dt.timedelta) else dt.timedelta(seconds=tolerance),
            priority=priority,
            unique_key=unique_key,
        )

    def conditions(self) -> dict[str, Any]:
        """Return what a query may filter by."""
        given = {"queue": self.queue, "priority": self.priority, "unique_key": self.unique_key}
        found = {name: value for name, value in given.items() if value is not None}
        return found if self.task is None else {"task__in": names_of(self.task), **found}

    def is_other_task(self, job: Job) -> bool:
        return self.task is not None and job.task not in names_of(self.task)

    def differences(self, job: Job) -> list[str]:
        """Say in what a job is another than expected; nothing where it is as expected."""
        return list(self._differences(job))

    def _differences(self, job: Job) -> Iterator[str]:
        if self.is_other_task(job):
            yield "of another task"
        elif self.call is not None and self._bound(*self.call) != self._bound(job.args, job.kwargs):
            yield "with other arguments"
        for name in ("queue", "priority", "unique_key"):
            wanted, there = getattr(self, name), getattr(job, name)
            if wanted is not None and wanted != there:
                yield f"with {name}={there!r}"
        if self.run_at is not None and abs(aware(job.run_at) - self._due(job, self.run_at)) > self.tolerance:
            yield f"due {_due_in_words(job, is_instant=isinstance(self.run_at, dt.datetime))}"

    def show(self, job: Job) -> str:
        """Return a job on one line, due as it was asked for."""
        return show(job, is_instant=isinstance(self.run_at, dt.datetime))

    def __str__(self) -> str:
        call = None
        if self.call is not None:
            call = f"called with {_call('', *(shown(self.task, *self.call) if self.task else self.call))}"
        words = [
            f"of {self.task.name}" if self.task else None,
            call,
            None if self.queue is None else f"on {self.queue!r}",
            None if self.run_at is None else f"due {_moment(self.run_at)}",
            None if self.priority is None else f"with priority {self.priority}",
            None if self.unique_key is None else f"with unique key {self.unique_key!r}",
        ]
        told = ", ".join(filter(None, words)) or "of any task"
        return scrubber(self.task, *self.call)(told) if self.task and self.call else told

    def _bound(self, args: Any, kwargs: Any) -> Any:
        """Return arguments by the names of their parameters, with defaults, if the task is given and they fit."""
        if self.task is None:
            return args, kwargs
        try:
            bound = self.task.signature.bind(*args, **kwargs)
        except TypeError:
            return args, kwargs
        bound.apply_defaults()
        return {name: as_json(value) for name, value in bound.arguments.items()}

    def _due(self, job: Job, run_at: dt.datetime | dt.timedelta) -> dt.datetime:
        return aware(job.enqueued_at) + run_at if isinstance(run_at, dt.timedelta) else run_at


def show(job: Job, *, is_instant: bool = False) -> str:
    """Return a job on one line, without what is sensitive.

    Args:
        is_instant: say when it is due by the calendar, not how long after it was enqueued.
    """
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
                return json.loads(json.dumps(value, cls=conf.encoder))
            except (TypeError, ValueError, RecursionError):
                return value


def _key(key: Any) -> Any:
    """Return a key of a mapping as JSON writes it: a text."""
    return key if isinstance(key, str) else next(iter(json.loads(json.dumps({key: None}))), key)


def _call(name: str, args: Any, kwargs: Any) -> str:
    """Return a call as Python writes it; args and kwargs may be the word that stands for what is left out."""
    positional = [_short(value) for value in args] if isinstance(args, list) else [f"*{args}"]
    named = [f"{key}={_short(value)}" for key, value in kwargs.items()] if isinstance(kwargs, dict) else [f"**{kwargs}"]
    return f"{name}({', '.join([*positional, *named])})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."


def _due_in_words(job: Job, *, is_instant: bool) -> str:
    delay = aware(job.run_at) - aware(job.enqueued_at)
    if is_instant:
        return _moment(aware(job.run_at))
    return _moment(delay) if delay else "at once"


def _moment(moment: dt.datetime | dt.timedelta) -> str:
    return f"{moment} after it was enqueued" if isinstance(moment, dt.timedelta) else f"at {moment.isoformat()}"
