"""The child processes of one supervisor: those that live, those that have ended, and the places to be filled."""

import contextlib
import logging
import math
import multiprocessing
import os
import random
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path

from django.db import Error, connections

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import Database, QueueConnection
from django_pgqueue.db.errors import is_locked
from django_pgqueue.jobs import leases
from django_pgqueue.jobs.stats import ProcessCounters
from django_pgqueue.retry_policy import reconnect_delay
from django_pgqueue.version import VERSION
from django_pgqueue.worker import child
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.isolation import CAREFUL_SECONDS
from django_pgqueue.worker.metrics import CommandCounters
from django_pgqueue.worker.shared_state import SharedState, now
from django_pgqueue.worker.timeouts import PATIENCE_SECONDS

logger = logging.getLogger("django_pgqueue.worker")

LOCK_MILLISECONDS = 20  # timeout of the wait for a locked row of pgqueue_workers
SETTLED_SECONDS = 10.0  # minimum life of a process that counts as having started well
JITTER = 0.1  # on max_jobs, so that processes started together are not recycled together
MOMENT_SECONDS = 1.0  # in which a process with the order to leave gives back jobs that it has only fetched

STUCK_SECONDS = 300.0
"""Maximum time without progress: all time limits of a pass together are shorter."""

STUCK_PART = 0.8
"""Maximum part of the time after which probes take a command for dead that a process of it may go without a cycle."""

LOOK_SECONDS = 2.0
"""Maximum time that counts from one look at a process to the next: in a longer one this process was frozen too."""

UNGUARDED = os.EX_CONFIG
"""Exit code of a process that was to run the command again: its main module does so whenever it is imported."""

SPAWN = multiprocessing.get_context("spawn")

MakeProcess = Callable[..., BaseProcess]
"""Takes what ``multiprocessing.Process`` takes; see ``fork_server``."""

MIB = 2**20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(eq=False)
class Vacancy:
    """A place to be filled: at once, or after a pause where processes keep dying young."""

    failures: int = 0  # number of processes in this place that have died young, one after the other
    replaces: "WorkerProcess | None" = None  # it has the place until the new process is at work, and leaves then
    is_careful: bool = False  # the process is to claim one job at a time at first, see ``CAREFUL_SECONDS``

    def __post_init__(self) -> None:
        self._start_at = time.monotonic() + (reconnect_delay(self.failures) if self.failures else 0.0)

    def seconds_left(self) -> float:
        return max(self._start_at - time.monotonic(), 0.0)


@contextlib.contextmanager
def blocked(numbers: Collection[signal.Signals]) -> Iterator[None]:
    """Let these signals wait, also in processes that are started inside, which have to unblock them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerProcess:
    """One child: its process, the pipe of its orders and the memory shared with it."""

    def __init__(
        self,
        plan: WorkerConfig,
        worker_id: int,
        vacancy: Vacancy,
        meter: ProcessCounters | None = None,
        *,
        make: MakeProcess = SPAWN.Process,
    ) -> None:
        self.worker_id = worker_id
        # Not the vacancy itself, by which each process would keep the one before it, and that one the one before that.
        self.failures = vacancy.failures
        self.replaces = vacancy.replaces  # None once it is at work
        self._is_careful = vacancy.is_careful
        self.is_replaced = False  # another one has been asked for
        self.is_leaving = False  # it takes no more
        self._concurrency = plan.concurrency
        self._max_jobs = (plan.max_jobs or math.inf) * random.uniform(1 - JITTER, 1)  # noqa: S311 - jitter
        self._max_memory_mb = plan.max_memory_mb or math.inf
        self.was_stopped = False
        self._is_crash = False
        self.killed: frozenset[int] = frozenset()  # the run ids of jobs that were killed
        self._pressed: dict[int, float] = {}  # run ids of jobs that are to stop -> since when, monotonic
        self._given_up_at: float | None = None
        self._ended_at: float | None = None
        self.pid = 0  # kept for log lines when it is gone
        self.shared = SharedState()
        self.meter = meter  # its counters for metrics; None: there are none
        self._orders_read, self._orders = multiprocessing.Pipe(duplex=False)
        self._ordering = threading.Lock()  # held while one is written, and while the pipe is closed
        self._process = make(
            target=child.main,
            args=(plan, worker_id, self._orders_read, self.shared, meter),
            kwargs={
                "databases": {alias: connections[alias].settings_dict["NAME"] for alias in connections},
                "is_careful": vacancy.is_careful,
            },
            name=f"pgqueue-{worker_id}",
        )
        self._started_at = self._looked_at = time.monotonic()
        self._cycles = 0  # when it was last looked at
        self.stalled_seconds = 0.0  # for which it was seen to finish no cycle; 0 before its first one, or a job in that

    def start(self) -> None:
        with blocked(child.IGNORED):  # in a new Python, until it ignores them
            self._process.start()
        self.pid = self._process.pid or 0
        self._orders_read.close()
        os.set_blocking(self._orders.fileno(), False)

    @property
    def sentinel(self) -> int:
        return self._process.sentinel

    def has_ended(self, *, is_ending: bool) -> bool:
        """Whether the process is gone; waits a moment for one whose sentinel says that it is about to be."""
        if is_ending:
            self._process.join(1.0)
        if self.exit_code is not None and self._ended_at is None:
            self._ended_at = time.monotonic()
        return self._ended_at is not None

    @property
    def exit_code(self) -> int | None:
        """None while it lives; below 0: the signal that ended it."""
        return self._process.exitcode

    @property
    def ended_seconds(self) -> float:
        return 0.0 if self._ended_at is None else time.monotonic() - self._ended_at

    @property
    def is_young(self) -> bool:
        return time.monotonic() - self._started_at < SETTLED_SECONDS

    @property
    def was_careful(self) -> bool:
        lived = (self._ended_at or math.inf) - self._started_at
        has_ended_itself = not self.was_stopped and not self.shared.has_ended_cycles()
        return self._is_careful and has_ended_itself and lived < CAREFUL_SECONDS

    @property
    def is_at_work(self) -> bool:
        return self.shared.cycles() > 0

    def look(self) -> None:
        """Take note whether its consumer has finished a cycle; to be called about once a second, by one thread.

        The first cycle may be kept from its end too, by a job that was claimed in it.
        """
        cycles, at = self.shared.cycles(), time.monotonic()
        if cycles != self._cycles or not (cycles or self.shared.busy()):
            self.stalled_seconds = 0.0
        else:
            self.stalled_seconds += min(at - self._looked_at, LOOK_SECONDS)
        self._cycles, self._looked_at = cycles, at

    @property
    def is_unguarded(self) -> bool:
        """Whether it ended before it could begin, as will every other one; a job may have ended it by the same code."""
        has_claimed = self.shared.started() or self.shared.unbegun()
        return self.exit_code == UNGUARDED and not self.is_at_work and not has_claimed

    def excess(self) -> str | None:
        """Return the limit that it has reached; None within its limits, or if a new process would be no better.

        Memory does not count before the first job and in the first 10 seconds: a limit below what the code alone takes
        must not keep the supervisor busy with replacing.
        """
        finished = self.shared.finished()
        if self._given_up_at is not None:
            return "it runs jobs that do not stop"
        if (threads := self.shared.abandoned_threads()) > self._concurrency:
            return f"{threads} threads do not answer that async def jobs have left behind"
        if finished >= self._max_jobs:
            return f"{finished} jobs finished"
        if self._max_memory_mb < math.inf and finished and not self.is_young:
            memory_mb = resident_bytes(self.pid) / MIB
            return f"{memory_mb:.0f} MiB in use" if memory_mb > self._max_memory_mb else None
        return None

    def overdue(self) -> set[int]:
        return self.shared.overdue(time.monotonic() if self._ended_at is None else self._ended_at)

    def ignoring_stop(self) -> set[int]:
        """Return the run ids of jobs that ignored a stop request for several seconds. Poll this."""
        pressed = self.overdue() | (self.killed and self.shared.running() & self.killed)
        at = time.monotonic()
        self._pressed = {run_id: self._pressed.get(run_id, at) for run_id in pressed}
        return {run_id for run_id, since in self._pressed.items() if at - since >= PATIENCE_SECONDS}

    def stop_claiming(self, *, is_stuck: bool = False) -> bool:
        """Let it finish its other jobs while some do not stop; return whether that is new.

        ``is_stuck``: its consumer has not finished a cycle for long, and may begin nothing for that reason.
        """
        is_new = self._given_up_at is None
        is_away = not (self.shared.is_lease_valid() or is_stuck)  # no outcome can be written while the database is away
        if is_new or is_away:
            self._given_up_at = time.monotonic()
        self.leave()
        return is_new

    def is_beyond_stopping(self, run_ids: set[int], shutdown_timeout_seconds: float) -> bool:
        others = self.shared.started() - run_ids
        patience = shutdown_timeout_seconds if others else MOMENT_SECONDS
        return self._given_up_at is not None and time.monotonic() - self._given_up_at >= patience

    def leave(self) -> None:
        """Let it finish its jobs and take no more; repeat the call until it has ended."""
        self.is_leaving = True
        self.order("stop")

    def order(self, word: str, detail: str = "") -> None:
        """Send an order. One that does not fit into the pipe of a frozen child, or comes too late, is dropped.

        Longer ones than a pipe takes as a whole would be torn; they go without their detail.
        """
        line = f"{word} {detail}".encode()
        with self._ordering, contextlib.suppress(OSError):
            os.write(self._orders.fileno(), (line if len(line) < select.PIPE_BUF else word.encode()) + b"\n")

    def kill(self, *, is_crash: bool = False) -> None:
        """End it now, on purpose.

        Args:
            is_crash: its running jobs are treated as if it had crashed; else they go back. Once set, it also holds for
                further calls.
        """
        self._is_crash |= is_crash
        self.was_stopped = not self._is_crash
        self._process.kill()

    def discard(self) -> None:
        self._orders_read.close()
        self._close_orders()

    def close(self) -> None:
        self._process.join()
        self._process.close()
        self._close_orders()

    def _close_orders(self) -> None:
        with self._ordering:
            self._orders.close()


class ProcessPool:
    """Shared by the supervisor's threads. Lists are copied before they are walked."""

    def __init__(
        self,
        plan: WorkerConfig,
        *,
        supervisor_id: int,
        lease_seconds: int,
        counters: CommandCounters | None = None,
        make_process: MakeProcess = SPAWN.Process,
    ) -> None:
        self.plan = plan
        self._make_process = make_process
        self.lease_seconds = lease_seconds  # for which a silent process keeps its jobs
        self.living: list[WorkerProcess] = []
        self._parting: list[WorkerProcess] = []  # on their way from the living to those that have ended
        self.ended: list[WorkerProcess] = []  # their jobs are not settled yet
        self.changed_read, self._changed = os.pipe()  # wakes the main thread
        os.set_blocking(self._changed, False)
        self._supervisor_id = supervisor_id
        self._counters = counters  # of metrics; None: there are none
        self._vacancies = [Vacancy()] * plan.processes
        self._finished = 0  # jobs, by processes that have ended
        self._is_crowded_told = False
        self.quiet_by: str | None = None  # who has asked the command to be quiet; None: it is not
        self.is_quiet_written = True  # as the rows of its processes say
        self._quiet_lock = threading.Lock()  # held while one of these two, or who lives, is changed
        self._closed = False
        self._door = threading.Lock()  # held while a process is let in, and while the pool is closed

    def spawn_missing(self, database: Database) -> None:
        for vacancy in [vacancy for vacancy in self._vacancies if vacancy.seconds_left() == 0]:
            self._spawn(database, vacancy)

    def _spawn(self, database: Database, vacancy: Vacancy) -> None:
        quiet_by = self.quiet_by
        worker_id = self._write_down(database)
        assert worker_id is not None  # noqa: S101 - only callers that ask for an id may get none
        with contextlib.ExitStack() as undo:  # nothing is left behind of a process that is not let in
            undo.callback(leases.deregister, database, [worker_id])
            undo.callback(self._put_off, vacancy)  # does nothing once the pool is closed
            meter = self._counters.made() if self._counters else None
            undo.callback(self._retire, meter)
            # Memory or descriptors may be short.
            process = WorkerProcess(self.plan, worker_id, vacancy, meter, make=self._make_process)
            undo.callback(process.discard)
            process.shared.extend_lease(now() + self.lease_seconds)
            process.shared.set_quiet(self.quiet_by is not None)
            if self._let_in(process, vacancy, quiet_by):
                undo.pop_all()

    def set_quiet(self, by: str | None) -> None:
        """Let no process claim any job from here on, as ``by`` has asked; None: let them claim again.

        The next heartbeat writes it down. May be called from any thread.
        """
        with self._quiet_lock:
            self.quiet_by, self.is_quiet_written = by, False
            for process in list(self.living):
                process.shared.set_quiet(by is not None)
        self.broadcast("wake")

    def note_quiet(self, by: str | None, worker_ids: Collection[int]) -> None:
        """Take note that these rows say whether the command is quiet as ``by`` has asked; others may not say so yet."""
        with self._quiet_lock:
            if self.quiet_by == by:
                self.is_quiet_written = all(process.worker_id in worker_ids for process in list(self.living))

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
        """Replace processes that have reached a limit, one at a time; return whether a place must be filled.

        The new process is started first, and when it is at work the old one gets the order to leave: there is no pause.
        Jobs of an old one that do not end are left alone; but there are never more old ones than places, so there are
        no more than twice as many processes as planned.
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

    def remove_ignoring_stop(self) -> None:
        """End the processes whose jobs do not stop, when their other jobs have ended, or have had the time for it."""
        for process in list(self.living):
            if not (run_ids := process.ignoring_stop()):
                continue
            if process.stop_claiming(is_stuck=self.is_stuck(process)):
                logger.warning(
                    "Process %d runs %d job(s) that do not stop: it takes no more", process.pid, len(run_ids)
                )
            if process.is_beyond_stopping(run_ids, self.plan.shutdown_timeout_seconds):
                logger.warning("Process %d is ended, %d job(s) in it do not stop", process.pid, len(run_ids))
                process.kill()

    def remove_stuck(self) -> bool:
        """End the processes whose consumers have finished no cycle for minutes; to be called once a second.

        A job holds the interpreter, or all threads wait for each other: no time limit and no order is obeyed there. So
        the jobs that run there pay for it. The time is longer than a consumer may wait for the database, whose process
        looks just the same from outside: what ends a process sooner, for another reason, costs no attempt.

        Returns:
            Whether a process goes on that was stuck for a lease.
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
        with contextlib.suppress(BlockingIOError):  # it is full: the main thread has enough to wake for
            os.write(self._changed, b"!")

    def register_again(self, database: QueueConnection, process: WorkerProcess) -> None:
        """Write a living process down whose row is gone: it was silent until others took it for dead.

        Or it has ended since the caller looked who lives, and was settled: then it gets no other row. Or its row is
        locked, which is not waited for: such a process is not judged.
        """
        try:
            with database.transaction(lock_milliseconds=LOCK_MILLISECONDS):
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
                "Process %d is not recycled before one of %d has ended that still run their last jobs",
                worn.pid,
                leaving,
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
            quiet_by=self.quiet_by,
        )

    def _let_in(self, process: WorkerProcess, vacancy: Vacancy, quiet_by: str | None) -> bool:
        with self._door:
            if self._closed:
                return False
            process.start()
            with self._quiet_lock:
                self.living.append(process)
                process.shared.set_quiet(self.quiet_by is not None)  # asked meanwhile, perhaps,
                self.is_quiet_written &= self.quiet_by == quiet_by  # and its row does not say so
            self._vacancies.remove(vacancy)
        self.wake_main_thread()
        return True

    def _put_off(self, vacancy: Vacancy) -> None:
        with self._door:
            if vacancy in self._vacancies:
                self._vacancies.remove(vacancy)
                self._vacancies.append(replace(vacancy, failures=vacancy.failures + 1))

    def _retire(self, meter: ProcessCounters | None) -> None:
        if self._counters and meter:
            self._counters.retire(meter)


def stuck_seconds() -> float:
    """Return the time without progress after which a process or a thread of the command counts as stuck."""
    return max(STUCK_SECONDS, 4.0 * conf.statement_timeout_seconds)


def ending(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        names = {one.value: one.name for one in signal.Signals}
        return f"killed by {names.get(-exit_code, f'signal {-exit_code}')}"
    return f"exit code {exit_code}"


def can_read_memory() -> bool:
    """Whether the memory of another process can be read: on Linux it can."""
    return resident_bytes(os.getpid()) > 0


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it is gone, or the system has no ``/proc``."""
    try:
        _, resident, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except (OSError, ValueError):  # no heartbeat must fail for it
        return 0
    return int(resident) * PAGE_BYTES
