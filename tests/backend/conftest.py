"""Fixtures of the tests of the backend."""

import copy

import pytest

from django_pgqueue import registry
from django_pgqueue.framework import (
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)


@pytest.fixture
def backend():
    return task_backends["default"]


@pytest.fixture
def heard():
    """The signals sent from here on, each with a copy of its result."""
    calls = []
    names = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    receivers = {}
    for name, signal in names.items():

        def receiver(sender, task_result, name=name, **_):
            calls.append((name, sender, copy.deepcopy(task_result)))

        receivers[name] = receiver
        signal.connect(receiver)
    yield calls
    for name, signal in names.items():
        signal.disconnect(receivers[name])


@pytest.fixture
def own_registry(monkeypatch):
    """What is declared here is gone afterwards."""
    monkeypatch.setattr(registry, "_registry", dict(registry._registry))
    monkeypatch.setattr(registry, "_aliases", dict(registry._aliases))


@pytest.fixture
def alias_with(settings):
    """Give the alias ``patient`` other options."""

    def change(**options):
        settings.TASKS = settings.TASKS | {"patient": settings.TASKS["patient"] | {"OPTIONS": options}}

    return change
