"""Jobs of Django's Tasks framework whose task is not registered: their backend may know where it is."""

import logging

from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.log_lines import fields
from django_pgqueue.records import ClaimedJob
from django_pgqueue.registry import TaskDefinition
from django_pgqueue.stored_values import read_object

logger = logging.getLogger("django_pgqueue")


def sought(job: ClaimedJob) -> TaskDefinition | None:
    """Return the task of a job as its backend finds it; None where it does not.

    Called by the pump, which must outlive whatever stands in a row.
    """
    alias = read_object(job.rest).get("backend")
    try:
        return find_at(job.task, alias) if alias else None
    except Exception:
        logger.exception("The backend %s cannot find the task %s of job %s", alias, job.task, job.id, extra=fields(job))
        return None


def find_at(name: str, alias: str) -> TaskDefinition | None:
    """Return the task of this name as the backend with this alias in ``TASKS`` finds it; None where it does not."""
    try:
        from django_pgqueue.framework import InvalidTaskBackend, task_backends  # noqa: PLC0415 - may be missing
    except ConfigurationError:
        return None
    try:
        backend = task_backends[alias]
    except InvalidTaskBackend:
        return None
    find_task = getattr(backend, "find_task", None)  # other people's backends have none
    return find_task(name) if find_task else None
