"""Actions of staff on schedules: pause, resume, run, restore; and the outcomes of their latest jobs."""

import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

from django_pgqueue.db.connections import CallerConnection, Database
from django_pgqueue.db.queries import statement
from django_pgqueue.schedules.enqueuer import ScheduleRow
from django_pgqueue.schedules.recurrence import recurrence_of
from django_pgqueue.tasks import enqueue_one
from django_pgqueue.validation import UNNAMED, By, name_of

logger = logging.getLogger("django_pgqueue")


def pause(names: Iterable[str], *, by: By = "", database: str | None = None) -> list[str]:
    """Let schedules miss their ticks until they are resumed. Jobs that are enqueued or run are left alone.

    Runs in the caller's transaction. A deploy does not resume a schedule.

    Args:
        by: user who does it, or the username; kept with the schedule until it is resumed, and in the log.

    Returns:
        The names paused. Missing are those that were paused, are not there, or are locked by another transaction.
    """
    caller, by = CallerConnection(database), name_of(by)
    return _log_names("Paused", by, caller.rows(statement("pause_schedules"), {"names": _checked(names), "by": by}))


def resume(names: Iterable[str], *, by: By = "", database: str | None = None) -> list[str]:
    """Let paused schedules go on with their next tick from now: those in between are not made up.

    Runs in the caller's transaction.

    Args:
        by: user who does it, or the username; kept in the log.

    Returns:
        The names resumed. Missing are those that were not paused, are not there, or are locked by another transaction.

    Raises:
        InvalidSchedule: one has no ticks, because its row was changed by hand.
    """
    caller, by = CallerConnection(database), name_of(by)
    next_ats = {
        schedule_id: recurrence_of(cron, every_seconds, timezone).next_after(now, known=next_at)
        for schedule_id, _, cron, every_seconds, timezone, next_at, now in caller.rows(
            statement("paused_schedules"), {"names": _checked(names)}
        )
    }
    parameters = {"ids": list(next_ats), "next_ats": list(next_ats.values())}
    return _log_names("Resumed", by, caller.rows(statement("resume_schedules"), parameters))


def run(names: Iterable[str], *, by: By = "", database: str | None = None) -> dict[str, int]:
    """Enqueue a job of each schedule now, in addition to those of its ticks, whether it is paused or not.

    Runs in the caller's transaction and wakes workers after its commit.

    Args:
        by: user who does it, or the username; kept in the log.

    Returns:
        The ids of the jobs by the names of the schedules. Missing are names that are not there.

    Raises:
        PgQueueError: the task of one is unknown here, or cannot be enqueued with these arguments and options.
    """
    caller, by, jobs = CallerConnection(database), name_of(by), {}
    rows = [ScheduleRow._make(row) for row in caller.rows(statement("named_schedules"), {"names": _checked(names)})]
    for row in rows:
        task, args, kwargs = row.call()
        jobs[row.name] = enqueue_one(task.using(database=caller.alias), args, kwargs, schedule_id=row.id).id
    caller.rows(statement("save_last_jobs"), {"names": list(jobs), "job_ids": list(jobs.values())})
    if jobs:
        logger.info("Run now by %s: schedules %s", by or UNNAMED, jobs)
    return jobs


def restore(names: Iterable[str], *, by: By = "", database: str | None = None) -> list[str]:
    """Undo the edits of schedules that the code declares: within a minute they are as in the code.

    Runs in the caller's transaction.

    Args:
        by: user who does it, or the username; kept in the log.

    Returns:
        The names restored. Missing are those that were not edited, are not of code, or are just being changed.
    """
    caller, by = CallerConnection(database), name_of(by)
    return _log_names("Restored", by, caller.rows(statement("restore_schedules"), {"names": _checked(names)}))


def _checked(names: Iterable[str]) -> list[str]:
    """Return names as a list; raise TypeError where they are one text, whose characters would be taken for them."""
    if isinstance(names, str):
        raise TypeError(f"{names!r} is no list of names of schedules: write [{names!r}].")
    return list(names)


class LastJob(NamedTuple):
    """Outcome of the latest job of a schedule."""

    status: str  # a status of a live job; or retrying, dead, succeeded, gone
    reason: str = ""  # dead


GONE = LastJob("gone")  # succeeded or removed, and nothing was kept of it


def last_jobs(database: Database, ids: Iterable[int]) -> dict[int, LastJob]:
    """Return what became of these jobs; those of which nothing was kept are missing."""
    rows = database.rows(statement("last_job_outcomes"), {"ids": list(ids)})
    return {
        job_id: LastJob("retrying" if status == "scheduled" and attempts else status, reason)
        for job_id, status, attempts, reason in rows
    }


def _log_names(what: str, by: str, rows: list[tuple[Any, ...]]) -> list[str]:
    names = sorted(name for (name,) in rows)
    if names:
        logger.info("%s by %s: schedules %s", what, by or UNNAMED, names)
    return names
