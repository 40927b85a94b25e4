"""Wait for the end of jobs: one thread for all who wait in this process, for each database, while there are any.

What the thread does is in ``watch``. Its connections are its own: it does not matter what transaction a caller is in.
"""

import contextlib
import logging
import os
import socket
import threading
from typing import Any

from django_pgqueue.db import postgresql
from django_pgqueue.lifecycle.find import may_be, unknown
from django_pgqueue.runtime.watch import Waiter, Watch

logger = logging.getLogger("django_pgqueue")


def waiter_for(alias: str, job_id: int) -> Waiter:
    """Begin to wait for a job; return at once.

    Raises:
        ConfigurationError: there is no such alias, or it is not PostgreSQL.
    """
    postgresql(alias)
    waiter = Waiter(job_id)
    if not may_be(job_id):
        waiter.set_exception(unknown(job_id))
        return waiter
    with _lock:
        if alias not in _hubs:
            _hubs[alias] = Hub(alias)
        _hubs[alias].add(waiter)
    return waiter


def stop_all() -> None:
    """End the threads of this process, and close their connections. Whoever waits is not told of anything any more."""
    with _lock:
        hubs = list(_hubs.values())
        _hubs.clear()
    for hub in hubs:
        hub.stop()


class Hub:
    """Those who wait by one database, and the life of the thread that sees to them."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._lock = threading.Lock()
        self._new: list[Waiter] = []
        self._thread: threading.Thread | None = None
        self._button: socket.socket | None = None  # rings at the thread
        self._is_told_to_stop = False

    def add(self, waiter: Waiter) -> None:
        """Hand somebody over to the thread; may be called from any other.

        Raises:
            ConfigurationError: the alias to listen by is not one of PostgreSQL.
            RuntimeError: this process may start no thread, as when it is ending.
        """
        with self._lock:
            if self._thread is None:
                self._start()
            elif not self._new:
                self._ring()
            self._new.append(waiter)

    def stop(self) -> None:
        with self._lock:
            self._is_told_to_stop, thread = True, self._thread
            self._ring()
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        bell, button = socket.socketpair()
        button.setblocking(False)
        try:
            watch, name = Watch(self._alias, bell), f"pgqueue-waiting-{self._alias}"
            thread = threading.Thread(target=self._serve, args=(watch,), name=name, daemon=True)
            thread.start()
        except BaseException:  # the next one tries anew
            bell.close()
            button.close()
            raise
        self._thread, self._button = thread, button

    def _ring(self) -> None:
        if self._button is not None:
            with contextlib.suppress(BlockingIOError):  # it has not been heard so often that there is no room
                self._button.send(b"!")

    def _serve(self, watch: Watch) -> None:
        """See to those who wait, until there has been nobody for a while."""
        try:
            while not self._has_ended(is_over=watch.is_over()):
                watch.add(self._take())
                watch.look()
                watch.wait()
        except BaseException as error:
            logger.exception("Who waits for jobs waits in vain; the next one starts anew")
            with self._lock:
                self._end()
                new, self._new = self._new, []
            watch.add(new)
            watch.give_up(error)
        finally:
            watch.close()

    def _has_ended(self, *, is_over: bool) -> bool:
        """Whether the thread ends here: it is told to, or has nobody, and nobody has come meanwhile."""
        with self._lock:
            if self._is_told_to_stop or (is_over and not self._new):
                self._end()
            return self._thread is None

    def _end(self) -> None:
        self._thread = None
        if self._button is not None:
            self._button.close()
            self._button = None

    def _take(self) -> list[Waiter]:
        with self._lock:
            new, self._new = self._new, []
            return new


_hubs: dict[str, Hub] = {}
_lock = threading.Lock()
_inherited: list[Any] = []
"""What a copy of this process made by fork has got of the original's: connections that only the original may use."""


def _disown() -> None:
    """Begin anew in a copy of this process: the thread has not come along."""
    global _lock  # noqa: PLW0603 - whoever held it has not come along either
    _inherited.append(dict(_hubs))
    _hubs.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_disown)
