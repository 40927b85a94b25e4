"""Pauses of a thread after passes that fail."""

from django.db import OperationalError

from django_pgqueue.services import ServiceRunner


def fail() -> float:
    raise OperationalError("The server is away.")


def pauses(loop: ServiceRunner) -> list[float]:
    """Return the longest pauses, after many failures."""
    return [loop._guarded_pass() for _ in range(12)]
