"""Wait for the end of jobs: one thread for all callers of this process, for each database, while there are any.

The thread listens on one connection and looks on another, both its own: it does not matter what transaction a caller is
in. Workers announce the ends of those jobs only that are waited for, which is noted in their rows; looking finds ends
that were not announced.
"""

import atexit
import contextlib
import heapq
import logging
import math
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg
from django.db import Error
from psycopg import sql

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection, number_array, only_reads, postgresql
from django_pgqueue.db.errors import is_transient, one_line
from django_pgqueue.db.notify import ENDS, announce_queues
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs.lookup import JobState, find_many, may_be, unknown
from django_pgqueue.retry_policy import reconnect_delay
from django_pgqueue.states import Status

logger = logging.getLogger("django_pgqueue")

FIRST_SECONDS = 0.005
"""Interval from the first look at a job to the second; it doubles each time, as long as the job is not noted.

It is noted with the second look: one that was just enqueued is about to be claimed by then, and a short one has ended.
"""

LINGER_SECONDS = 3.0
"""Time for which the thread and its connections stay after the last wait: less than the five seconds for which DROP
DATABASE waits for other sessions to end, which happens at the end of a test run whose last test has waited.

Source: CountOtherDBBackends() in
https://github.com/postgres/postgres/blob/REL_18_STABLE/src/backend/storage/ipc/procarray.c
"""

UNSEEN = "not found yet"  # status of a job before the first look at it
AT_EXIT_SECONDS = 2.0  # maximum time for which a process that ends waits for the thread
AT_ONCE = 500  # maximum number of jobs in one look
TRY_AGAIN_SECONDS = 300.0  # between tries of LISTEN where no notification arrives


class LiveJob(NamedTuple):
    status: str
    is_noted: bool  # its end will be announced


def look(database: QueueConnection, wanted: Mapping[int, bool]) -> dict[int, LiveJob]:
    """Return those of some jobs that live, in a transaction of its own.

    ``wanted`` says of each whether its end must be announced. A claim that comes just when a queued job is noted steps
    over the row, so workers are woken to look again.
    """
    parameters = {"ids": number_array(wanted), "wanted": list(wanted.values())}
    rows = database.rows(statement("watch_jobs"), parameters)
    announce_queues(database, {queue for _, status, queue, _, is_new in rows if is_new and status == Status.QUEUED})
    return {job_id: LiveJob(status, is_noted) for job_id, status, _, is_noted, _ in rows}


class Waiter(Future[JobState]):
    """Future of one caller: the job's state when it has ended, or JobDoesNotExist. Cancelled, it is forgotten."""

    def __init__(self, job_id: int, pause: float = 0.0) -> None:
        super().__init__()
        self.job_id = job_id
        self.pause = pause  # seconds before the first look
        self.status = UNSEEN  # that of the job when it was last looked at


@dataclass(slots=True)
class WaitedJob:
    waiters: list[Waiter] = field(default_factory=list)
    status: str = UNSEEN
    looks: int = 0
    look_at: float = 0.0  # when next, monotonic


class WaiterLoop:
    """Looks and listens in one thread. ``bell`` is readable when a caller has come, and closed with the rest."""

    def __init__(self, alias: str, bell: socket.socket) -> None:
        self._database = QueueConnection(alias, "waiting")
        self._listener = ResultListener(conf.listen_alias(alias))
        self._bell = bell
        self._jobs: dict[int, WaitedJob] = {}
        self._due: list[tuple[float, int]] = []  # a heap of when to look at which; what says otherwise by now is void
        self._ended: set[int] = set()  # announced, or missed by a look: their state must be read
        self._failures = 0
        self._retry_at = 0.0  # not before, monotonic
        self._left_at = math.inf  # since when no caller waits, monotonic

    def add(self, waiters: Iterable[Waiter]) -> None:
        for waiter in waiters:
            job = self._jobs.get(waiter.job_id)
            if job is None:
                job = self._jobs[waiter.job_id] = WaitedJob()
                self._look_at(waiter.job_id, job, time.monotonic() + waiter.pause)
            job.waiters.append(waiter)
            waiter.status = job.status

    def is_idle(self) -> bool:
        return time.monotonic() >= self._left_at + LINGER_SECONDS

    def look(self) -> None:
        try:
            if self._jobs and time.monotonic() >= self._retry_at:
                if self._listener.start():  # something may have been missed before
                    for job_id, job in self._jobs.items():
                        self._look_at(job_id, job, time.monotonic())
                self._look(self._pop_due())
                self._tell()
                self._failures = 0
        except Error as error:
            self._database.close()
            if not is_transient(error):
                self.give_up(error)
            self._failures += 1
            self._retry_at = time.monotonic() + reconnect_delay(self._failures)
            if self._failures == 1:
                logger.warning("Callers of result() cannot ask the database: %s", one_line(error))
        self._left_at = math.inf if self._jobs else min(self._left_at, time.monotonic())

    def wait(self) -> None:
        patience = max(self._wait_until(), self._retry_at) - time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell, selectors.EVENT_READ)
            if self._listener.connection is not None:
                selector.register(self._listener.connection.fileno(), selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(max(patience, 0.0))]
        if self._bell in ready:
            self._bell.recv(4096)
        if self._listener.connection is not None:
            self._ended |= self._listener.announced() & self._jobs.keys()

    def give_up(self, error: BaseException) -> None:
        for job_id in list(self._jobs):
            self._leave(job_id, error)
        self._ended.clear()

    def close(self) -> None:
        self._database.close()
        self._listener.close()
        self._bell.close()

    def _wait_until(self) -> float:
        if not self._jobs:
            return self._left_at + LINGER_SECONDS
        return 0.0 if self._ended else min(self._due[0][0], self._listener.try_at)

    def _pop_due(self) -> list[int]:
        due: list[int] = []
        while self._due and self._due[0][0] <= time.monotonic() and len(due) < AT_ONCE:
            look_at, job_id = heapq.heappop(self._due)
            job = self._jobs.get(job_id)
            if job is None or job.look_at != look_at:
                continue
            job.waiters = [waiter for waiter in job.waiters if not waiter.done()]
            if job.waiters:
                due.append(job_id)
            else:
                del self._jobs[job_id]
        return due

    def _look(self, due: list[int]) -> None:
        if not due:
            return
        listens = self._listener.connection is not None
        try:
            live = look(self._database, {job_id: listens and self._jobs[job_id].looks > 0 for job_id in due})
        except Error:
            for job_id in due:
                self._look_at(job_id, self._jobs[job_id], self._jobs[job_id].look_at)
            raise
        self._ended.update(job_id for job_id in due if job_id not in live)
        for job_id, found in live.items():
            self._look_again(job_id, is_noted=found.is_noted)
            self._jobs[job_id].status = found.status
            for waiter in self._jobs[job_id].waiters:
                waiter.status = found.status

    def _look_again(self, job_id: int, *, is_noted: bool) -> None:
        job = self._jobs[job_id]
        is_called = is_noted and self._listener.connection is not None
        pause = conf.poll_seconds if is_called else min(FIRST_SECONDS * 2.0 ** min(job.looks, 30), conf.poll_seconds)
        job.looks += 1
        self._look_at(job_id, job, time.monotonic() + pause)

    def _look_at(self, job_id: int, job: WaitedJob, when: float) -> None:
        job.look_at = when
        heapq.heappush(self._due, (when, job_id))

    def _tell(self) -> None:
        while chosen := list(self._ended)[:AT_ONCE]:
            for job_id, state in find_many(self._database, chosen).items():
                self._ended.discard(job_id)
                if state is None:
                    self._leave(job_id, unknown(job_id))
                elif state.is_finished:
                    self._leave(job_id, state)
                elif job_id in self._jobs:  # it was retried meanwhile
                    self._look_again(job_id, is_noted=False)

    def _leave(self, job_id: int, state: JobState | BaseException) -> None:
        job = self._jobs.pop(job_id, None)
        for waiter in job.waiters if job else ():
            if not waiter.set_running_or_notify_cancel():
                continue  # it has left
            if isinstance(state, BaseException):
                waiter.set_exception(state)
            else:
                waiter.set_result(state)


class ResultListener:
    """Listens for announced ends; for work, workers have ``worker.listener``."""

    def __init__(self, alias: str) -> None:
        self.connection: Any = None  # None: to listen is of no use, or not possible at the moment
        self.try_at = 0.0  # when to try again, monotonic; infinity while it listens
        self._database = QueueConnection(alias, "waiting listener")
        self._failures = 0

    def start(self) -> bool:
        """Listen, if it does not already and it is time to try; return whether it has just begun to."""
        if self.connection is not None or time.monotonic() < self.try_at:
            return False
        self.try_at = time.monotonic() + TRY_AGAIN_SECONDS
        if conf.notify:
            try:
                self._connect()
            except (Error, psycopg.Error) as error:
                self._failed(one_line(error))
        return self.connection is not None

    def announced(self) -> set[int]:
        try:
            payloads = {notify.payload for notify in self.connection.notifies(timeout=0)}
        except psycopg.Error as error:
            self._failed(one_line(error))
            return set()
        if only_reads(self.connection):
            self._failed("the server takes no writes")  # the processes that notify are on another one by now
        return {int(payload) for payload in payloads if payload.isdecimal()}

    def close(self) -> None:
        self.connection = None
        self._database.close()

    def _connect(self) -> None:
        connection = self._database.autocommit()
        if self._database.is_pooled:  # it may lend the server that listens to other clients
            self.close()
            return
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(ENDS)))
        self.connection, self.try_at, self._failures = connection, math.inf, 0

    def _failed(self, why: str) -> None:
        self.close()
        self._failures += 1
        self.try_at = time.monotonic() + reconnect_delay(self._failures)
        if self._failures == 1:
            logger.warning("Callers of result() cannot LISTEN, and poll every %g s: %s", conf.poll_seconds, why)


# The threads of this process


def waiter_for(alias: str, job_id: int, *, pause: float = 0.0) -> Waiter:
    """Begin to wait for a job; return at once. ``pause``: seconds before the first look.

    Raises:
        ConfigurationError: there is no such alias of PostgreSQL.
    """
    postgresql(alias)
    waiter = Waiter(job_id, pause)
    if not may_be(job_id):
        waiter.set_exception(unknown(job_id))
        return waiter
    with _lock:
        if (
            not _hubs
        ):  # runs before hooks that were registered earlier, as the end of a server that this process has started
            atexit.unregister(_stop_at_exit)
            atexit.register(_stop_at_exit)
        if alias not in _hubs:
            _hubs[alias] = WaiterHub(alias)
        _hubs[alias].add(waiter)
    return waiter


def stop_all(*, patience: float | None = None) -> None:
    """End the threads of this process, and close their connections. Callers that still wait get no result.

    Args:
        patience: seconds for which each is waited for. None: until it has ended.
    """
    with _lock:
        hubs = list(_hubs.values())
        _hubs.clear()
    for hub in hubs:
        hub.stop(patience=patience)


def _stop_at_exit() -> None:
    stop_all(patience=AT_EXIT_SECONDS)


class WaiterHub:
    """The callers that wait by one database, and the life of the thread that serves them."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._lock = threading.Lock()
        self._new: list[Waiter] = []
        self._thread: threading.Thread | None = None
        self._button: socket.socket | None = None  # rings at the thread
        self._is_told_to_stop = False

    def add(self, waiter: Waiter) -> None:
        """Hand a waiter over to the thread; may be called from any other.

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

    def stop(self, *, patience: float | None = None) -> None:
        with self._lock:
            self._is_told_to_stop, thread = True, self._thread
            self._ring()
        if thread is not None:
            thread.join(patience)

    def _start(self) -> None:
        bell, button = socket.socketpair()
        button.setblocking(False)
        try:
            loop, name = WaiterLoop(self._alias, bell), f"pgqueue-waiting-{self._alias}"
            thread = threading.Thread(target=self._serve, args=(loop,), name=name, daemon=True)
            thread.start()
        except BaseException:  # the next one tries again
            bell.close()
            button.close()
            raise
        self._thread, self._button = thread, button

    def _ring(self) -> None:
        if self._button is not None:
            with contextlib.suppress(BlockingIOError):  # the socket is full of rings that the thread has not read
                self._button.send(b"!")

    def _serve(self, loop: WaiterLoop) -> None:
        try:
            while (new := self._take_or_end(is_idle=loop.is_idle())) is not None:
                loop.add(new)
                loop.look()
                loop.wait()
        except BaseException as error:
            logger.exception("The thread of result() failed; the next call starts another")
            with self._lock:
                self._end()
                new, self._new = self._new, []
            loop.add(new)
            loop.give_up(error)
        finally:
            loop.close()

    def _end(self) -> None:
        self._thread = None
        if self._button is not None:
            self._button.close()
            self._button = None

    def _take_or_end(self, *, is_idle: bool) -> list[Waiter] | None:
        """Return the new waiters; None: the thread ends, as it should, or is idle and there is none."""
        with self._lock:  # a caller that adds a waiter after this finds the list empty, and rings
            if self._is_told_to_stop or (is_idle and not self._new):
                self._end()
                return None
            new, self._new = self._new, []
            return new


_hubs: dict[str, WaiterHub] = {}
_lock = threading.Lock()
_inherited: list[Any] = []
"""What a copy of this process made by fork has got of the original's: connections that only the original may use."""


def _disown() -> None:
    """Start again in a copy of this process, which does not have the thread."""
    global _lock  # noqa: PLW0603 - the thread that held it has not come along either
    _inherited.append(dict(_hubs))
    _hubs.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_disown)
