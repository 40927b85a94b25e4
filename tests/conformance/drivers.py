"""Drivers of the backends: the settings that each needs, and the command of its worker.

A driver is a subclass of :class:`Driver`. Settings import this module, so it must not need Django to be set up.
"""

import argparse
import importlib
import os
from typing import Any

import django

OURS = "django_pgqueue.backend.PgQueueBackend"
BACKPORT = ("django_tasks",) if django.VERSION < (6, 0) else ()

# In the environment of a worker: what has changed in its settings.
WITHOUT_QUEUES = "CONFORMANCE_WITHOUT_QUEUES"
MORE_APPS = "CONFORMANCE_MORE_APPS"
MORE_MODULES = "CONFORMANCE_MORE_MODULES"  # with tasks


class Driver:
    """A backend that needs nothing and has no worker: only what can be seen without one is tested.

    Attributes:
        backend: its dotted path.
        apps: what it adds to ``INSTALLED_APPS``.
        options: the ``OPTIONS`` of each alias.
        retrying: further ``OPTIONS``, by which a task whose worker died is run a second time; None: it cannot be done.
        runs_at_once: whether ``enqueue`` runs the task, and returns a result that is finished.
        in_database: whether tasks are rows of the database ``default``, and join the caller's transaction.
        command: the management command that is its worker.
        until_idle: for each worker that it takes, the options with which it ends when nothing is due any more. It
            serves all queues and runs one task at a time; together they serve the aliases ``default`` and ``second``.
        serving: options with which a worker serves all queues of the alias ``default`` until it is told to stop.
        retrying_serving: the same for the alias ``retrying``.
        environment: for its worker, so that a dead one is noticed within a few seconds.
        ready: what the worker's log says when it can be told to stop.
        stopping: what it says when it has been told.
    """

    backend = ""
    apps: tuple[str, ...] = ()
    options: dict[str, Any] = {}
    retrying: dict[str, Any] | None = None
    runs_at_once = False
    in_database = False
    command: str | None = None
    until_idle: tuple[tuple[str, ...], ...] = ()
    serving: tuple[str, ...] = ()
    retrying_serving: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    ready = ""
    stopping = ""

    def __init__(self, backend: str = "") -> None:
        self.backend = backend or self.backend

    def enqueue_many(self, task: Any, calls: list[tuple[Any, ...]]) -> list[Any] | None:
        """Enqueue one task with many arguments at once and return the results; None where that cannot be done."""
        return None

    def installed(self) -> list[str]:
        """Return what to add to ``INSTALLED_APPS``."""
        return [*self.apps, "tests.conformance", *os.environ.get(MORE_APPS, "").split()]

    def tasks(self) -> dict[str, Any]:
        """Return the setting ``TASKS``."""

        def alias(*queues: str, **options: Any) -> dict[str, Any]:
            return {"BACKEND": self.backend, "QUEUES": list(queues), "OPTIONS": self.options | options}

        gone = set(os.environ.get(WITHOUT_QUEUES, "").split(","))
        return {
            "default": alias("default", "mail", *({"leaving"} - gone)),
            "second": alias("default", "second"),
            "open": alias(),
            "retrying": alias("default", **(self.retrying or {})),
        }


class PgQueue(Driver):
    backend = OURS
    apps = BACKPORT
    options = {
        "lease": 3,  # seconds, so that tests need not wait long
        "task_modules": ["tests.conformance.async_tasks", *os.environ.get(MORE_MODULES, "").split()],
    }
    retrying = {"max_attempts": 2, "backoff": 0}
    in_database = True
    command = "pgqueue_worker"
    until_idle = (("--drain", "--concurrency=1"),)
    serving = retrying_serving = ("--concurrency=2",)
    environment = {"LEASE_SECONDS": "3"}
    ready = "pgqueue worker"
    stopping = "Stopping on"

    def enqueue_many(self, task: Any, calls: list[tuple[Any, ...]]) -> list[Any]:
        results: list[Any] = task.enqueue_many(calls)
        return results


class TasksDb(Driver):
    """django-tasks-db. A worker of its serves one alias."""

    backend = "django_tasks_db.DatabaseBackend"
    apps = (*BACKPORT, "django_tasks_db")
    in_database = True
    command = "db_worker"
    serving = ("--queue-name=*", "--interval=0.1", "--no-startup-delay")
    until_idle = ((*serving, "--batch"), (*serving, "--batch", "--backend=second"))
    retrying_serving = (*serving, "--backend=retrying")
    ready = "Starting worker"
    stopping = "shutting down gracefully"


class Immediate(Driver):
    backend = "django.tasks.backends.immediate.ImmediateBackend"
    apps = BACKPORT
    runs_at_once = True


class BackportImmediate(Immediate):
    backend = "django_tasks.backends.immediate.ImmediateBackend"


class Dummy(Driver):
    backend = "django.tasks.backends.dummy.DummyBackend"
    apps = BACKPORT


class BackportDummy(Dummy):
    backend = "django_tasks.backends.dummy.DummyBackend"


DRIVERS = {driver.backend: driver for driver in (PgQueue, TasksDb, Immediate, BackportImmediate, Dummy, BackportDummy)}


def chosen() -> Driver:
    """Return the driver that ``--backend`` and ``--driver`` name, or the environment; else ours.

    Settings are read before pytest has looked at its options, so this looks first, and leaves in the environment what
    it found: for pytest-xdist's processes, and for the workers that tests start.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("backend", "driver"):
        variable = f"CONFORMANCE_{name.upper()}"
        parser.add_argument(f"--{name}")
        if variable not in os.environ:
            given = getattr(parser.parse_known_args()[0], name)
            os.environ[variable] = given or ""
    backend, driver = os.environ["CONFORMANCE_BACKEND"], os.environ["CONFORMANCE_DRIVER"]
    if driver:
        module, _, name = driver.rpartition(".")
        kind: type[Driver] = getattr(importlib.import_module(module), name)
        return kind(backend)
    return DRIVERS.get(backend or OURS, Driver)(backend)
