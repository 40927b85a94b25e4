"""Rows of schedules, as statements return them."""

import datetime as dt
import json
from typing import Any, NamedTuple

from django_pgqueue import registry
from django_pgqueue.exceptions import InvalidSchedule
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.schedules.periodic import stored_options
from django_pgqueue.schedules.recurrence import Recurrence, recurrence_of


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

    def is_as(self, other: "ScheduleRow | None") -> bool:
        """Whether this is what the row still says; the times at which it was looked at do not count."""
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
