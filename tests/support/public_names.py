"""The public names of the package, by what its public modules say."""

import importlib
from typing import Any

MODULES = (
    *("", "jobs", "queues", "schedules", "workers", "workflows", "exceptions", "signals", "states"),
    *("conf", "logs", "middleware", "testing", "backend"),
)
"""Modules whose ``__all__`` is public; the first is the package itself."""


def module(name: str) -> Any:
    return importlib.import_module(f"django_pgqueue.{name}".rstrip("."))


def public_names() -> list[str]:
    """Return them as they are written below the package: ``task``, ``jobs.kill``."""
    return [f"{name}.{one}".lstrip(".") for name in MODULES for one in module(name).__all__]
