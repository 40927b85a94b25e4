"""Counts of what is enqueued during a test."""

import pytest

from django_pgqueue.signals import job_enqueued
from django_pgqueue.worker.metrics import on_enqueued


@pytest.fixture
def counted(monkeypatch):
    """Count what is enqueued during a test."""
    monkeypatch.setattr(job_enqueued, "receivers", list(job_enqueued.receivers))
    numbers: list[tuple[str, str, int]] = []
    on_enqueued(lambda *what: numbers.append(what))
    return numbers
