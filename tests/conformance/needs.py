"""Features of some backends only: tests of it are skipped for the others, with a reason."""

import pytest

from tests.conformance import DRIVER
from tests.conformance.compat import FORWARDS_OPTIONS, PICKLES, task_backends
from tests.conformance.drivers import Driver, Dummy, Immediate, PgQueue, TasksDb
from tests.support.needs import DJANGO_61, NOT_DJANGO_60, reason, with_backend

OF_ANOTHER = "another.Backend"


def needs(claim: object, what: str, backend: str = OF_ANOTHER) -> pytest.MarkDecorator:
    """Skip a test without ``what``, which that backend has."""
    return pytest.mark.skipif(not claim, reason=reason(f"needs a backend {what}", with_backend(backend)))


def flag(name: str) -> pytest.MarkDecorator:
    return needs(getattr(task_backends["default"], name), f"with {name}", PgQueue.backend)


def without(name: str, backend: str = OF_ANOTHER) -> pytest.MarkDecorator:
    return needs(not getattr(task_backends["default"], name), f"without {name}", backend)


defer = flag("supports_defer")
async_tasks = flag("supports_async_task")
results = flag("supports_get_result")
priority = flag("supports_priority")
no_priority = without("supports_priority")
no_defer = without("supports_defer", Immediate.backend)
no_async_tasks = without("supports_async_task")
no_results = without("supports_get_result", Dummy.backend)
runs = needs(DRIVER.command or DRIVER.runs_at_once, "that runs tasks", PgQueue.backend)
worker = needs(DRIVER.command, "with workers", PgQueue.backend)
retries = needs(DRIVER.retrying is not None, "that retries", PgQueue.backend)
later = needs(not DRIVER.runs_at_once, "whose tasks run later", PgQueue.backend)
database = needs(DRIVER.in_database, "whose tasks are rows of this database", PgQueue.backend)
own_app = needs(DRIVER.apps and DRIVER.apps[-1] != "django_tasks", "that brings an app", TasksDb.backend)
bulk = needs(type(DRIVER).enqueue_many is not Driver.enqueue_many, "that enqueues many at once", PgQueue.backend)
runs_at_once = needs(DRIVER.runs_at_once, "that runs tasks at once", Immediate.backend)

forwarding = pytest.mark.skipif(not FORWARDS_OPTIONS, reason=NOT_DJANGO_60)
pickling = pytest.mark.skipif(not PICKLES, reason=DJANGO_61)
