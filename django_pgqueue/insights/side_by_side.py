"""Look at several databases at the same time, so that those that are away are waited for together."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from django.db import OperationalError, connections
from django.utils.translation import get_language, override

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection

T = TypeVar("T")

PATIENCE_SECONDS = 3.0  # with a server that is silent, beyond the time limit of a statement


class SideBySide(Generic[T]):
    """Begins to look at each of these databases, in a thread with connections of its own.

    One on which the caller has a transaction open, as in a test, is looked at here and now. A look that is under way
    already is shared, so that a page that is opened again and again takes one connection of a silent server.

    Args:
        look: called with the alias of each; its threads may go on after ``results``.
    """

    def __init__(self, aliases: Sequence[str], look: Callable[[str], T]) -> None:
        self._aliases = aliases
        self._seconds = 2 * _silent_seconds()  # to connect, and for a statement that is stopped
        self._until = time.monotonic() + self._seconds
        self._here: dict[str, T | Exception] = {}
        self._threads: dict[str, _Look[T]] = {}
        for alias in aliases:
            if connections[alias].in_atomic_block:
                self._here[alias] = _result(look, alias)
            else:
                self._threads[alias] = _under_way(look, alias)

    def results(self) -> dict[str, T | Exception]:
        """Return the result or the error of each look, by alias; wait for all of them until one deadline.

        One that has not ended then has an OperationalError.
        """
        for thread in self._threads.values():
            thread.join(max(self._until - time.monotonic(), 0.0))
        late = OperationalError(f"the server has not answered for {self._seconds:g} s")
        there = {alias: [*thread.results, late][0] for alias, thread in self._threads.items()}
        return {alias: (self._here | there)[alias] for alias in self._aliases}


_looks: WeakValueDictionary[Any, "_Look[Any]"] = WeakValueDictionary()  # by function, alias and language
_lock = threading.Lock()


def _under_way(look: Callable[[str], T], alias: str) -> "_Look[T]":
    key = look, alias, get_language()
    with _lock:
        thread = _looks.get(key)
        if thread is None or not thread.is_alive():
            thread = _looks[key] = _Look(*key)
            thread.start()
    return thread


class _Look(threading.Thread, Generic[T]):
    """Looks at one database. No server is waited for without end, nor that of an outbox, which findings are about."""

    def __init__(self, look: Callable[[str], T], alias: str, language: str | None) -> None:
        super().__init__(name="pgqueue-look", daemon=True)
        self.results: list[T | Exception] = []  # one, once it is there
        self._look = look
        self._alias = alias
        self._language = language

    def run(self) -> None:
        try:
            with override(self._language):
                self.results.append(_result(self._look_patiently, self._alias))
        finally:
            connections.close_all()

    def _look_patiently(self, alias: str) -> T:
        for one in {alias, *conf.outboxes}:
            QueueConnection(one, "look", patience_seconds=_silent_seconds()).lend()
        return self._look(alias)


def _result(look: Callable[[str], T], alias: str) -> T | Exception:
    try:
        return look(alias)
    except Exception as error:  # noqa: BLE001 - for the caller
        return error


def _silent_seconds() -> float:
    return conf.read_timeout_seconds + PATIENCE_SECONDS
