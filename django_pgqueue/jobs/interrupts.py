"""Interrupt user code from another thread or task, and only the run that is meant.

An exception that one thread raises in another arrives some bytecodes later, in any code that is being executed then. So
the interrupting thread announces it before it checks that the run is still in user code; a run that leaves user code
says so before it checks for an announcement, waits for the interrupting thread, and takes back an exception that is
still on its way. Jobs that are not interrupted pay for two attributes.

Source: https://docs.python.org/3/c-api/threads.html#c.PyThreadState_SetAsyncExc
"""

import asyncio
import contextlib
import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from django_pgqueue.exceptions import JobInterrupted, JobKilled
from django_pgqueue.jobs.context import CurrentJob

AIMING_SECONDS = 0.0001  # poll interval of a finishing run that waits for a concurrent interrupt
CANCEL_SECONDS = 5.0  # timeout of a query-cancellation request

DELICATE = {"logging", "importlib._bootstrap", "importlib._bootstrap_external", "_frozen_importlib"}
"""Modules that take a lock in one statement and arrange its release in the next. An exception in between would leave it
taken, for all threads of the process. They are never long in there."""


class ThreadInterrupts:
    """Interrupts the plain tasks that one slot runs, one after the other; made in the thread of the slot.

    A wait for a server ends only with its answer, so the query of any of the thread's ``connections`` is cancelled too.
    """

    courtesy_seconds = 1.0  # time for a killed job to look at ``is_kill_requested`` before it is interrupted

    def __init__(self, connections: Sequence[Any] = ()) -> None:
        self.was_hit = False  # since the slot last looked: what the run was doing may be half done
        self._thread_id = threading.get_ident()
        self._connections = connections
        self._inside: CurrentJob | None = None
        self._is_aimed_at = False  # since the slot last looked
        self._is_being_aimed_at = False  # no lock: an exception might come just when the slot has taken it

    def call(
        self, current: CurrentJob, func: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Call user code; ``JobInterrupted`` may be raised anywhere in here, in rare cases on the way back."""
        try:
            self._inside, current.interrupts = current, self
            if current.is_kill_requested:
                raise JobKilled
            return func(*args, **kwargs)
        finally:
            self._inside = None  # no call, no jump on the way to here: nothing is raised before this is done
            if self._is_aimed_at:
                self.leave()

    def pause(self, current: CurrentJob) -> None:
        """Let nothing reach this thread until ``go_on()``; an exception on its way may be raised here.

        Both do nothing once the thread is at another job: a thread that this one has left behind may call them.
        """
        if self._inside is current:
            self._inside = None
            if self._is_aimed_at:
                self.leave()

    def go_on(self, current: CurrentJob) -> None:
        if self._inside is None:
            self._inside = current

    def leave(self) -> None:
        """Let nothing reach this thread any more.

        An exception on its way may be raised by this very call, once, or is taken back. So it is called again where
        everything is caught.
        """
        self._inside = None
        if self._is_aimed_at:
            while self._is_being_aimed_at:  # the interrupting thread raises, or sees that it is too late
                time.sleep(AIMING_SECONDS)
            _raise_in(self._thread_id, None)
            self._is_aimed_at = False

    def interrupt(self, current: CurrentJob, kind: type[JobInterrupted]) -> bool:
        """Interrupt a run, if it is in user code; called from another thread, one at a time.

        False: this came to nothing, and may be worth another try in a moment.
        """
        self._is_being_aimed_at = self._is_aimed_at = True  # in this order
        try:
            if self._inside is not current or _is_delicate(self._thread_id):
                return False
            if _is_cleaning_up(self._thread_id):
                return True
            self.was_hit = True
            used = [connection.connection for connection in list(self._connections)]  # soon they may be the next run's
            _raise_in(self._thread_id, kind)
        finally:
            self._is_being_aimed_at = False
        for connection in used:
            break_off(connection)
        return True


class LaneInterrupts:
    """Cancels the tasks of one lane of an event loop: that arrives where a coroutine waits, which is in user code."""

    courtesy_seconds = 0.0

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.task: asyncio.Task[None] | None = None  # the one that runs the lane's job
        self._loop = loop
        self._inside: CurrentJob | None = None

    def enter(self, current: CurrentJob) -> None:
        """Note that the next ``await`` is user code's; raise CancelledError if the job has been killed before."""
        if current.is_kill_requested:
            raise asyncio.CancelledError
        self._inside = current

    def leave(self) -> None:
        self._inside = None

    def interrupt(self, current: CurrentJob, kind: type[JobInterrupted]) -> bool:  # noqa: ARG002 - it is a cancel
        self._loop.call_soon_threadsafe(self._cancel, current)
        return True

    def _cancel(self, current: CurrentJob) -> None:
        if self._inside is current and self.task is not None:
            self.task.cancel()


Interrupts = ThreadInterrupts | LaneInterrupts

_set_async_exc = ctypes.pythonapi["PyThreadState_SetAsyncExc"]
_set_async_exc.argtypes = (ctypes.c_ulong, ctypes.py_object)


def _raise_in(thread_id: int, kind: type[JobInterrupted] | None) -> None:
    """Raise an exception in another thread when it next executes Python code; None takes back one not raised yet."""
    _set_async_exc(thread_id, ctypes.py_object() if kind is None else ctypes.py_object(kind))


def _is_delicate(thread_id: int) -> bool:
    frame = sys._current_frames().get(thread_id)  # noqa: SLF001 - documented, for such purposes
    return frame is not None and frame.f_globals.get("__name__") in DELICATE


def _is_cleaning_up(thread_id: int) -> bool:
    """Whether the thread has been interrupted and is in an ``except`` or ``finally`` because of that."""
    found: Any = sys._current_exceptions().get(thread_id)  # noqa: SLF001 - documented, for such purposes
    error = found[1] if isinstance(found, tuple) else found  # Python 3.11 has the three parts
    while error is not None and not isinstance(error, JobInterrupted):
        error = error.__context__
    return error is not None


def break_off(connection: Any) -> None:
    """Cancel the query that a connection of another thread waits for, if there is one."""
    if isinstance(connection, psycopg.Connection) and connection.pgconn.transaction_status == TransactionStatus.ACTIVE:
        threading.Thread(target=_cancel_query, args=(connection,), name="pgqueue-cancel", daemon=True).start()


def _cancel_query(connection: "psycopg.Connection[Any]") -> None:
    with contextlib.suppress(psycopg.Error):  # then the query goes on, and the process is ended
        connection.cancel_safe(timeout=CANCEL_SECONDS)
