"""Settings of workers that note when each step of a pick-up was, for ``python -m benchmarks.latency --parts``."""

import functools
import time
from typing import Any

from django.apps import AppConfig

from benchmarks.settings import *  # noqa: F403
from benchmarks.settings import INSTALLED_APPS as APPS

INSTALLED_APPS = [*APPS[:-1], "benchmarks.marked.Marked"]


class Marked(AppConfig):
    name = "benchmarks"

    def ready(self) -> None:
        from django_pgqueue.worker.consumer import Consumer

        note_before(Consumer, "_hear", "heard")
        note_before(Consumer, "_claim", "asked")
        note_before(Consumer, "_accept_claim", "answered")


def note_before(owner: Any, method: str, mark: str) -> None:
    """Note the instant in which a method is called."""
    from benchmarks.tasks import marks

    original = getattr(owner, method)

    @functools.wraps(original)
    def noting(*args: Any, **kwargs: Any) -> Any:
        marks[mark] = time.monotonic_ns()
        return original(*args, **kwargs)

    setattr(owner, method, noting)
