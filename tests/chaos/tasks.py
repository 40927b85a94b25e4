"""Tasks of the jobs of a soak.

Most are called with a key of their own first, and mark what becomes of the run. Those at the end have queues of their
own, and leave notes.
"""

import asyncio
import contextlib
import datetime as dt
import functools
import math
import random
import re
import time
from collections.abc import Iterator
from typing import Any

from django_pgqueue import Discard, Limit, Snooze, Unique, current_job, periodic, task
from tests.chaos import flows
from tests.chaos.marks import DISCARD, END, LATER, RAISE, START, mark, note, now
from tests.chaos.models import Document, Effect


@contextlib.contextmanager
def marked(key: int) -> Iterator[None]:
    mark(START, key)
    try:
        yield
    except BaseException as error:
        mark({Discard: DISCARD, Snooze: LATER}.get(type(error), RAISE), key)
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
            raise Snooze(0.3, "not before its time")


@task(backoff=0.2)
def hog(key: int, seconds: float) -> None:
    """Let no other thread of the process run for about so long: the search of a match does not let go of the GIL."""
    with marked(key):
        re.match(BACKTRACKING, "a" * (LETTERS + round(math.log2(max(seconds / _seconds_of_search(), 1.0)))) + "b")


BACKTRACKING = "(a+)+$"
LETTERS = 16
"""With each letter more the search takes twice as long."""


@functools.cache
def _seconds_of_search() -> float:
    def measured() -> float:
        began = time.perf_counter()
        re.match(BACKTRACKING, "a" * LETTERS + "b")
        return time.perf_counter() - began

    return min(measured() for _ in range(3))


# With notes


@task(queue="search", unique=Unique("key", until="start"), limit=Limit("key"), max_attempts=50, backoff=0.2)
def refresh(key: int) -> None:
    """Read a document, and be slow to do something about it."""
    began_at = now()
    version = Document.objects.get(pk=key).version
    time.sleep(random.uniform(0, 0.3))
    note("saw", key, version, began_at)


@task(queue="reminders", unique="key", max_attempts=50, backoff=0.2)
def remind(key: int) -> None:
    note("reminded", current_job().id)


@task(queue=flows.QUEUE, atomic=True, max_attempts=8, backoff=0.1)
def step(key: int, stage: str, number: int, before: dict[str, int], how: dict[str, Any]) -> None:
    flows.do_step(key, stage, number, before, how)


@task(queue=flows.QUEUE, max_attempts=8, backoff=0.1)
def loose_step(key: int, stage: str, number: int, before: dict[str, int], how: dict[str, Any]) -> None:
    """The same, not atomic: it may take effect again where its outcome was lost."""
    flows.do_step(key, stage, number, before, how)


@periodic(name="mender", every=dt.timedelta(seconds=1))
@task(queue="ticks")
def mend() -> None:
    flows.mend()


@task(queue="poison")
def victim(value: object) -> None: ...


@periodic(name="sound", every=dt.timedelta(seconds=1), catch_up="all", catch_up_limit=10_000)
@periodic(name="sound too", every=dt.timedelta(seconds=3), catch_up="all", catch_up_limit=10_000)
@task(queue="ticks")
def tick() -> None: ...


def no_key() -> str:
    raise RuntimeError("no key")


def key_from_elsewhere() -> str:
    return str(Document.objects.using("away").count())


@periodic(name="broken: raises", every=dt.timedelta(seconds=1))
@task(queue="ticks", unique=no_key)
def never() -> None: ...


@periodic(name="broken: unreachable", every=dt.timedelta(seconds=1))
@task(queue="ticks", unique=key_from_elsewhere)
def never_either() -> None: ...
