"""Dead jobs by cause: the address of their page, and jobs that died of something."""

import datetime as dt

from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.jobs import kill
from django_pgqueue.models import DeadJob

PAGE = "/admin/pgqueue/deadjob/causes/"
DEAD = "/admin/pgqueue/deadjob/"


def dead(error="ValueError", message="no luck", *, at: dt.datetime | None = None, **values) -> int:
    job_id = app.record.enqueue().id
    kill([job_id], by="ann")
    values = {"reason": "exhausted", "errors": [{"error": error, "message": message}], **values}
    DeadJob.objects.filter(pk=job_id).update(died_at=at or timezone.now(), **values)
    return job_id
