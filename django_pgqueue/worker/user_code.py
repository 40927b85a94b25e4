"""Threads for the project's code that maintenance calls: it may never return, and maintenance must go on.

That code is receivers of signals, which nothing waits for, and functions that compute the keys of a schedule's jobs,
which are waited for with a timeout.
"""

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from django.db import connections

from django_pgqueue.signals import close_broken_connections

logger = logging.getLogger("django_pgqueue.worker")

T = TypeVar("T")

MOST_WAITING = 10_000  # calls in one thread; others are dropped
KEY_SECONDS = 5.0  # timeout of computing a schedule's keys, in which no other service of maintenance runs


class UserThread:
    """Makes calls in their order, in a daemon thread that begins with the first of them. Used by one thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._dropped = 0  # in a row

    def call_later(self, call: Callable[[], object]) -> None:
        if self._calls.qsize() >= MOST_WAITING:
            self._dropped += 1
            if self._dropped == 1:
                logger.error("Receivers of signals do not keep up: %d wait, others are dropped", MOST_WAITING)
            return
        if self._dropped:
            logger.warning("Receivers of signals keep up again; %d signals were dropped", self._dropped)
            self._dropped = 0
        self._calls.put(call)
        if self._thread is None or not self._thread.is_alive():
            self._start()

    @property
    def has_thread(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=f"pgqueue-{self._name}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system allows no more threads
            logger.exception("No thread can be started; the next call tries again")
        else:
            self._thread = thread

    def close(self, seconds: float) -> bool:
        """End the thread after the calls that wait; return whether they were made within a timeout.

        A call that has not returned by then goes on, and those behind it are made if it returns.
        """
        if self._thread is None:
            return True
        self._calls.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
                close_broken_connections()
            except BaseException:
                logger.exception("Receivers of a signal failed; the worker goes on")
        connections.close_all()


class KeyThread:
    """Computes keys in a thread that is given up when a function does not return. Used by one thread."""

    def __init__(self) -> None:
        self._thread = UserThread("keys")
        self._late: dict[str, Future[object]] = {}  # by the name of a schedule

    def compute(self, name: str, call: Callable[[], T]) -> T:
        """Return the result of a call, or raise its exception.

        Args:
            name: of the schedule. While a call for it has not returned, no other is made.

        Raises:
            TimeoutError: the call, or one before it for the same schedule, has not returned.
        """
        self._late = {late: future for late, future in self._late.items() if not future.done()}
        if name in self._late:
            raise TimeoutError("a function that computes a key has not returned since an earlier tick")
        future: Future[T] = Future()
        self._thread.call_later(lambda: _settle(future, call))
        if not self._thread.has_thread:
            raise RuntimeError("no thread can be started that computes keys")
        try:
            return future.result(KEY_SECONDS)
        except TimeoutError:
            if future.done():
                return future.result()
        self._late[name] = future  # type: ignore[assignment]  # which is only asked whether it is done
        self._thread.close(0)
        self._thread = UserThread("keys")
        raise TimeoutError(f"a function that computes a key has not returned within {KEY_SECONDS:g} s")

    def close(self, seconds: float) -> None:
        self._thread.close(seconds)


def _settle(future: "Future[T]", call: Callable[[], T]) -> None:
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001 - raised where the result is waited for
        future.set_exception(error)
    except BaseException as error:  # noqa: BLE001 - as sys.exit(), which is not to end maintenance
        future.set_exception(RuntimeError(f"{type(error).__qualname__}: {error}"))
