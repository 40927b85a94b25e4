"""Selection of the jobs that a helper is about."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils import timezone

from django_pgqueue import registry
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.schedules.periodic import declared
from django_pgqueue.stored_values import aware

AnyTask = Any  # a task of this queue or of Django's Tasks framework, or the name of one


@dataclass(frozen=True)
class Selection:
    """The conditions under which a job is run."""

    served: QueueSelector  # in their order
    names: frozenset[str] | None = None  # of tasks, former ones included; None: any
    ids: set[int] | None = None  # of jobs; None: any

    @classmethod
    def of(cls, queue: str | Iterable[str] | None, task: AnyTask | Iterable[AnyTask] | None) -> "Selection":
        words = () if queue is None else (queue,) if isinstance(queue, str) else tuple(queue)
        if task is None:
            return cls(QueueSelector.of(words))
        chosen = task if isinstance(task, list | tuple | set | frozenset) else [task]
        return cls(QueueSelector.of(words), frozenset(name for one in chosen for name in names_of(task_of(one))))

    def conditions(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.names is not None:
            found["task__in"] = self.names
        if self.ids is not None:
            found["pk__in"] = self.ids
        return found

    def schedules(self) -> dict[str, list[str]]:
        """Return what ``fire_due`` takes: the schedules of the code, by name, and the tasks of others."""
        code = [name for name, one in declared().items() if self.names is None or one.task.name in self.names]
        return {"names": code, "tasks": registry.answering() if self.names is None else sorted(self.names)}


def task_of(task: AnyTask) -> TaskDefinition:
    """Return the task that was given or named; raise TaskDoesNotExist or TypeError where there is none."""
    return registry.definition_of(task)


def names_of(task: TaskDefinition) -> tuple[str, ...]:
    """Return the names under which the table may have jobs of a task."""
    return (task.name, *task.aliases)


def checked(name: str, given: Any) -> Any:
    """Return a timedelta, or a datetime made aware; raise TypeError for others, ValueError for naive ones if USE_TZ."""
    if isinstance(given, dt.timedelta):
        return given
    if not isinstance(given, dt.datetime):
        raise TypeError(f"{name} is a datetime or a timedelta, not {given!r}.")
    if timezone.is_naive(given) and settings.USE_TZ:
        raise ValueError(f"{name} is naive ({given!r}) while USE_TZ is on. Use django.utils.timezone.make_aware().")
    return aware(given)
