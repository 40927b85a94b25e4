"""The end of slots, whose threads go on for as long as their process: no worker ends them, but a test does."""

import asyncio
import contextlib
import queue as stdlib_queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn
from unittest import mock

import pytest
from asgiref.sync import SyncToAsync
from django.db import connections
from django.db.backends.signals import connection_created

from django_pgqueue.jobs.claim import claim
from django_pgqueue.worker import slots as module
from django_pgqueue.worker.cleanup import watch_connections
from django_pgqueue.worker.shared_state import SharedState, now
from django_pgqueue.worker.slots import Lanes, Slots
from django_pgqueue.worker.timeouts import Timeouts
from tests.support.waiting import PATIENCE_SECONDS


@contextlib.contextmanager
def ended() -> Iterator[None]:
    """End all slots that are made here, with their threads and the connections of those."""
    made: list[Slots] = []
    init = Slots.__init__

    def noting(slots: Slots, *given: Any) -> None:
        init(slots, *given)
        made.append(slots)

    try:
        with mock.patch.object(Slots, "__init__", noting):
            yield
    finally:
        with mock.patch.object(threading, "excepthook", unless_left(threading.excepthook)):
            for slots in made:
                end(slots)


def unless_left(hook: Callable[[threading.ExceptHookArgs], object]) -> Callable[[threading.ExceptHookArgs], object]:
    """Hide SystemExit from pytest, which takes it for an error of a thread; Python does not."""
    return lambda given: None if given.exc_type is SystemExit else hook(given)


def end(slots: Slots) -> None:
    slots.begin = leave
    for _ in range(slots._threads):
        slots._inbox.put((0, None, None))
    end_lanes(slots._lanes)
    end_limits(slots._limits)
    join(slots)


def end_lanes(lanes: Lanes) -> None:
    """End the threads for sync code, and the loop, which SystemExit does not end."""
    for lane in lanes._lanes:
        if executor := SyncToAsync.context_to_thread_executor.pop(lane._sensitive, None):
            executor.submit(connections.close_all).result(PATIENCE_SECONDS)
            executor.shutdown()
    if lanes._loop is not None:
        asyncio.run_coroutine_threadsafe(cancel_tasks(), lanes._loop).result(PATIENCE_SECONDS)
        with mock.patch.object(module, "logger", mock.Mock(exception=leave)):  # called before the loop goes on
            lanes._loop.call_soon_threadsafe(leave)
            join(lanes)
        lanes._loop.close()


async def cancel_tasks() -> None:
    """Let every task of this loop end here.

    Else a garbage collection ends them, in whatever thread it runs; there asgiref would restore the context of a job.
    """
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for one in others:
            one.cancel()
        await asyncio.wait(others)


def end_limits(limits: Timeouts) -> None:
    limits._look = leave
    limits._woken.set()
    join(limits)


def leave(*_: object) -> NoReturn:
    """End this thread."""
    connections.close_all()
    raise SystemExit


def join(owner: Slots | Lanes | Timeouts) -> None:
    """Wait for the threads that run a method of ``owner``."""
    for thread in threading.enumerate():
        if getattr(getattr(thread, "_target", None), "__self__", None) is owner:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), f"not within {PATIENCE_SECONDS} s: the end of {thread}"


@pytest.fixture
def slots(transactional_db):
    watch_connections()
    shared = SharedState()
    shared.extend_lease(now() + 600)
    try:
        with ended():
            yield Slots(2, shared, stdlib_queue.SimpleQueue())
    finally:
        connection_created.disconnect(dispatch_uid="django_pgqueue.tidy")


@pytest.fixture
def give(queue, slots):
    """Enqueue a job of a task, claim it, and hand it to the slots."""

    def run(task, cell=0, args=()):
        task.enqueue(*args)
        [job] = claim(queue, "default", limit=1, worker_id=1)
        slots._shared.hold([cell], [job])
        slots.accept(cell, job)
        return job

    return run
