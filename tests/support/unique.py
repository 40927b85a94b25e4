"""Jobs with a unique key, and how their runs end."""

import datetime as dt

from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.jobs import ack, claim
from django_pgqueue.records import Fate, Outcome, Receipt

HOUR = dt.timedelta(hours=1)


def enqueue(label="x", *, key="k", after=None, **options):
    """Enqueue a job that is due after a time from now, or before now."""
    if after is not None:
        options |= {"delay": after} if after >= dt.timedelta() else {"run_at": timezone.now() + after}
    return app.record.using(unique_key=key, **options).enqueue(label)


def succeed(queue, job) -> None:
    assert ack.write(queue, [Outcome(job, Fate.SUCCEEDED, result='"done"')]) == Receipt()


def fail(queue, job, *, delay_seconds=3600.0) -> None:
    outcome = Outcome(job, Fate.RETRIED, delay_seconds=delay_seconds, error={"error": "ValueError"})
    assert ack.write(queue, [outcome]) == Receipt()


def claimed(queue):
    return claim.claim(queue, "default", limit=1, worker_id=1)
