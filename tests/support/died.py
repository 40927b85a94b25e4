"""Jobs that have died of an error, as a worker writes that, and what their histories say."""

import tests.app.tasks as app
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.insights.history import title_of
from django_pgqueue.jobs.dead_letter import DeadLetter, dead_letter
from django_pgqueue.states import DeathReason
from tests.support.many import enqueued_ids


def died(queue: QueueConnection, number: int = 1) -> list[int]:
    ids = enqueued_ids(app.record.using(priority=3, max_attempts=4), [("x",)] * number)
    entry = {"kind": "failed", "error": "ValueError"}
    dead_letter(queue, [DeadLetter(job_id, 0, DeathReason.EXHAUSTED, entry) for job_id in ids])
    return ids


def titles(job) -> list[str]:
    return [title_of(entry) for entry in job.errors]
