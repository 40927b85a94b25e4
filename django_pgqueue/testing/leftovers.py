"""Jobs that a test leaves behind although they could have been run."""

from collections.abc import Collection

from django.db import connections
from django.db.models.functions import Now

from django_pgqueue.conf import conf
from django_pgqueue.models import Job
from django_pgqueue.testing.asserting import listed, many, to_run
from django_pgqueue.testing.connection import is_broken
from django_pgqueue.testing.expected import show

Ids = Collection[int]


def due_jobs() -> list[Job]:
    """Return the jobs that are to run now; none where a broken transaction keeps anybody from looking."""
    if is_broken(connections[conf.database]):
        return []
    return list(to_run(conf.database).filter(run_at__lte=Now()))


def complaint(before: Ids) -> str:
    """Return what is to be said about jobs that are due and were not among these; nothing where there are none."""
    left = [job for job in due_jobs() if job.pk not in before]
    if not left:
        return ""
    head = f"The test has left {many(len(left))} behind to run now. Run them, or mark the test with pgqueue_leftovers:"
    return "\n".join([head, *listed([f"  {show(job)}" for job in left])])
