"""What a list says of a job, as JSON and as text. Arguments are left out, and of errors all but their class."""

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import Model
from django.utils import timezone

from django_pgqueue.jobs.search import Source
from django_pgqueue.models import DeadJob, FinishedJob, Job
from django_pgqueue.staff.terminal import columns
from django_pgqueue.states import DEAD, FINISHED

MODELS: dict[Source, type[Model]] = {Source.LIVE: Job, Source.DEAD: DeadJob, Source.FINISHED: FinishedJob}

HEAVY = ("args", "kwargs", "metadata", "progress")

Row = dict[str, Any]

HEAD = ("id", "status", "queue", "priority", "attempts", "when", "task", "error")


def rows_of(source: Source, ids: Sequence[int], alias: str) -> list[Row]:
    """Return a row for each of these jobs that is there still, in the order of the ids."""
    model: Any = MODELS[source]
    jobs = model.objects.using(alias).filter(pk__in=ids).defer(*HEAVY).order_by("pk")
    return [row_of(job) for job in jobs]


def row_of(job: Any) -> Row:
    """Return what is said of a job from any of the three tables."""
    row = {
        "id": job.pk,
        "status": status_of(job),
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "attempts": job.attempts,
        "error": error_of(job),
        "enqueued_at": job.enqueued_at,
        "run_at": job.run_at,
    }
    if isinstance(job, DeadJob):
        row |= {"reason": job.reason, "died_at": job.died_at}
    if isinstance(job, FinishedJob):
        row |= {"finished_at": job.finished_at}
    return row


def status_of(job: Any) -> str:
    """Return the word for where a job is, whichever table that is in."""
    if isinstance(job, DeadJob):
        return DEAD
    return FINISHED if isinstance(job, FinishedJob) else str(job.status)


def error_of(job: Any) -> str | None:
    """Return the class of the last error in the history."""
    last = job.errors[-1] if isinstance(job.errors, list) and job.errors else None
    return str(last["error"]) if isinstance(last, dict) and last.get("error") else None


def table(rows: Iterable[Row]) -> str:
    """Return rows as lines of columns, below a head."""
    return columns(HEAD, map(_cells, rows))


def _cells(row: Row) -> Sequence[Any]:
    status = f"{row['status']} ({row['reason']})" if "reason" in row else row["status"]
    when = row.get("died_at") or row.get("finished_at") or row["run_at"]
    rest = (f"{local(when):%Y-%m-%d %H:%M:%S}", row["task"], row["error"] or "")
    return (row["id"], status, row["queue"], row["priority"], row["attempts"], *rest)


def local(at: dt.datetime) -> dt.datetime:
    """Return an instant in the time zone of the settings."""
    return timezone.localtime(at) if timezone.is_aware(at) else at
