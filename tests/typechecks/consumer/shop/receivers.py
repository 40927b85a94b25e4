"""Receivers of the signals, a policy of one's own, and the backend of Django's Tasks framework."""

import contextlib
from collections.abc import Generator
from typing import Any, assert_type

from django.dispatch import receiver

from django_pgqueue import Call, CurrentJob, Task, enqueue_many
from django_pgqueue.backend import PgQueueBackend, PgQueueTask
from django_pgqueue.logs import JobFields
from django_pgqueue.middleware import NewJobs
from django_pgqueue.signals import JobEvent, job_died, job_enqueued
from shop.tasks import pack


@receiver(job_died, sender=pack)
def tell(sender: Task[..., Any] | None, event: JobEvent, **_: Any) -> None:
    print(sender, event.id, event.attempt, event.reason, event.error, event.args, event.kwargs)


job_enqueued.connect(tell)
job_died.connect(tell, sender=pack.using(queue="x"))


class Tenant:
    @contextlib.contextmanager
    def enqueue(self, jobs: NewJobs) -> Generator[None]:
        jobs.metadata["tenant"] = len(jobs.calls)
        yield
        print(jobs.task, jobs.options.queue, jobs.ids)

    @contextlib.contextmanager
    def run(self, job: CurrentJob) -> Generator[None]:
        print(job.metadata.get("tenant"))
        yield


class QuietBackend(PgQueueBackend):
    supports_priority = False


def later(task: PgQueueTask) -> PgQueueTask:
    assert_type(task.bind(7), Call[Any])
    enqueue_many([task.bind(7), pack.bind(7)])
    return task.using(priority=10, unique_key="once")


fields = JobFields()
