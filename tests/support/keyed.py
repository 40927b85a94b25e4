"""Jobs with concurrency keys."""

import tests.app.tasks as app
from django_pgqueue import registry
from django_pgqueue.tasks import Task, task


def keyed(func=app.record.func, **options) -> Task:
    """Return a task that is not registered."""
    name = f"tests.keyed.{func.__name__}"
    declared = task(name=name, **options)(func)

    del registry._registry[name]  # declared here only
    return declared
