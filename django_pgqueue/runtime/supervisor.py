"""One ``pgqueue_worker`` command: starts, watches, restarts and drains its children; never runs user code.

The supervisor owns the signals, the rows in ``pgqueue_workers``, the heartbeat, LISTEN and housekeeping, each on a
thread of its own, so no handler can starve them. Children hear from it through pipes and die with it.
"""

import contextlib
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from django.db import Error, connections

from django_pgqueue.base.backoff import reconnect_delay
from django_pgqueue.base.conf import conf
from django_pgqueue.base.version import VERSION
from django_pgqueue.db import QueueConnection
from django_pgqueue.housekeeping.promote import announce, next_due_seconds, promote
from django_pgqueue.housekeeping.reaper import forget_workers, reap_lost
from django_pgqueue.housekeeping.retention import keep_partitions
from django_pgqueue.lifecycle import heartbeat
from django_pgqueue.lifecycle.drain import is_drained
from django_pgqueue.lifecycle.enqueue import CANCEL
from django_pgqueue.lifecycle.reap import settle_dead_process
from django_pgqueue.lifecycle.release import release
from django_pgqueue.runtime.child import Brief
from django_pgqueue.runtime.listener import Listener
from django_pgqueue.runtime.loop import Loop
from django_pgqueue.runtime.marks import now
from django_pgqueue.runtime.process import Process

logger = logging.getLogger("django_pgqueue.worker")

REAP_SECONDS = 1.0
CHORES_SECONDS = 3600.0
LONGEST_SLEEP_SECONDS = 1.0
DRAIN_LOOK_SECONDS = 0.05
FAREWELL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What one command is to do; validated by the command before anything starts.

    Args:
        queues: served in this order; empty means all.
        processes: worker processes, 1 or more.
        concurrency: jobs at once in each process, 1 or more.
        drain: end when nothing is left to do.
        grace_seconds: how long running jobs may go on after SIGTERM.
        listen: whether to LISTEN; without it, or behind a pooler, workers poll.
        name: shown beside host and pid.
        verbosity: Django's; what the children log.
    """

    queues: tuple[str, ...] = ()
    processes: int = 1
    concurrency: int = 8
    drain: bool = False
    grace_seconds: float = 25.0
    listen: bool = True
    name: str = ""
    verbosity: int = 1


@dataclass
class Pulse:
    """For how long heartbeats have gone through without a gap of a lease."""

    lease_seconds: float
    first: float | None = None
    last: float = field(default_factory=now)

    def beat(self, at: float) -> None:
        if self.first is None or at - self.last > self.lease_seconds:
            self.first = at
        self.last = at

    def is_steady(self) -> bool:
        """Whether everybody who is alive has had a full lease's time to say so."""
        return self.first is not None and now() - self.last < self.lease_seconds <= self.last - self.first


class Supervisor:
    """Runs a plan to its end.

    Args:
        plan: what to do.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.id = secrets.randbits(63)
        self.alias = conf.database
        self.lease_seconds = conf.lease_seconds
        self.processes: list[Process] = []
        self._ended: list[Process] = []  # their jobs are not settled yet
        self._vacancies: list[tuple[float, int]] = [(0.0, 0)] * plan.processes  # start when (monotonic), after failures
        self._strangers: set[int] = set()  # marks of rows that no process knew at the last heartbeat
        self._pulse = Pulse(self.lease_seconds)
        self._stop_until: float | None = None  # stopping: how long to wait for running jobs, monotonic
        self._chores_at = self._reap_at = 0.0
        self._heart = QueueConnection(self.alias, "heartbeat")
        self._house = QueueConnection(self.alias, "housekeeping")
        self._listener = Listener(self.alias, self._heard)
        self._heart_loop = Loop("heartbeat", self._beat)
        self._house_loop = Loop("housekeeping", self._keep_house)
        self._listen_loop = Loop("listener", self._listener.pass_once)
        self._woken, self._waker = os.pipe()

    def run(self) -> None:
        """Work until drained or told to stop by SIGTERM or SIGINT; a second signal does not wait for running jobs.

        Returns when all children have ended and what they left is settled.
        """
        connections.close_all()
        try:
            with self._signals():
                self._start()
                while self.processes or not self._is_stopping:
                    self._watch()
                self._finish()
        finally:
            for process in self.processes:
                process.kill()

    def stop(self) -> None:
        """Stop gracefully; called again, stop now. May be called from a signal handler or any thread."""
        grace = 0.0 if self._is_stopping else self.plan.grace_seconds
        self._stop_until = time.monotonic() + grace
        os.write(self._waker, b"s")

    @property
    def _is_stopping(self) -> bool:
        return self._stop_until is not None

    # The main thread: signals and the ends of children

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        def handle(number: int, _frame: Any) -> None:
            again = " again: not waiting for running jobs" if self._is_stopping else ""
            logger.info("Stopping on %s%s", signal.Signals(number).name, again)
            self.stop()

        previous = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _start(self) -> None:
        self._house_loop.start()
        self._heart_loop.start()
        if self.plan.listen:
            self._listen_loop.start()
            self._listener.is_settled.wait(timeout=3.0)
        listen = "on" if self._listener.works else f"off, polling every {conf.poll_seconds:g} s"
        settings = connections[self.alias].settings_dict
        logger.info(
            "pgqueue worker %s on %s: database %s, queues %s, %d process(es) x %d, LISTEN %s",
            VERSION,
            socket.gethostname(),
            f"{self.alias} ({settings['NAME']}@{settings['HOST'] or 'local'})",
            ", ".join(self.plan.queues) or "all",
            self.plan.processes,
            self.plan.concurrency,
            listen,
        )

    def _watch(self) -> None:
        """Wait until a child ends, a signal comes or a moment has passed; see to it."""
        sentinels = [process.sentinel for process in self.processes]
        ready = wait([*sentinels, self._woken], timeout=0.2 if self._is_stopping else 1.0)
        if self._woken in ready:
            os.read(self._woken, 1024)
        for process in list(self.processes):
            if process.has_ended(is_ending=process.sentinel in ready):
                self._bury(process)
        if self._stop_until is not None:
            for process in self.processes:
                process.order("stop")
                if time.monotonic() > self._stop_until:
                    logger.warning("Process %d has not stopped in time and is ended", process.pid)
                    process.kill()

    def _bury(self, process: Process) -> None:
        """Take an ended child off the list; its jobs are settled and its place is filled by housekeeping."""
        self.processes.remove(process)
        self._ended.append(process)
        if not self._is_stopping:
            failures = process.failures + 1 if process.died_young and process.exit_code else 0
            logger.warning("Process %d ended (%s), starting another", process.pid, ending(process.exit_code))
            self._vacancies.append((time.monotonic() + (reconnect_delay(failures) if failures else 0.0), failures))
        self._house_loop.wake()

    def _finish(self) -> None:
        """Settle what the children left, remove their rows, close everything."""
        for loop in (self._house_loop, self._heart_loop, self._listen_loop):
            loop.stop()
        self._listener.stop()
        for loop in (self._house_loop, self._heart_loop):
            loop.join(FAREWELL_SECONDS)
        try:
            self._settle_ended()
        except Error as error:
            logger.warning("What this worker left is not settled, its leases will run out: %s", error)
        for connection in (self._house, self._heart):
            connection.close()
        logger.info("Stopped")

    # The heartbeat thread

    def _beat(self) -> float:
        """Renew the leases; pass cancel requests on; release rows whose claim never reached its process."""
        processes = {process.worker_id: process for process in list(self.processes)}
        begun = now()
        standing = heartbeat.beat(
            self._heart,
            {worker_id: process.pid for worker_id, process in processes.items()},
            lease_seconds=self.lease_seconds,
        )
        self._pulse.beat(begun)
        for worker_id in standing & processes.keys():
            processes[worker_id].marks.extend(begun + self.lease_seconds)
        self._compare_books(processes)
        return self.lease_seconds / 3

    def _compare_books(self, processes: dict[int, Process]) -> None:
        leases = heartbeat.leases(self._heart, list(processes))
        for lease in leases:
            if lease.is_cancelled:
                processes[lease.worker_id].order(f"cancel {lease.id}")
        held = {worker_id: process.marks.held() for worker_id, process in processes.items()}
        strangers = [lease for lease in leases if lease.mark not in held[lease.worker_id]]
        if lost := [lease for lease in strangers if lease.mark in self._strangers]:
            logger.warning("Releasing %d jobs whose claim was committed but never answered", len(lost))
            release(self._heart, [(lease.id, lease.lease_token, 0.0) for lease in lost])
        self._strangers = {lease.mark for lease in strangers}

    # The housekeeping thread

    def _keep_house(self) -> float:
        """One pass of everything that any worker may do at any time; return the seconds until the next one."""
        self._settle_ended()
        if not self._is_stopping:
            self._do_chores()
            self._fill_vacancies()
        self._reap()
        delay = self._promote()
        if self.plan.drain and not self._is_stopping:
            delay = self._drain()
        return min([delay, *(max(start - time.monotonic(), 0.0) for start, _ in self._vacancies)])

    def _settle_ended(self) -> None:
        for process in list(self._ended):
            leases = heartbeat.leases(self._house, [process.worker_id])
            started = process.marks.started()
            settled = settle_dead_process(self._house, leases, started=started, was_stopped=process.was_stopped)
            if leases:
                logger.info("Process %d left %d jobs: %d requeued, %d dead", process.pid, len(leases), *settled[:2])
            heartbeat.deregister(self._house, [process.worker_id])
            self._announce(set(settled.queues))
            self._ended.remove(process)
            process.close()

    def _do_chores(self) -> None:
        if time.monotonic() >= self._chores_at:
            keep_partitions(self._house, retention_days=conf.retention_days)
            forget_workers(self._house)
            self._chores_at = time.monotonic() + CHORES_SECONDS

    def _fill_vacancies(self) -> None:
        for vacancy in [vacancy for vacancy in self._vacancies if vacancy[0] <= time.monotonic()]:
            self._spawn(failures=vacancy[1])
            self._vacancies.remove(vacancy)

    def _spawn(self, *, failures: int) -> None:
        plan = self.plan
        worker_id = heartbeat.register(
            self._house,
            supervisor_id=self.id,
            host=socket.gethostname(),
            name=plan.name,
            version=VERSION,
            concurrency=plan.concurrency,
            queues=plan.queues,
            lease_seconds=self.lease_seconds,
        )
        process = Process(Brief(worker_id, plan.queues, plan.concurrency, plan.verbosity), failures=failures)
        process.marks.extend(now() + self.lease_seconds)
        process.start()
        self.processes.append(process)
        self._heart_loop.wake()  # writes down the pid
        os.write(self._waker, b"p")

    def _reap(self) -> None:
        if not self._pulse.is_steady() or time.monotonic() < self._reap_at:
            return
        reaped = reap_lost(self._house)
        self._reap_at = time.monotonic() + REAP_SECONDS
        if reaped.requeued or reaped.dead:
            logger.warning("Reaped jobs of lost workers: %d requeued, %d dead", reaped.requeued, reaped.dead)
            self._announce(set(reaped.queues))

    def _promote(self) -> float:
        due_in = next_due_seconds(self._house)
        while due_in is not None and due_in <= 0 and (promoted := promote(self._house)):
            self._announce(set(promoted))
            due_in = next_due_seconds(self._house)
        return LONGEST_SLEEP_SECONDS if due_in is None else min(max(due_in, 0.01), LONGEST_SLEEP_SECONDS)

    def _drain(self) -> float:
        worker_ids = [process.worker_id for process in (*self.processes, *self._ended)]
        if is_drained(self._house, queues=self.plan.queues, worker_ids=worker_ids):
            logger.info("Drained")
            self.stop()
        return DRAIN_LOOK_SECONDS

    # Waking up

    def _announce(self, queues: set[str]) -> None:
        """Wake the own children at once, other workers by NOTIFY."""
        if queues:
            self._heard(queues)
            if conf.notify:
                announce(self._house, queues)

    def _heard(self, payloads: set[str] | None) -> None:
        """Wake the children for queues they serve; None stands for all."""
        if payloads is None or CANCEL in payloads:
            self._heart_loop.wake()
        if payloads is None or not self.plan.queues or payloads & set(self.plan.queues):
            for process in list(self.processes):
                process.order("wake")


def ending(exit_code: int | None) -> str:
    """Say in words how a process ended."""
    if exit_code is not None and exit_code < 0:
        return f"killed by {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}"
