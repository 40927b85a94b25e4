"""manage.py pgqueue_jobs, as tests type it, and jobs for it."""

import io

import pytest
from django.core.management import CommandError, call_command

import tests.app.tasks as app
from django_pgqueue.jobs import kill
from django_pgqueue.models import Job
from tests.support.many import enqueued_ids


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def jobs(*words: object, **streams: io.StringIO) -> str:
    """Run the command; return what it prints."""
    out = io.StringIO()
    call_command("pgqueue_jobs", *map(str, words), stdout=out, **streams)
    return out.getvalue()


def refused(*words: object) -> str:
    """Run the command, which does not do all of it; return its complaint."""
    with pytest.raises(CommandError) as raised:
        jobs(*words)
    return str(raised.value)


def dead(number=1, **options) -> list[int]:
    ids = enqueued_ids(app.record.using(**options), [("x",)] * number)
    return sorted(kill(ids, by="eve").dead)


def ids_of(model) -> list[int]:
    return list(model.objects.order_by("pk").values_list("pk", flat=True))


def finish(sql) -> int:
    job_id = app.noop.enqueue().id
    sql(
        "INSERT INTO pgqueue_succeeded_jobs (id, task, queue, run_at, enqueued_at, first_started_at, started_at, "
        "worker_id, run_seconds, priority, attempts, lost, backend, args, kwargs, metadata, errors) "
        "SELECT id, task, queue, run_at, now(), now(), now(), 1, 0.25, 0, 1, 0, '', args, kwargs, metadata, errors "
        "FROM pgqueue_jobs WHERE id = %s",
        job_id,
    )
    Job.objects.filter(pk=job_id).delete()
    return job_id
