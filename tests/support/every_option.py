"""A value for each option of a job, none of them its default, and the row of a job to compare."""

import datetime as dt
from typing import Any

from django.utils import timezone

from django_pgqueue import Limit, Unique
from django_pgqueue.models import DeadJob, Job

DAY = dt.timedelta(days=1)  # so that it does not matter when a test runs after the import

STORED = {
    "queue": "mail",
    "priority": 3,
    "max_attempts": 4,
    "timeout": 7,
    "lease": 90,
    "keep_result": False,
    "keep_for": 60,
    "run_at": timezone.now() + 2 * DAY,
    "delay": 2 * DAY,
    "head_start": 2 * DAY,
    "expires": 3 * DAY,
    "unique": Unique("label", hold=60),
    "unique_key": "u",
    "limit": Limit("label", running=3, strict=True),
    "limit_key": "l",
    "fair": "label",
    "fair_key": "f",
    "tags": ("import", 'a "b" {\\}, NULL', "NULL"),
    "metadata": {"order": [1]},
}
"""For the task ``record``, whose argument is ``label``."""

NOT_STORED = {"on_conflict", "database", "shard_by"}

ALL_BUT_THOSE_THAT_EXCLUDE_OTHERS = [
    {option: value for option, value in STORED.items() if option not in without}
    for without in ({"keep_result", "delay"}, {"keep_for", "run_at"})
]
"""Together all: ``keep_for`` has no effect without ``keep_result``, and a job has one of ``run_at`` and
``delay``, with which ``head_start`` has none."""


def row_of(job_id: int, table: type[Job | DeadJob] = Job) -> dict[str, Any]:
    """Return the columns of a job except ``id`` and ``enqueued_at``.

    ``run_at`` is in days from enqueueing, and ``expires_at`` in days from then.
    """
    row = table.objects.filter(pk=job_id).values().get()
    enqueued_at, run_at, expires_at = row.pop("enqueued_at"), row["run_at"], row["expires_at"]
    del row["id"]
    return row | {
        "run_at": round((run_at - enqueued_at) / DAY),
        "expires_at": expires_at and round((expires_at - run_at) / DAY),
    }


def differing(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    """Return the columns that both rows have, with different values."""
    return {column for column in one.keys() & other.keys() if one[column] != other[column]}
