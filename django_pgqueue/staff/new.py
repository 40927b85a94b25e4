"""Enqueue a job by the words of the command line, for cron and CI."""

from typing import Any

from django.core.management.base import CommandError

from django_pgqueue import registry
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.results.handle import JobHandle
from django_pgqueue.tasks import enqueue_one

OPTIONS = (
    "queue",
    "priority",
    "max_attempts",
    "timeout",
    "run_at",
    "expires",
    "unique_key",
    "unique_scope",
    "unique_for",
    "on_conflict",
    "concurrency_key",
    "concurrency_limit",
    "fair_key",
    "metadata",
)
"""Those of ``using()`` that have the same name here."""


def enqueue_from(options: dict[str, Any]) -> JobHandle:
    """Enqueue the job.

    Raises:
        CommandError: there is no such task, or what it was given cannot be.
    """
    wanted = {name: options[name] for name in OPTIONS if options[name] is not None}
    try:
        task = registry.get(options["name"]).using(**wanted, database=options["database"])
        return enqueue_one(task, tuple(options["job_args"]), options["job_kwargs"])
    except PgQueueError as error:
        raise CommandError(str(error)) from error
