"""Shared fixtures of the tests of the contract. They ask the backend only what the contract defines."""

import copy
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from django_pgqueue import registry
from tests.conformance import DRIVER
from tests.conformance.compat import SIGNALS, task_backends
from tests.conformance.trace import VARIABLE, Trace
from tests.support.waiting import eventually
from tests.support.workers import Worker

MOST_DEAD = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let pytest know the options; tests/conformance/drivers.py has read them by now."""
    parser.addoption(
        "--backend", help="dotted path of the django.tasks backend to test (default: that of django-pgqueue)"
    )
    parser.addoption("--driver", help="dotted path of a driver for it, if it is not one of those in drivers.py")


def pytest_report_header() -> str:
    return f"conformance: {DRIVER.backend}"


@pytest.fixture(scope="session", autouse=True)
def _coroutine_functions_are_declared() -> None:
    """Declare them before all tests, whichever comes first; a backend that runs none refuses them."""
    if task_backends["default"].supports_async_task:
        importlib.import_module("tests.conformance.async_tasks")


@pytest.fixture(autouse=True)
def _declared_here_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the tasks that a test declares; other backends than ours register nothing there."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))


@pytest.fixture
def alias(settings) -> Callable[..., None]:
    """Change the settings of an alias for this test."""

    def change(name: str = "default", **changes: Any) -> None:
        tasks = copy.deepcopy(django_settings.TASKS)
        tasks[name] = tasks.get(name, tasks["default"]) | changes
        settings.TASKS = tasks

    return change


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trace:
    """What happens from here on, in this process and in those that it starts."""
    path = tmp_path / "trace"
    monkeypatch.setenv(VARIABLE, str(path))
    return Trace(path)


@pytest.fixture
def heard() -> Iterator[list[tuple[str, Any, Any]]]:
    """Signals sent in this process, as (name, sender, result as it was then)."""
    calls: list[tuple[str, Any, Any]] = []

    def receiver(name: str) -> Callable[..., None]:
        return lambda sender, task_result, **_: calls.append((name, sender, copy.deepcopy(task_result)))

    receivers = {name: receiver(name) for name in SIGNALS}
    for name, signal in SIGNALS.items():
        signal.connect(receivers[name])
    yield calls
    for name, signal in SIGNALS.items():
        signal.disconnect(receivers[name])


class Workers:
    """Processes of the backend's worker command, on the test database."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Worker] = []

    def start(self, options: tuple[str, ...], **environment: str) -> Worker:
        log = self.folder / f"worker-{len(self.started)}.log"
        environment = DRIVER.environment | environment
        worker = Worker(options, environment, log=log, command=DRIVER.command)
        self.started.append(worker)
        return worker

    def serve(self, options: tuple[str, ...] = DRIVER.serving, **environment: str) -> Worker:
        worker = self.start(options, **environment)
        eventually(lambda: DRIVER.ready in worker.text() or worker.must_live())
        return worker

    def until_idle(self, **environment: str) -> list[str]:
        """Let everything run that is due, one task after the other; return the logs of workers that did not survive.

        Another one is started then, as those who watch over processes do.
        """
        logs = []
        for options in DRIVER.until_idle:
            while (worker := self.start(options, **environment)).wait():
                logs.append(worker.text())
                assert len(logs) < MOST_DEAD, logs[-1]
        return logs

    def end(self) -> None:
        for worker in self.started:
            worker.end()


@pytest.fixture
def workers(transactional_db, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(tmp_path)
    yield workers
    workers.end()


@pytest.fixture(scope="module")
def batch(
    django_db_setup, django_db_blocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Workers, Trace]]:
    """For tests of one module that share one run of the worker: what they enqueue is committed, and removed at the end.

    Starting a worker takes longer than all that it runs here.
    """
    from django.core.management import call_command

    folder = tmp_path_factory.mktemp("batch")
    trace = Trace(folder / "trace")
    workers = Workers(folder)
    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock():
        patch.setenv(VARIABLE, str(trace.path))
        try:
            yield workers, trace
        finally:
            workers.end()
            call_command("flush", verbosity=0, interactive=False, inhibit_post_migrate=False)
