"""Causes of death: one line for each task, reason, class of error and shape of message."""

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db.models.fields.json import KeyTransform

from django_pgqueue import registry
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.insights.history import title_of
from django_pgqueue.jobs.redaction import scrub_json, scrubber
from django_pgqueue.models import DeadJob
from django_pgqueue.stored_values import aware

PAGE = 50
CAP = 10_000
HOURS = 24
LONGEST_MESSAGE = 300  # characters


class HourCount(NamedTuple):
    """The number of jobs that died in one hour of the clock."""

    begins_at: dt.datetime
    number: int


class DeadGroup(NamedTuple):
    """Dead jobs of one error, described by the latest of them."""

    number: int  # what the list of dead jobs is narrowed by
    job_id: int  # the latest job
    task: str
    reason: str
    error: str  # the class of its last error; empty where there was none
    message: str  # what that said, its first line, without values that may not be seen
    first_at: dt.datetime
    last_at: dt.datetime
    jobs: int  # how many died of it; more than ``CAP`` means at least that number
    hours: Sequence[HourCount]  # the last 24, the earliest first; of the latest ``CAP`` jobs only

    @property
    def most(self) -> int:
        return max(hour.number for hour in self.hours)


class DeadGroupPage(NamedTuple):
    causes: list[DeadGroup]
    is_more: bool  # earlier ones are behind the last
    is_partial: bool  # there are too many, some of the earlier ones are left out


def dead_groups(
    alias: str, *, now: dt.datetime, behind: Sequence[str] | None = None, limit: int = PAGE
) -> DeadGroupPage:
    """Return the causes of which jobs have died; ``behind``: the last death and number of the cause to begin behind."""
    died_at, cause = behind or (None, None)
    parameters = {"died_at": died_at, "cause": cause, "limit": limit + 1}
    rows = CallerConnection(alias).rows(statement("dead_groups"), parameters)
    shown = rows[:limit]
    jobs = DeadJob.objects.using(alias).annotate(latest=KeyTransform("-1", "errors"))
    latest = jobs.only("task", "reason", "args", "kwargs").in_bulk([row[1] for row in shown])
    found = [_cause(row, latest[row[1]], now) for row in shown if row[1] in latest]
    return DeadGroupPage(found, len(rows) > limit, any(row[-1] for row in rows))


def _cause(row: tuple[Any, ...], job: Any, now: dt.datetime) -> DeadGroup:
    number, job_id, first_at, last_at, number_of_jobs, hours, numbers, _ = row
    error, message = _latest_error(job)
    return DeadGroup(
        number=number,
        job_id=job_id,
        task=job.task,
        reason=job.reason,
        error=error,
        message=message,
        first_at=aware(first_at),
        last_at=aware(last_at),
        jobs=number_of_jobs,
        hours=_day(dict(zip(map(aware, hours), numbers, strict=True)), now),
    )


def _latest_error(job: Any) -> tuple[str, str]:
    """Return the class of the last error, and the first line of its message."""
    entry = scrub_json(job.latest, scrubber(registry.find(job.task), job.args, job.kwargs))
    if not isinstance(entry, dict):
        return "", "" if entry is None else json.dumps(entry, ensure_ascii=False)[:LONGEST_MESSAGE]
    message = str(entry.get("message") or "").strip().partition("\n")[0]
    return title_of(entry), message[:LONGEST_MESSAGE]


def _day(counts: dict[dt.datetime, int], now: dt.datetime) -> list[HourCount]:
    last = now.astimezone(dt.UTC).replace(minute=0, second=0, microsecond=0)
    hours = [last - dt.timedelta(hours=ago) for ago in reversed(range(HOURS))]
    return [HourCount(hour, counts.get(hour, 0)) for hour in hours]
