"""Jobs of Django's Tasks framework whose task is not registered: their backend may know where it is."""

import json
from typing import Any

from django_pgqueue.base.exceptions import ConfigurationError
from django_pgqueue.base.records import ClaimedJob
from django_pgqueue.tasks import Task


def sought(job: ClaimedJob) -> Task[..., Any] | None:
    """Return the task of a job as its backend finds it, which may import a module; None where it does not."""
    alias = json.loads(job.rest or "{}").get("backend")
    if not alias:
        return None
    try:
        from django_pgqueue.base.framework import InvalidTaskBackend, task_backends  # noqa: PLC0415 - may be missing
    except ConfigurationError:
        return None
    try:
        backend = task_backends[alias]
    except InvalidTaskBackend:
        return None
    find_task = getattr(backend, "find_task", None)  # other people's backends have none
    return find_task(job.task) if find_task else None
