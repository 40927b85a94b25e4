"""Stories of jobs, in words."""

import datetime as dt

from django_pgqueue.insights.explain import find, why
from django_pgqueue.insights.formatting import text_of
from django_pgqueue.insights.history import lines, timeline
from django_pgqueue.jobs.ack import write
from django_pgqueue.jobs.claim import claim
from django_pgqueue.records import Fate, Outcome

HOUR = dt.timedelta(hours=1)
MINUTE = dt.timedelta(minutes=1)


def told(job_id: int) -> str:
    return "\n".join(text_of(sentence) for sentence in why(find(job_id, "default"), "default"))


def kinds(job_id: int) -> list[str]:
    return [step.kind for step in timeline(find(job_id, "default"))]


def events(job_id: int) -> list[str]:
    """Leave out the waits between: some of them are too short to be told of."""
    return [kind for kind in kinds(job_id) if kind not in {"wait", "backoff"}]


def steps(job_id: int) -> str:
    return "\n".join(lines(timeline(find(job_id, "default"))))


def fails(queue, job_id: int, *, fate=Fate.RETRIED, **values) -> None:
    """Let the next attempt of a job fail, after three seconds, as its worker tells it."""
    [job] = [job for job in claim(queue, "default", limit=100, worker_id=7) if job.id == job_id]
    error = {"kind": "failed", "error": "ValueError", "message": "no luck", "traceback": "Traceback"}
    [written] = [write(queue, [Outcome(job, fate, run_seconds=3.0, delay_seconds=60.0, error=error, **values)])]
    assert not written.stale
