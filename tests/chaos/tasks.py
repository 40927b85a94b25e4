"""What the jobs of a soak do. Each is called with a key of its own first, and marks what becomes of the run."""

import asyncio
import contextlib
import time
from collections.abc import Iterator

from django_pgqueue import Discard, RetryLater, current_job, task
from tests.chaos.marks import DISCARD, END, LATER, RAISE, START, mark
from tests.chaos.models import Effect


@contextlib.contextmanager
def marked(key: int) -> Iterator[None]:
    mark(START, key)
    try:
        yield
    except BaseException as error:
        mark({Discard: DISCARD, RetryLater: LATER}.get(type(error), RAISE), key)
        raise
    mark(END, key)


@task(backoff=0.2)
def plain(key: int, seconds: float = 0.0) -> None:
    with marked(key):
        if seconds:
            time.sleep(seconds)


@task(backoff=0.2)
async def coroutine(key: int, seconds: float = 0.0) -> None:
    with marked(key):
        await asyncio.sleep(seconds)


@task(atomic=True, backoff=0.2)
def effect(key: int, seconds: float = 0.0) -> None:
    with marked(key):
        Effect.objects.create(key=key)
        if seconds:
            time.sleep(seconds)


@task(max_attempts=1)
def once(key: int, seconds: float = 0.0) -> None:
    with marked(key):
        if seconds:
            time.sleep(seconds)


@task(max_attempts=8, backoff=0.1)
def flaky(key: int, failures: int) -> None:
    with marked(key):
        if current_job().attempt <= failures:
            raise RuntimeError("not yet")


@task(max_attempts=3, backoff=0.1)
def doomed(key: int) -> None:
    with marked(key):
        raise RuntimeError("never")


@task
def discarded(key: int) -> None:
    with marked(key):
        raise Discard("no such order")


@task
def later(key: int, until: float) -> None:
    """Put itself off until an instant, in seconds since 1970."""
    with marked(key):
        if time.time() < until:
            raise RetryLater(0.3, "not before its time")
