"""Actions of staff on schedules: pause, resume, run, restore; and the rows of schedules."""

import datetime as dt
import json
import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

from django_pgqueue import registry
from django_pgqueue.db.connections import CallerConnection, Database
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidSchedule
from django_pgqueue.schedules.periodic import stored_options
from django_pgqueue.schedules.recurrence import Recurrence
from django_pgqueue.tasks import enqueue_one

logger = logging.getLogger("django_pgqueue")


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

    def call(self) -> tuple[registry.TaskDefinition, tuple[Any, ...], dict[str, Any]]:
        """Return the task with its options, and the arguments.

        Raises:
            PgQueueError: the task is unknown here, an option is wrong, or the arguments are not an array and an object.
        """
        args, kwargs, options = json.loads(self.args), json.loads(self.kwargs), json.loads(self.options)
        if not isinstance(args, list) or not isinstance(kwargs, dict) or not isinstance(options, dict):
            raise InvalidSchedule("args is a JSON array, kwargs and options are JSON objects.")
        task = registry.get(self.task)
        return task.using(**stored_options(task, options)), tuple(args), kwargs


def recurrence_of(cron: str, every_seconds: float | None, timezone: str) -> Recurrence:
    """Return the ticks of a schedule as its row has them; raise InvalidSchedule if they cannot be reckoned."""
    try:
        every = None if every_seconds is None else dt.timedelta(seconds=every_seconds)
    except (OverflowError, ValueError) as error:
        raise InvalidSchedule(f"every is {every_seconds!r} seconds, which is no time: {error}.") from error
    return Recurrence(cron, every, timezone)


def pause_schedules(names: Iterable[str], *, by: str, database: str | None = None) -> list[str]:
    """Let schedules miss their ticks until they are resumed. What is enqueued or runs is left alone.

    Runs in the caller's transaction. A deploy does not resume a schedule.

    Args:
        by: who does it; stands with the schedule.

    Returns:
        The names paused. Missing are those that were paused, are not there, or are locked by another transaction.
    """
    caller = CallerConnection(database)
    return _told("Paused", by, caller.rows(statement("pause_schedules"), {"names": list(names), "by": by}))


def resume_schedules(names: Iterable[str], *, by: str, database: str | None = None) -> list[str]:
    """Let paused schedules go on with their next tick from now: those in between are not made up.

    Runs in the caller's transaction.

    Args:
        by: who does it; stands in the log.

    Returns:
        The names resumed. Missing are those that were not paused, are not there, or are locked by another
        transaction.

    Raises:
        InvalidSchedule: one has no ticks, because its row was changed by hand.
    """
    caller = CallerConnection(database)
    next_ats = {
        schedule_id: recurrence_of(cron, every_seconds, timezone).next_after(now, known=next_at)
        for schedule_id, _, cron, every_seconds, timezone, next_at, now in caller.rows(
            statement("paused_schedules"), {"names": list(names)}
        )
    }
    parameters = {"ids": list(next_ats), "next_ats": list(next_ats.values())}
    return _told("Resumed", by, caller.rows(statement("resume_schedules"), parameters))


def run_schedules(names: Iterable[str], *, by: str, database: str | None = None) -> dict[str, int]:
    """Enqueue a job of each schedule now, besides those of its ticks, whether it is paused or not.

    Runs in the caller's transaction and wakes workers after its commit.

    Args:
        by: who does it; stands in the log.

    Returns:
        The ids of the jobs by the names of the schedules. Missing are names that are not there.

    Raises:
        PgQueueError: the task of one is unknown here, or cannot be enqueued with these arguments and options.
    """
    caller, jobs = CallerConnection(database), {}
    rows = [ScheduleRow._make(row) for row in caller.rows(statement("named_schedules"), {"names": list(names)})]
    for row in rows:
        task, args, kwargs = row.call()
        jobs[row.name] = enqueue_one(task.using(database=caller.alias), args, kwargs, schedule_id=row.id).id
    caller.rows(statement("save_last_jobs"), {"names": list(jobs), "job_ids": list(jobs.values())})
    if jobs:
        logger.info("Run now by %s: schedules %s", by, jobs)
    return jobs


def restore_schedules(names: Iterable[str], *, by: str, database: str | None = None) -> list[str]:
    """Take back what was edited of schedules that the code declares: within a minute they are as the code has them.

    Runs in the caller's transaction.

    Args:
        by: who does it; stands in the log.

    Returns:
        The names restored. Missing are those that were not edited, are not of code, or are just being changed.
    """
    caller = CallerConnection(database)
    return _told("Restored", by, caller.rows(statement("restore_schedules"), {"names": list(names)}))


class LastJob(NamedTuple):
    """Outcome of the latest job of a schedule."""

    status: str  # a status of a live job; or retrying, dead, finished, gone
    reason: str = ""  # dead


GONE = LastJob("gone")  # finished or removed, and nothing was kept of it


def last_jobs(database: Database, ids: Iterable[int]) -> dict[int, LastJob]:
    """Return what became of these jobs; those of which nothing was kept are missing."""
    rows = database.rows(statement("last_job_outcomes"), {"ids": list(ids)})
    return {
        job_id: LastJob("retrying" if status == "scheduled" and attempts else status, reason)
        for job_id, status, attempts, reason in rows
    }


def _told(what: str, by: str, rows: list[tuple[Any, ...]]) -> list[str]:
    names = sorted(name for (name,) in rows)
    if names:
        logger.info("%s by %s: schedules %s", what, by, names)
    return names
