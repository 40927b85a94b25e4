"""What only some backends can do: tests of it are skipped for the others, with a reason."""

import pytest

from tests.conformance import DRIVER
from tests.conformance.compat import FORWARDS_OPTIONS, PICKLES, task_backends
from tests.conformance.drivers import Driver


def needs(claim: object, why: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not claim, reason=why)


def flag(name: str) -> pytest.MarkDecorator:
    return needs(getattr(task_backends["default"], name), f"{name} is False")


defer = flag("supports_defer")
async_tasks = flag("supports_async_task")
results = flag("supports_get_result")
priority = flag("supports_priority")
no_priority = needs(not task_backends["default"].supports_priority, "supports_priority is True")
no_defer = needs(not task_backends["default"].supports_defer, "supports_defer is True")
no_async_tasks = needs(not task_backends["default"].supports_async_task, "supports_async_task is True")
no_results = needs(not task_backends["default"].supports_get_result, "supports_get_result is True")
runs = needs(DRIVER.command or DRIVER.runs_at_once, "it runs nothing")
worker = needs(DRIVER.command, "it has no worker")
retries = needs(DRIVER.retrying is not None, "it runs no task a second time")
later = needs(not DRIVER.runs_at_once, "enqueue() runs the task")
database = needs(DRIVER.in_database, "its tasks are not rows of this database")

forwarding = needs(FORWARDS_OPTIONS, "@task of Django 6.0 takes no further keywords")
pickling = needs(PICKLES, "tasks can be pickled since Django 6.1")
own_app = needs(DRIVER.apps and DRIVER.apps[-1] != "django_tasks", "it brings no app")
bulk = needs(type(DRIVER).enqueue_many is not Driver.enqueue_many, "the contract has no word for many at once")
runs_at_once = needs(DRIVER.runs_at_once, "a worker runs it")
