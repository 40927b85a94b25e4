"""Backends in TASKS, and modules of tasks that are imported anew."""

import importlib
import sys

import pytest

from django_pgqueue import registry
from django_pgqueue.apps import _task_modules
from django_pgqueue.backend import PgQueueBackend

MODULE = "tests.app.elsewhere"


@pytest.fixture
def fresh():
    """As in a process that has not imported the module yet."""

    def forget():
        sys.modules.pop(MODULE, None)
        for name in [name for name in registry.known() if name.startswith(f"{MODULE}.")]:
            del registry._registry[name]

    forget()
    yield
    forget()


@pytest.fixture
def task_modules(settings):
    """Let the alias ``patient`` name these modules, and the app load what it loads at the start of a process."""

    def load(modules):
        options = settings.TASKS["patient"]["OPTIONS"] | {"task_modules": modules}
        settings.TASKS = settings.TASKS | {"patient": settings.TASKS["patient"] | {"OPTIONS": options}}
        for module in _task_modules():
            importlib.import_module(module)

    return load


def problems(**changes) -> dict[str, str]:
    given = {"BACKEND": "django_pgqueue.backend.PgQueueBackend", **changes}
    return {message.id: f"{message.msg} {message.hint}" for message in PgQueueBackend("mail", given).check()}
