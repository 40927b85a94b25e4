"""Schedules for people: the next run, the outcome of the last job, problems."""

import datetime as dt
from collections.abc import Sequence
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.utils import timezone
from django.utils.translation import get_language, ngettext

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidSchedule
from django_pgqueue.insights.formatting import plain
from django_pgqueue.models import Schedule
from django_pgqueue.schedules.manage import GONE, LastJob, last_jobs
from django_pgqueue.schedules.periodic import declared
from django_pgqueue.schedules.recurrence import recurrence_of
from django_pgqueue.stored_values import aware

UPCOMING = 5
MOST_RUNS = 20
DAY_SECONDS = 86400


class ScheduleRun(NamedTuple):
    """One job of a schedule and its end; the columns of ``schedule_runs.sql``."""

    id: int
    status: str  # a status of a live job; or dead, succeeded
    reason: str  # dead
    attempts: int
    run_at: dt.datetime
    started_at: dt.datetime  # NEVER: not yet
    ended_at: dt.datetime | None
    run_seconds: float | None  # of one that succeeded
    error: str | None  # the class of the last one


def timing(schedule: Schedule) -> str:
    """Return its cron entry with the zone, or its interval as days, hours, minutes and seconds."""
    if schedule.cron:
        return f"{schedule.cron} ({schedule.timezone})"
    days, rest = divmod(schedule.every_seconds or 0, DAY_SECONDS)
    clock = str(dt.timedelta(seconds=rest))
    if not days:
        return clock
    words = ngettext("%(days)s day, %(clock)s", "%(days)s days, %(clock)s", int(days))
    return words % {"days": int(days), "clock": clock}


def in_words(schedule: Schedule) -> str:
    """Say what its cron entry means; nothing where it has none, it cannot work, or another language is spoken."""
    if not (get_language() or "en").startswith("en"):  # cronsim speaks English only
        return ""
    try:
        return recurrence_of(schedule.cron, schedule.every_seconds, schedule.timezone).words()
    except InvalidSchedule:
        return ""


def runs(schedule: Schedule, alias: str, *, limit: int = MOST_RUNS) -> list[ScheduleRun]:
    """Return its latest jobs, the newest first, as far as they were kept; of the live ones the last alone."""
    parameters = {"schedule_id": schedule.id, "last_job_id": schedule.last_job_id, "limit": limit}
    return [ScheduleRun._make(row) for row in CallerConnection(alias).rows(statement("schedule_runs"), parameters)]


def upcoming(schedule: Schedule) -> list[str]:
    """Return its next five runs as texts, on the clock of its zone; none while it is paused.

    Raises:
        InvalidSchedule: they cannot be reckoned.
    """
    if not schedule.is_enabled:
        return []
    rhythm = recurrence_of(schedule.cron, schedule.every_seconds, schedule.timezone)
    zone = ZoneInfo(schedule.timezone) if schedule.cron else None
    return [shown(tick, zone) for tick in rhythm.upcoming(aware(schedule.next_at), UPCOMING)]


def outcomes(schedules: Sequence[Schedule], alias: str) -> dict[int, LastJob]:
    """Return what became of the latest job of each schedule that has had one, by the id of the schedule."""
    ids = {schedule.id: schedule.last_job_id for schedule in schedules if schedule.last_job_id is not None}
    found = last_jobs(CallerConnection(alias), ids.values())
    return {schedule_id: found.get(job_id, GONE) for schedule_id, job_id in ids.items()}


def is_strange(schedule: Schedule) -> bool:
    """Whether it came from code, but not from this one: workers that have this code leave it alone."""
    return schedule.source == "code" and schedule.name not in declared()


def problem(schedule: Schedule) -> str:
    """Return why its ticks become no jobs, or nothing."""
    try:
        upcoming(schedule)
    except InvalidSchedule as error:
        return str(error)
    return schedule.last_error


def shown(value: dt.datetime, zone: ZoneInfo | None = None) -> str:
    """Return an instant to the second, on the clock of a zone or of the settings."""
    return aware(value).astimezone(zone or timezone.get_current_timezone()).isoformat(" ", "seconds")


def described(schedule: Schedule, last: LastJob | None) -> list[str]:
    lines = [
        f"{schedule.task}, {'cron' if schedule.cron else 'every'} {timing(schedule)}",
        f"next: {_next(schedule)}",
        f"last: {_last(schedule, last)}",
    ]
    if is_strange(schedule):
        lines.append("not in this code: workers that have this code leave it alone")
    if schedule.edited_at:
        lines.append(f"edited in the admin {shown(schedule.edited_at)}: this wins over the code")
    if why := problem(schedule):
        lines.append(f"error: {why}")
    return [plain(line) for line in lines]


def as_json(schedule: Schedule, last: LastJob | None) -> dict[str, Any]:
    """Return the data of one schedule, except its arguments."""
    return {
        "name": schedule.name,
        "task": schedule.task,
        "cron": schedule.cron,
        "every_seconds": schedule.every_seconds,
        "timezone": schedule.timezone,
        "is_enabled": schedule.is_enabled,
        "paused_by": schedule.paused_by,
        "next": _ticks(schedule),
        "last_at": shown(schedule.last_at) if schedule.last_at else None,
        "last_job": schedule.last_job_id,
        "last_outcome": last.status if last else None,
        "last_reason": last.reason if last else "",
        "source": schedule.source,
        "is_in_this_code": schedule.source == "code" and not is_strange(schedule),
        "edited_at": shown(schedule.edited_at) if schedule.edited_at else None,
        "error": problem(schedule),
    }


def _ticks(schedule: Schedule) -> Sequence[str]:
    try:
        return upcoming(schedule)
    except InvalidSchedule:
        return []


def _next(schedule: Schedule) -> str:
    if not schedule.is_enabled:
        return f"paused by {schedule.paused_by}" if schedule.paused_by else "paused"
    return ", ".join(_ticks(schedule)) or "never"


def _last(schedule: Schedule, last: LastJob | None) -> str:
    if last is None:
        return "none yet"
    outcome = "succeeded or removed, nothing was kept" if last.status == "gone" else last.status
    reason = f" ({last.reason})" if last.reason else ""
    due = f", due {shown(schedule.last_at)}" if schedule.last_at else ""
    return f"job {schedule.last_job_id} {outcome}{reason}{due}"
