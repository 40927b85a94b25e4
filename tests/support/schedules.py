"""Schedules of tests."""

import datetime as dt
from collections.abc import Callable
from typing import Any

from django_pgqueue.models import Schedule

START = dt.datetime(2026, 10, 20, tzinfo=dt.UTC)

SECOND, HOUR, DAY = dt.timedelta(seconds=1), dt.timedelta(hours=1), dt.timedelta(days=1)

RECORD = "tests.app.tasks.record"


def make(name: str = "hourly", **values) -> Schedule:
    """Add a schedule as the admin does, due at START."""
    timing = {} if values.get("cron") else {"every_seconds": 3600}
    return Schedule.objects.create(**{"name": name, "task": RECORD, "next_at": START, **timing, **values})


def bound(declare: Callable[[Any], Any], *args: Any, **options: Any) -> Callable[[Any], Any]:
    """Return what declares a schedule of a call, with options, of the task that it is given."""
    return lambda task: declare(task.using(**options).bind(*args))
