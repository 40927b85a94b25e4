"""Jobs of each kind, as the pages of the admin show them."""

import datetime as dt

from django.contrib.admin.models import LogEntry
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.jobs import kill
from django_pgqueue.models import DeadJob, Job, Worker

JOBS = "/admin/pgqueue/job/"
DEAD = "/admin/pgqueue/deadjob/"
SUCCEEDED = "/admin/pgqueue/succeededjob/"

HOUR = dt.timedelta(hours=1)


def queued(label="x", **options) -> int:
    return app.record.using(**options).enqueue(label).id


def scheduled(**options) -> int:
    return app.record.using(delay=HOUR, **options).enqueue().id


def running(**values) -> int:
    worker = Worker.objects.create(
        supervisor_id=1, lease_until=timezone.now() + HOUR, pid=4711, concurrency=4, host="web-7", version="1"
    )
    values = {"task": "tests.app.tasks.sleep", "attempts": 1, "started_at": timezone.now(), **values}
    return Job.objects.create(status="running", lease_token=99, worker_id=worker.pk, **values).pk


def dead(**values) -> int:
    job_id = queued()
    kill([job_id], by="ann")
    DeadJob.objects.filter(pk=job_id).update(**values)
    return job_id


def entries() -> list[tuple[str, str, str, str]]:
    return [
        (entry.object_id, entry.content_type.model, entry.change_message, entry.user.username)
        for entry in LogEntry.objects.order_by("pk")
    ]
