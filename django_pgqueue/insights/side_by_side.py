"""Look at several databases at the same time, so that those that are away are waited for together."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from django.db import OperationalError, connections
from django.utils.translation import get_language, override

from django_pgqueue.conf import conf
from django_pgqueue.db.pipeline import impatience

T = TypeVar("T")

PATIENCE_SECONDS = 3.0  # with a server that is silent, beyond the time limit of a statement


class SideBySide(Generic[T]):
    """Begins to look at each of these databases, in a thread with connections of its own.

    One on which the caller has a transaction open, as in a test, is looked at here and now.

    Args:
        look: called with the alias of each; its threads may go on after ``results``.
    """

    def __init__(self, aliases: Sequence[str], look: Callable[[str], T]) -> None:
        self._aliases = aliases
        self._look = look
        self._language = get_language()
        self._seconds = 2 * _silent_seconds()  # to connect, and for a statement that is stopped
        self._until = time.monotonic() + self._seconds
        self._results: dict[str, T | Exception] = {}
        self._threads: dict[str, threading.Thread] = {}
        for alias in aliases:
            if connections[alias].in_atomic_block:
                self._results[alias] = _result(look, alias)
                continue
            self._threads[alias] = threading.Thread(target=self._run, args=(alias,), name="pgqueue-look", daemon=True)
            self._threads[alias].start()

    def results(self) -> dict[str, T | Exception]:
        """Return the result or the error of each look, by alias; wait for all of them until one deadline.

        One that has not ended then has an OperationalError.
        """
        for thread in self._threads.values():
            thread.join(max(self._until - time.monotonic(), 0.0))
        late = OperationalError(f"the server has not answered for {self._seconds:g} s")
        return {alias: self._results.get(alias, late) for alias in self._aliases}

    def _run(self, alias: str) -> None:
        try:
            with override(self._language):
                self._results[alias] = _result(lambda _: _patiently(self._look, alias), alias)
        finally:
            connections.close_all()


def _result(look: Callable[[str], T], alias: str) -> T | Exception:
    try:
        return look(alias)
    except Exception as error:  # noqa: BLE001 - for the caller
        return error


def _patiently(look: Callable[[str], T], alias: str) -> T:
    connection = connections[alias]
    connection.ensure_connection()
    with impatience(connection.connection, _silent_seconds()):
        return look(alias)


def _silent_seconds() -> float:
    return conf.read_timeout_seconds + PATIENCE_SECONDS
