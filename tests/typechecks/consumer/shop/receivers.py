"""Receivers of the signals, a policy of one's own, and the backend of Django's Tasks framework."""

from typing import Any

from django.dispatch import receiver

from django_pgqueue.backend import PgQueueBackend, PgQueueTask
from django_pgqueue.logs import JobFields
from django_pgqueue.records import ClaimedJob, Outcome
from django_pgqueue.signals import job_died, job_enqueued


@receiver(job_died)
def tell(sender: str | None, job: ClaimedJob, outcome: Outcome, **_: Any) -> None:
    print(sender, job.id, job.attempt, outcome.reason, outcome.error)


job_enqueued.connect(tell)


class QuietBackend(PgQueueBackend):
    supports_priority = False


def later(task: PgQueueTask) -> PgQueueTask:
    return task.using(priority=10, unique_key="once")


fields = JobFields()
