from collections.abc import Iterable
from typing import NamedTuple

from django_pgqueue.admin.parts.formatting import brief, label, moment
from django_pgqueue.admin.parts.links import Links
from django_pgqueue.insights.schedule_info import Run, aware
from django_pgqueue.states import DEAD, FINISHED, NEVER, label_of

MODELS = {DEAD: "deadjob", FINISHED: "finishedjob"}


class ToldRun(NamedTuple):
    """One job of a schedule, as its page tells of it."""

    id: int
    page: str
    due: str
    outcome: str
    error: str
    waited: str
    took: str
    attempts: int


def told_runs(runs: Iterable[Run], links: Links) -> list[ToldRun]:
    """Return what is told of the jobs of a schedule."""
    return [_told(run, links) for run in runs]


def page_of_job(job_id: int, status: str, links: Links) -> str:
    """Return where the page of a job is, by what became of it."""
    return links.to_row(MODELS.get(status, "job"), job_id)


def _told(run: Run, links: Links) -> ToldRun:
    has_started = aware(run.started_at) != NEVER
    waited = max((run.started_at - run.run_at).total_seconds(), 0.0) if has_started else None
    return ToldRun(
        id=run.id,
        page=page_of_job(run.id, run.status, links),
        due=moment(run.run_at),
        outcome=label(run.reason or run.status, label_of(run.status, run.reason)),
        error=run.error or "",
        waited="-" if waited is None else brief(waited),
        took="-" if run.run_seconds is None else brief(run.run_seconds),
        attempts=run.attempts,
    )
