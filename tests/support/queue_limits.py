"""Claims from queues with limits, and the time that passes there."""

import datetime as dt

from django.db import connection

from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import send_limited
from django_pgqueue.records import Fate, Outcome

HOUR = dt.timedelta(hours=1)


def take(database, *, limit=100, name="default"):
    """Claim from a limited queue; return the jobs, and what is left there."""
    with database.transaction():
        claimed = send_limited(database, name, limit=limit, worker_id=1)
    return claimed.jobs(), claimed.left()


def finish(database, jobs):
    assert not ack.write(database, [Outcome(job, Fate.SUCCEEDED) for job in jobs]).stale


def pass_by(seconds):
    """Let so much time pass for buckets and pauses."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_queues SET tokens_at = tokens_at - passed.by, resume_at = resume_at - passed.by "
            "FROM (SELECT make_interval(secs => %s) AS by) AS passed",
            [seconds],
        )
