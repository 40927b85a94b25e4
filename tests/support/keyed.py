"""Tasks and jobs with keys."""

import tests.app.tasks as app
from django_pgqueue import Limit, registry
from django_pgqueue.models import Job
from django_pgqueue.tasks import Task, task


def keyed(func=app.record.func, *, name="", **options) -> Task:
    """Return a task that is not registered."""
    name = name or f"tests.keyed.{func.__name__}"
    declared = task(name=name, **options)(func)

    del registry._registry[name]  # declared here only
    for alias in declared.aliases:
        del registry._aliases[alias]
    return declared


def limited(limit=1, key="k", task=app.noop, *, strict=False, **options):
    return task.using(limit_key=key, limit=Limit(running=limit, strict=strict), **options)


def admitted() -> list[int]:
    return sorted(Job.objects.exclude(concurrency_slot=None).values_list("id", flat=True))
