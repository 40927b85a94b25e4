"""Dead jobs that are to be retried."""

import tests.app.tasks as app
from django_pgqueue.jobs import kill
from django_pgqueue.models import DeadJob


def dead(task=app.record, *args, errors=None, **kwargs) -> int:
    job_id = task.enqueue(*args, **kwargs).id
    kill([job_id], by="eve")
    if errors is not None:
        DeadJob.objects.filter(pk=job_id).update(errors=errors)
    return job_id
