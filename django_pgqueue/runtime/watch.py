"""What the thread does that waits for the end of jobs, see ``waiting``: listen on one connection, look on another.

Workers announce the ends of those jobs only that somebody waits for, which is noted in their rows; what nobody has
announced, looking finds.
"""

import heapq
import logging
import math
import selectors
import socket
import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from django.db import Error

from django_pgqueue.base.backoff import reconnect_delay
from django_pgqueue.base.conf import conf
from django_pgqueue.base.database_errors import is_transient, one_line
from django_pgqueue.db import QueueConnection
from django_pgqueue.lifecycle.find import JobState, find_many
from django_pgqueue.lifecycle.wait import look
from django_pgqueue.runtime.ear import Ear

logger = logging.getLogger("django_pgqueue")

FIRST_SECONDS = 0.005
"""A job is looked at for the second time after this, then after twice as long each time, as long as it is not noted.

It is noted with the second look: one that was just enqueued is about to be claimed by then, and a short one has ended.
"""

LINGER_SECONDS = 3.0
"""The thread and its connections stay for so long when nobody waits any more: less than the five seconds for which DROP
DATABASE waits for others to go, as at the end of a test run whose last test has waited.

Source: CountOtherDBBackends() in https://github.com/postgres/postgres/blob/REL_18_STABLE/src/backend/storage/ipc/procarray.c
"""

UNSEEN = "not found yet"
"""The status of a job that nobody has looked at."""

AT_ONCE = 500
"""So many jobs are looked at together."""


class Waiter(Future[JobState]):
    """What one caller waits with: for the job's state when it has ended, or UnknownJob. Cancelled, it is forgotten.

    Attributes:
        status: that of the job when it was last looked at.
    """

    def __init__(self, job_id: int) -> None:
        super().__init__()
        self.job_id = job_id
        self.status = UNSEEN


@dataclass(slots=True)
class Watched:
    """A job that somebody waits for."""

    waiters: list[Waiter] = field(default_factory=list)
    status: str = UNSEEN
    looks: int = 0
    look_at: float = 0.0  # when next, monotonic


class Watch:
    """The thread's part. Not safe for two threads at once.

    Args:
        bell: readable when somebody has come; closed with the rest.
    """

    def __init__(self, alias: str, bell: socket.socket) -> None:
        self._database = QueueConnection(alias, "waiting")
        self._ear = Ear(conf.listen_database if alias == conf.database else alias)
        self._bell = bell
        self._jobs: dict[int, Watched] = {}
        self._due: list[tuple[float, int]] = []  # a heap of when to look at which; what says otherwise by now is void
        self._ended: set[int] = set()  # announced, or missed by a look: their state is to be read
        self._failures = 0
        self._retry_at = 0.0  # not before, monotonic
        self._left_at = math.inf  # since when nobody waits, monotonic

    def add(self, waiters: Iterable[Waiter]) -> None:
        for waiter in waiters:
            job = self._jobs.get(waiter.job_id)
            if job is None:
                job = self._jobs[waiter.job_id] = Watched()
                self._look_at(waiter.job_id, job, time.monotonic())
            job.waiters.append(waiter)
            waiter.status = job.status

    def is_over(self) -> bool:
        """Whether there has been nobody for a while."""
        return time.monotonic() >= self._left_at + LINGER_SECONDS

    def look(self) -> None:
        """Look at what is due, and tell those whose jobs have ended; on trouble with the database, try again later."""
        try:
            if self._jobs and time.monotonic() >= self._retry_at:
                self._listen()
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
                logger.warning("Who waits for jobs cannot ask the database: %s", one_line(error))
        self._left_at = math.inf if self._jobs else min(self._left_at, time.monotonic())

    def wait(self) -> None:
        """Wait until somebody comes, an end is announced, or it is time to look."""
        patience = max(self._wait_until(), self._retry_at) - time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(self._bell, selectors.EVENT_READ)
            if self._ear.connection is not None:
                selector.register(self._ear.connection.fileno(), selectors.EVENT_READ)
            heard = [key.fileobj for key, _ in selector.select(max(patience, 0.0))]
        if self._bell in heard:
            self._bell.recv(4096)
        if self._ear.connection is not None:
            self._ended |= self._ear.heard() & self._jobs.keys()

    def give_up(self, error: BaseException) -> None:
        """Raise an error to all who wait."""
        for job_id in list(self._jobs):
            self._leave(job_id, error)
        self._ended.clear()

    def close(self) -> None:
        self._database.close()
        self._ear.close()
        self._bell.close()

    def _wait_until(self) -> float:
        """Return when there will be something to do if nothing happens, monotonic."""
        if not self._jobs:
            return self._left_at + LINGER_SECONDS
        return 0.0 if self._ended else min(self._due[0][0], self._ear.try_at)

    def _listen(self) -> None:
        """Listen if possible; when that has just begun, look at all, for something may have been missed."""
        if self._ear.begins():
            for job_id, job in self._jobs.items():
                self._look_at(job_id, job, time.monotonic())

    def _pop_due(self) -> list[int]:
        """Return which jobs to look at, without those that nobody waits for any more; forget who has left."""
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
        try:
            live = look(self._database, {job_id: self._is_wanted(self._jobs[job_id]) for job_id in due})
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

    def _is_wanted(self, job: Watched) -> bool:
        """Whether the end of a job is to be announced from now on."""
        return self._ear.connection is not None and job.looks > 0

    def _look_again(self, job_id: int, *, is_noted: bool) -> None:
        job = self._jobs[job_id]
        is_called = is_noted and self._ear.connection is not None
        pause = conf.poll_seconds if is_called else min(FIRST_SECONDS * 2.0 ** min(job.looks, 30), conf.poll_seconds)
        job.looks += 1
        self._look_at(job_id, job, time.monotonic() + pause)

    def _look_at(self, job_id: int, job: Watched, when: float) -> None:
        job.look_at = when
        heapq.heappush(self._due, (when, job_id))

    def _tell(self) -> None:
        """Read the state of what has ended, and hand it to those who wait."""
        while chosen := list(self._ended)[:AT_ONCE]:
            for job_id, state in find_many(self._database, chosen).items():
                self._ended.discard(job_id)
                if isinstance(state, Exception) or state.has_ended:
                    self._leave(job_id, state)
                elif job_id in self._jobs:  # it was requeued meanwhile
                    self._look_again(job_id, is_noted=False)

    def _leave(self, job_id: int, state: JobState | BaseException) -> None:
        """Hand all who wait for a job what they wait for, and forget them."""
        job = self._jobs.pop(job_id, None)
        for waiter in job.waiters if job else ():
            if not waiter.set_running_or_notify_cancel():
                continue  # it has left
            if isinstance(state, BaseException):
                waiter.set_exception(state)
            else:
                waiter.set_result(state)
