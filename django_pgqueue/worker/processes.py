"""The child processes of one supervisor: those that live, those that have ended, and the places to be filled."""

import logging
import os
import signal
import socket
import threading
import time

from django.db import Error, connections

from django_pgqueue.db.connections import Database, QueueConnection
from django_pgqueue.db.errors import is_locked
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs import leases
from django_pgqueue.jobs.stats import ProcessCounters
from django_pgqueue.retry_policy import reconnect_delay
from django_pgqueue.version import VERSION
from django_pgqueue.worker.child import ChildConfig
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.health import stuck_seconds
from django_pgqueue.worker.metrics import CommandCounters
from django_pgqueue.worker.shared_state import now
from django_pgqueue.worker.worker_process import WorkerProcess

logger = logging.getLogger("django_pgqueue.worker")

LOCK_MILLISECONDS = 20  # timeout of the wait for a locked row of pgqueue_workers

STUCK_PART = 0.8
"""Maximum part of the time after which probes take a command for dead that a process of it may go without a cycle."""


class ProcessPool:
    """Shared by the supervisor's threads. Lists are copied before they are walked.

    Args:
        plan: how many children there are to be, and what they do.
        supervisor_id: stands in their rows.
        lease_seconds: how long a silent child keeps its jobs.
        counters: where they sum up what they do, for metrics; None: there are none.
    """

    def __init__(
        self, plan: WorkerConfig, *, supervisor_id: int, lease_seconds: int, counters: CommandCounters | None = None
    ) -> None:
        self.plan = plan
        self.lease_seconds = lease_seconds
        self.living: list[WorkerProcess] = []
        self._parting: list[WorkerProcess] = []  # on their way from the living to those that have ended
        self.ended: list[WorkerProcess] = []  # their jobs are not settled yet
        self.changed_read, self._changed = os.pipe()  # tells the main thread that there is news
        self._supervisor_id = supervisor_id
        self._counters = counters
        self._vacancies = [Vacancy()] * plan.processes
        self._finished = 0  # jobs, by processes that have ended
        self._is_crowded_told = False
        self._closed = False
        self._door = threading.Lock()  # held while a process is let in, and while the pool is closed

    def spawn_missing(self, database: Database) -> None:
        for vacancy in [vacancy for vacancy in self._vacancies if vacancy.seconds_left() == 0]:
            worker_id = self._write_down(database)
            assert worker_id is not None  # noqa: S101 - only those who ask for an id may get none
            process = None
            try:
                process = self._made(worker_id, vacancy)
                is_in = self._let_in(process, vacancy)
            except BaseException:
                self._put_off(vacancy)
                self._discard(database, worker_id, process)
                raise
            if not is_in:
                self._discard(database, worker_id, process)

    def close(self) -> None:
        with self._door:
            self._closed = True
            self._vacancies.clear()

    def remove(self, process: WorkerProcess) -> None:
        self._parting.append(process)
        self.living.remove(process)
        self._finished += process.shared.finished()
        self._retire(process.meter)
        if process.is_replaced and (process.is_leaving or self._closed) and process.exit_code == 0:
            logger.info("Process %d is recycled", process.pid)
        elif process.is_replaced:
            logger.warning("Process %d ended (%s) while it was replaced", process.pid, ending(process.exit_code))
        elif not self._closed:
            has_crashed = not process.was_stopped and (bool(process.exit_code) or not process.shared.has_ended_cycles())
            failures = process.failures + 1 if has_crashed and process.is_young else 0
            is_careful = has_crashed and bool(failures or process.shared.unbegun())
            logger.warning(
                "Process %d ended (%s), starting another%s",
                *(process.pid, ending(process.exit_code), ", careful at first" if is_careful else ""),
            )
            self._vacancies.append(Vacancy(failures, replaces=process.replaces, is_careful=is_careful))
        self.ended.append(process)  # from here on it belongs to maintenance, which closes it
        self._parting.remove(process)

    def recycle(self) -> bool:
        """Replace processes that have used up what they may, one at a time; return whether a place is to be filled.

        The new process is started first, and when it is at work the old one is told to leave: there is no pause. Jobs
        of an old one that do not end are left alone; but there are never more old ones than places, so there are no
        more than twice as many processes as planned.
        """
        for process in [process for process in self.living if process.is_leaving]:
            process.leave()
        if self.is_recycling():
            self._let_go()
            return False
        worn = next((process for process in list(self.living) if not process.is_replaced and process.excess()), None)
        if worn is None or self._is_crowded(worn):
            return False
        logger.info("Recycling process %d: %s", worn.pid, worn.excess())
        worn.is_replaced = True
        self._vacancies.append(Vacancy(replaces=worn))
        return True

    def remove_deaf(self) -> None:
        """End the processes whose jobs do not stop, when their other jobs have ended, or have had the time for it."""
        for process in list(self.living):
            if not (deaf := process.ignoring_stop()):
                continue
            if process.stop_claiming(is_stuck=self.is_stuck(process)):
                logger.warning("Process %d runs %d job(s) that do not stop: it takes no more", process.pid, len(deaf))
            if process.is_beyond_stopping(deaf, self.plan.shutdown_timeout_seconds):
                logger.warning("Process %d is ended, %d job(s) in it do not stop", process.pid, len(deaf))
                process.kill()

    def remove_stuck(self) -> bool:
        """End the processes whose consumers have finished no cycle for minutes; to be called once a second.

        A job holds the interpreter, or all threads wait for each other: no time limit and no order is obeyed there. So
        the jobs that run there pay for it. The time is longer than a consumer may wait for the database, whose process
        looks just the same from outside: what ends a process sooner, for another reason, costs no attempt.

        Returns:
            Whether one goes on that stood still for a lease.
        """
        goes_on_again, patience = False, max(STUCK_PART * stuck_seconds(), 2.0 * self.lease_seconds)
        for process in list(self.living):
            was_stuck = self.is_stuck(process)
            process.look()
            goes_on_again |= was_stuck and not self.is_stuck(process)
            if process.stalled_seconds >= patience:
                logger.error(
                    "Process %d is ended: for %d s it has not finished a cycle", process.pid, process.stalled_seconds
                )
                process.kill(is_crash=True)
                process.stalled_seconds = 0.0
        return goes_on_again

    def is_stuck(self, process: WorkerProcess) -> bool:
        return process.stalled_seconds > self.lease_seconds

    def is_recycling(self) -> bool:
        """Whether a process that is to replace another is not yet at work."""
        # Vacancies first: one goes when its process is in.
        return any(vacancy.replaces for vacancy in list(self._vacancies)) or any(
            process.replaces for process in list(self.living)
        )

    def broadcast(self, word: str, detail: str = "") -> None:
        for process in list(self.living):
            process.order(word, detail)

    def worker_ids(self) -> list[int]:
        """Return the ids under which jobs may still be running."""
        # In the order in which a process passes from one list to the next, so that it is in one that is still read.
        return [process.worker_id for process in (*self.living, *self._parting, *self.ended)]

    def finished(self) -> int:
        return self._finished + sum(process.shared.finished() for process in list(self.living))

    def next_start_seconds(self) -> float | None:
        return min((vacancy.seconds_left() for vacancy in self._vacancies), default=None)

    def wake_main_thread(self) -> None:
        os.write(self._changed, b"!")

    def register_again(self, database: QueueConnection, process: WorkerProcess) -> None:
        """Write a living process down whose row is gone: it was silent until others took it for dead.

        Or it has ended since the caller looked who lives, and was settled: then it gets no other row. Or its row is
        locked, which is not waited for: such a process is not judged.
        """
        try:
            with database.transaction():
                database.rows(statement("lock_timeout"), {"milliseconds": LOCK_MILLISECONDS})
                worker_id = self._write_down(database, process.worker_id)
        except Error as error:
            if not is_locked(error):
                raise
            return
        if worker_id is None:
            return
        if process in self.living:
            logger.warning("Process %d was taken for dead and is registered again", process.pid)
        else:
            leases.deregister(database, [process.worker_id])

    def _let_go(self) -> None:
        for process in list(self.living):
            if process.replaces and process.is_at_work:
                logger.info("Process %d takes over from process %d", process.pid, process.replaces.pid)
                process.replaces.leave()
                process.replaces = None

    def _is_crowded(self, worn: WorkerProcess) -> bool:
        leaving = sum(process.is_leaving for process in list(self.living) if process is not worn)
        is_crowded = leaving >= self.plan.processes
        if is_crowded and not self._is_crowded_told:
            logger.warning(
                "Process %d is not recycled before one of %d has ended that still run what they had", worn.pid, leaving
            )
        self._is_crowded_told = is_crowded
        return is_crowded

    def _write_down(self, database: Database, worker_id: int | None = None) -> int | None:
        return leases.register(
            database,
            supervisor_id=self._supervisor_id,
            host=socket.gethostname(),
            name=self.plan.name,
            version=VERSION,
            concurrency=self.plan.concurrency,
            queues=self.plan.queues,
            lease_seconds=self.lease_seconds,
            worker_id=worker_id,
        )

    def _let_in(self, process: WorkerProcess, vacancy: "Vacancy") -> bool:
        with self._door:
            if self._closed:
                return False
            process.start()
            self.living.append(process)
            self._vacancies.remove(vacancy)
        self.wake_main_thread()
        return True

    def _put_off(self, vacancy: "Vacancy") -> None:
        with self._door:
            if vacancy in self._vacancies:
                self._vacancies.remove(vacancy)
                self._vacancies.append(
                    Vacancy(vacancy.failures + 1, replaces=vacancy.replaces, is_careful=vacancy.is_careful)
                )

    def _discard(self, database: Database, worker_id: int, process: WorkerProcess | None) -> None:
        if process is not None:
            process.discard()
            self._retire(process.meter)
        leases.deregister(database, [worker_id])

    def _made(self, worker_id: int, vacancy: "Vacancy") -> WorkerProcess:
        """Return a process that is still to be started; raises OSError where memory or descriptors are short."""
        plan = self.plan
        databases = {alias: connections[alias].settings_dict["NAME"] for alias in connections}
        brief = ChildConfig(
            worker_id, plan.queues, plan.concurrency, plan.verbosity, databases, is_careful=vacancy.is_careful
        )
        meter = self._counters.made() if self._counters else None
        try:
            process = WorkerProcess(brief, plan, failures=vacancy.failures, replaces=vacancy.replaces, meter=meter)
        except BaseException:
            self._retire(meter)
            raise
        process.shared.extend_lease(now() + self.lease_seconds)
        return process

    def _retire(self, meter: ProcessCounters | None) -> None:
        if self._counters and meter:
            self._counters.retire(meter)


class Vacancy:
    """A place to be filled: at once, or after a pause where processes keep dying young.

    Args:
        replaces: who has the place until then.
        is_careful: the process is to claim one job at a time at first, see ``CAREFUL_SECONDS``.
    """

    def __init__(self, failures: int = 0, *, replaces: WorkerProcess | None = None, is_careful: bool = False) -> None:
        self.failures = failures
        self.is_careful = is_careful
        self.replaces = replaces
        self._start_at = time.monotonic() + (reconnect_delay(failures) if failures else 0.0)

    def seconds_left(self) -> float:
        return max(self._start_at - time.monotonic(), 0.0)


def ending(exit_code: int | None) -> str:
    """Say in words how a process ended."""
    if exit_code is not None and exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}"
