"""Parent process of a worker command: starts, watches and stops the children, and never runs a job.

It owns the signals, the rows in ``pgqueue_workers``, the heartbeat, LISTEN and maintenance, each on a thread of its
own, so no handler can starve them. Children get its orders through pipes and die with it.
"""

import json
import logging
import math
import os
import secrets
import signal
import socket
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any

from django.db import Error, OperationalError, connections

from django_pgqueue.conf import conf
from django_pgqueue.db.notify import KILLS, MAINTAIN, keys_in, limits_in, queues_in
from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.jobs.stats import ProcessCounters
from django_pgqueue.outbox.relay import Relay
from django_pgqueue.services import ServiceRunner
from django_pgqueue.signals import sent_elsewhere
from django_pgqueue.validation import UNNAMED
from django_pgqueue.version import VERSION
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.health import HealthMonitor, Probes, ProbesOfOne
from django_pgqueue.worker.heartbeat import Heartbeat, Liveness
from django_pgqueue.worker.http import Address, Page, PageServer
from django_pgqueue.worker.listener import Listener
from django_pgqueue.worker.maintenance import MaintenanceRunner, TableMaintenance
from django_pgqueue.worker.metrics import CommandCounters, CommandMetrics, on_enqueued
from django_pgqueue.worker.processes import SPAWN, MakeProcess, ProcessPool
from django_pgqueue.worker.user_code import KeyThread, UserThread

logger = logging.getLogger("django_pgqueue.worker")

FAREWELL_SECONDS = 5.0  # timeout of the end of all service threads when the command ends, and of each other one
QUIET_SIGNAL, RESUME_SIGNAL = signal.SIGUSR1, signal.SIGUSR2  # SIGTSTP is Ctrl-Z, and would suspend the children
LONG_SECONDS = 60.0  # maximum time of a maintenance service without being named in the log

SETTLE_SECONDS = 10.0
"""Timeout of the wait for the first answer to LISTEN: the first line of the log says whether it works."""


PageOf = Callable[[Mapping[str, Callable[[], CommandMetrics]]], Page]


def planned_pages(plan: WorkerConfig, probes: ProbesOfOne, metrics: Page | None) -> dict[Address, dict[str, Page]]:
    """Return the pages that a command answers with, by address and path."""
    pages: dict[Address, dict[str, Page]] = defaultdict(dict)
    if plan.health_port:
        pages[plan.health_host, plan.health_port] |= probes.pages
    if metrics and plan.metrics_port:
        pages[plan.metrics_host, plan.metrics_port]["/metrics"] = metrics
    return pages


@contextmanager
def stop_signals(
    handle: Callable[[int], None], numbers: Collection[signal.Signals] = (signal.SIGTERM, signal.SIGINT)
) -> Iterator[None]:
    """Call ``handle`` with the number of each of these signals that comes inside; afterwards all is as it was before.

    For the main thread only. What handles them may come between any two instructions of it, and must not log. One that
    was blocked and has come before is handled at once.
    """

    def called(number: int, _: object) -> None:
        handle(number)

    previous = {number: signal.signal(number, called) for number in numbers}
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in previous.items():
            signal.signal(number, handler)


class Supervisor:
    """Runs a plan to its end.

    Args:
        metrics: makes the page of metrics of the function that returns the figures, by alias; None: there is none.
        make_process: makes the worker processes.
        probes: of the command, where it serves several databases; None: those of the plan.
        is_metered: whether there is a page of metrics of the command, where that is not made here.

    Raises:
        ConfigurationError: probes or metrics cannot be answered at the planned address.
    """

    def __init__(
        self,
        plan: WorkerConfig,
        metrics: PageOf | None = None,
        *,
        make_process: MakeProcess = SPAWN.Process,
        probes: ProbesOfOne | None = None,
        is_metered: bool = False,
    ) -> None:
        self.plan, self.alias = plan, plan.alias
        self.exit_code = 0  # of the command, once run() has returned
        self._signals_seen: list[str] = []
        self._quiet_signals_seen: list[int] = []
        self._is_long_told = False
        self._is_unguarded = False  # the main module runs its command whenever it is imported
        self._stop_until: float | None = None  # stopping: how long to wait for running jobs, monotonic
        self._asked_at = math.inf  # since when each outbox must have been found empty before it is drained, monotonic
        self._asked_after = -1  # number of jobs that had ended by then
        self._probes = probes or Probes(plan)
        self._pages = PageServer(planned_pages(plan, self._probes, metrics and metrics({self.alias: self.figures})))
        is_metered |= metrics is not None
        self._counters = CommandCounters()
        meter = self._counters.made() if is_metered else None
        self.pool = ProcessPool(
            plan,
            supervisor_id=secrets.randbits(63),
            lease_seconds=conf.lease_seconds,
            counters=self._counters if is_metered else None,
            make_process=make_process,
        )
        self._make_services(meter)
        self._make_loops()
        self._health = HealthMonitor(
            self._probes,
            self.pool,
            self._heartbeat.monitor,
            (self._maintenance_loop, self._heartbeat_loop),
            is_stopping=lambda: self.is_stopping,
        )
        if meter:
            on_enqueued(meter.enqueued, only_on=self.alias if plan.is_one_of_several else None)

    def _make_services(self, meter: ProcessCounters | None) -> None:
        """Make the services; ``meter``: the counters of this process for metrics."""
        session = Liveness(changed=self._session_changed)
        self._heartbeat = Heartbeat(
            self.alias, self.pool, session, told_to_stop=self._told_to_stop, told_quiet=self._set_quiet
        )
        self._receivers, self._keys = UserThread("signals"), KeyThread()
        self._maintenance = MaintenanceRunner(
            self.alias,
            self.pool,
            self._heartbeat.monitor,
            wake=self._notified,
            drained=self._drained if self.plan.drain else None,
            meter=meter,
            compute=self._keys.compute,
        )
        self._listener = Listener(self.alias, session, self._notified, self.plan.served)
        self._tables = TableMaintenance(self.alias, self.pool)
        self._relays = [Relay(self.alias, outbox) for outbox in conf.outboxes]

    def _make_loops(self) -> None:
        """Make the threads of the services."""
        beat, pause = self._heartbeat.pass_once, conf.lease_seconds / 3
        self._heartbeat_loop = ServiceRunner("heartbeat", beat, longest_pause=pause)
        self._maintenance_loop = ServiceRunner("maintenance", self._maintain, stop=self._maintenance.services.stop)
        self._listen_loop = ServiceRunner("listener", self._listener.pass_once, stop=self._listener.stop)
        self._tables_loop = ServiceRunner("table-maintenance", self._tables.pass_once, stop=self._tables.stop)
        self._relay_loops = [
            ServiceRunner(f"relay of {relay.outbox}", relay.serve_once, stop=relay.stop) for relay in self._relays
        ]
        self._loops = (
            *(self._maintenance_loop, self._heartbeat_loop, self._listen_loop, self._tables_loop),
            *self._relay_loops,
        )

    def run(self) -> None:
        """Work until drained, or stopped by SIGTERM or SIGINT; a second signal does not wait for running jobs.

        Returns when all children have ended and their jobs are settled.

        Raises:
            ConfigurationError: no child can ever work.
        """
        connections.close_all()
        try:
            with stop_signals(self.stop_on), stop_signals(self.quiet_on, (QUIET_SIGNAL, RESUME_SIGNAL)):
                self.start()
                self.tell_of_start()
                while not self.is_over:
                    self.watch(wait(self.waits_for, timeout=self.wait_seconds))
                self.finish()
        finally:
            self.close()
        self.check_is_guarded()

    def close(self) -> None:
        """End the processes that are there still, and what answers for them."""
        for process in self.pool.living:
            process.kill()
        self._pages.close()
        self._probes.close()

    @property
    def is_over(self) -> bool:
        return self.is_stopping and not self.pool.living

    def check_is_guarded(self) -> None:
        """Raise ConfigurationError where no child can ever work."""
        if self._is_unguarded:
            raise ConfigurationError(
                f"{getattr(sys.modules['__main__'], '__file__', 'The script')} runs its command whenever it is "
                "imported, as each worker process does, so none of them can work. Put its last lines under  "
                'if __name__ == "__main__":  or start the worker by python -m django pgqueue_worker.'
            )

    def figures(self) -> CommandMetrics:
        """May be called from any thread."""
        living, at = list(self.pool.living), time.monotonic()
        done_at = {**self._maintenance.services.done_at, **self._tables.services.done_at}
        done_at |= {loop.service: loop.done_at for loop in self._loops if loop.done_at is not None}
        return CommandMetrics(
            sums=self._counters.sums(),
            processes=len(living),
            slots=len(living) * self.plan.concurrency,
            busy=sum(process.shared.busy() for process in living),
            is_quiet=self.pool.quiet_by is not None,
            handed_over={relay.outbox: relay.handed_over for relay in self._relays},
            pass_ages={service: at - done for service, done in done_at.items()},
        )

    def stop(self) -> None:
        """Stop gracefully; called again, stop now. May be called from a signal handler or any thread."""
        timeout = 0.0 if self.is_stopping else self.plan.shutdown_timeout_seconds
        self._stop_until = time.monotonic() + timeout
        self.pool.wake_main_thread()

    def stop_once(self, *, within: float = math.inf, exit_code: int = 0) -> None:
        """Stop gracefully, unless it is stopping already. May be called from any thread.

        Args:
            within: seconds for running jobs to finish, where that is less than planned.
        """
        if not self.is_stopping:
            self.exit_code = exit_code
            self._stop_until = time.monotonic() + min(within, self.plan.shutdown_timeout_seconds)
            self.pool.wake_main_thread()

    @property
    def is_stopping(self) -> bool:
        return self._stop_until is not None

    def stop_on(self, number: int) -> None:
        self._signals_seen.append(signal.Signals(number).name)  # logged by watch(): a handler may interrupt logging
        self.stop()

    def quiet_on(self, number: int) -> None:
        self._quiet_signals_seen.append(number)
        self.pool.wake_main_thread()

    def start(self) -> None:
        """Start all threads, and answer probes."""
        self._obey_quiet_signals()  # those that came early, before there is a process that could claim
        self._maintenance_loop.start()
        self._heartbeat_loop.start()
        self._tables_loop.start()
        for loop in self._relay_loops:
            loop.start()
        self._health.start()
        self._pages.start()
        if self.plan.listen:
            self._listen_loop.start()

    @property
    def is_settled(self) -> bool:
        """Whether it is known if LISTEN works."""
        return not self.plan.listen or self._listener.is_settled.is_set()

    def tell_of_start(self, *, wait_seconds: float = SETTLE_SECONDS) -> None:
        """Log the plan once LISTEN works, or does not."""
        if self.plan.listen:
            self._listener.is_settled.wait(wait_seconds)
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

    @property
    def waits_for(self) -> list[int]:
        """Descriptors to wait for: ends of processes, and their news."""
        return [*(process.sentinel for process in self.pool.living), self.pool.changed_read]

    @property
    def wait_seconds(self) -> float:
        """Maximum time between two calls of ``watch``."""
        return 0.2 if self.is_stopping or self.pool.is_recycling() else 1.0

    def watch(self, ready: Collection[Any]) -> None:
        """Handle ends of processes, signals and orders; ``ready``: those of ``waits_for`` that are."""
        self._health.watched_at = time.monotonic()
        news = self.pool.changed_read
        if news in ready:
            os.read(news, 1024)
            self._heartbeat_loop.wake()  # a new child's pid must be written down
        for process in list(self.pool.living):
            if process.has_ended(is_ending=process.sentinel in ready):
                if process.is_unguarded:
                    self._is_unguarded = True
                    self.pool.close()
                    self.stop()
                self.pool.remove(process)
                self._maintenance_loop.wake()
        while self._signals_seen:
            name = self._signals_seen.pop(0)
            logger.info("Stopping on %s%s", name, self._patience_after(name))
        self._obey_quiet_signals()
        self.pool.remove_ignoring_stop()
        if self.pool.remove_stuck():
            self._heartbeat_loop.wake()  # it may begin jobs again once its lease is renewed
        self._tell_of_long_service()
        if self._stop_until is not None:
            self._press_to_stop(self._stop_until)
        elif self.pool.recycle():
            self._maintenance_loop.wake()

    def _obey_quiet_signals(self) -> None:
        while self._quiet_signals_seen:
            number = self._quiet_signals_seen.pop(0)
            self._set_quiet(QUIET_SIGNAL.name if number == QUIET_SIGNAL else None)
            self._heartbeat_loop.wake()

    def _maintain(self) -> float:
        with sent_elsewhere(self._receivers.call_later):
            return self._maintenance.pass_once()

    def _tell_of_long_service(self) -> None:
        seconds = self._maintenance.services.doing_seconds()
        if seconds < LONG_SECONDS:
            self._is_long_told = False
        elif not self._is_long_told:
            self._is_long_told = True
            logger.error(
                "Maintenance has been at its service %s for %d s, and runs no other",
                self._maintenance.services.doing,
                seconds,
            )

    def _patience_after(self, name: str) -> str:
        timeout = (self._stop_until or 0.0) - time.monotonic()
        if timeout <= 0:
            return ", not waiting for jobs"
        if not (busy := sum(process.shared.busy() for process in list(self.pool.living))):
            return ""
        again = "press Ctrl-C again to stop now" if name == "SIGINT" else "a second signal stops now"
        return f": waiting up to {timeout:.0f} s for {busy} running job{'s' if busy > 1 else ''}; {again}"

    def _press_to_stop(self, until: float) -> None:
        self.pool.close()
        self.pool.broadcast("stop")
        if time.monotonic() > until:
            for process in list(self.pool.living):
                logger.warning("Process %d has not stopped in time and is ended", process.pid)
                process.kill()

    def finish(self) -> None:
        self.pool.close()
        self._probes.stopping()
        for loop in self._loops:
            loop.stop()
        until = time.monotonic() + FAREWELL_SECONDS
        for loop in self._loops:
            if loop.is_alive():
                loop.join(max(until - time.monotonic(), 0.0))
        for process in list(self.pool.living):  # came in while the door was being closed
            process.kill()
            process.has_ended(is_ending=True)
            self.pool.remove(process)
        try:
            if self._maintenance_loop.is_alive():
                raise OperationalError(f"maintenance is still at its service {self._maintenance.services.doing}")
            with sent_elsewhere(self._receivers.call_later):
                self._maintenance.finish()
        except Error as error:
            logger.warning("Jobs of this worker are not settled until their leases expire: %s", error)
        self._keys.close(0)
        if not self._receivers.close(FAREWELL_SECONDS):
            logger.warning("Receivers of signals have not returned, and are not waited for any longer")
        self._close_connections()
        self._health.stop(FAREWELL_SECONDS)
        logger.info("Stopped")

    def _close_connections(self) -> None:
        """Close those of threads that have ended; one that has not may be in the middle of using its own."""
        for loop, owner in (
            (self._maintenance_loop, self._maintenance.database),
            (self._heartbeat_loop, self._heartbeat.database),
            (self._listen_loop, self._listener),
            (self._tables_loop, self._tables.database),
        ):
            if not loop.is_alive():
                owner.close()
        for loop, relay in zip(self._relay_loops, self._relays, strict=True):
            if not loop.is_alive():
                relay.close()

    def _drained(self) -> None:
        """Stop once each outbox was found empty after the last job has ended: that may have put a call into any."""
        if (finished := self.pool.finished()) != self._asked_after:
            self._asked_at, self._asked_after = time.monotonic(), finished
        if late := [relay for relay in self._relays if relay.empty_at < self._asked_at]:
            for relay in late:
                relay.wake()
            return
        if not self.is_stopping:
            logger.info("Drained")
            self.stop()

    def _told_to_stop(self, by: str) -> None:
        if not self.is_stopping:
            logger.info("Stopping, as %s has asked for", by or UNNAMED)
            self.stop()

    def _set_quiet(self, by: str | None) -> None:
        """Claim nothing, as ``by`` has asked for, or claim again; called by the main and the heartbeat's thread."""
        if (by is None) is (self.pool.quiet_by is None):
            return
        self.pool.set_quiet(by)
        if by is None:
            logger.info("Claiming jobs again")
        else:
            logger.info("Quiet, as %s has asked for: claiming no jobs until asked to resume", by or UNNAMED)

    def _session_changed(self) -> None:
        self._heartbeat.mind_session()
        self._heartbeat_loop.wake()

    def _notified(self, payloads: set[str] | None) -> None:
        if payloads is None or KILLS in payloads:
            self._heartbeat_loop.wake()
        if keys := {""} if payloads is None else keys_in(payloads):
            self._maintenance.admit(keys)
            self._maintenance_loop.wake()
        if payloads is None:
            self.pool.broadcast("wake")
            return
        if MAINTAIN in payloads:
            self._maintenance_loop.wake()
        if self.plan.served.among(limits_in(payloads)):
            self.pool.broadcast("limits")
        if queues := self.plan.served.among(queues_in(payloads)):
            self.pool.broadcast("wake", json.dumps(queues))
