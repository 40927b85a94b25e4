"""Serve several databases with one command: a supervisor for each, and one main thread that watches all of them.

Each has processes, threads and connections of its own, so that a database that is away stops none of the others.
"""

import contextlib
import dataclasses
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait

from django.core.management import CommandError
from django.db import Error, connections

from django_pgqueue.worker.config import WorkerConfig, name_databases, served
from django_pgqueue.worker.health import Probes, SharedProbes
from django_pgqueue.worker.http import PageServer
from django_pgqueue.worker.processes import SPAWN, MakeProcess
from django_pgqueue.worker.supervisor import (
    QUIET_SIGNAL,
    RESUME_SIGNAL,
    SETTLE_SECONDS,
    PageOf,
    Supervisor,
    planned_pages,
    stop_signals,
)

logger = logging.getLogger("django_pgqueue.worker")

LOOK_SECONDS = 1.0
"""Interval at which a database is looked for that was away when the command started."""


class SupervisorGroup:
    """Runs a plan on several databases to its end, as ``Supervisor`` does on one.

    Args:
        aliases: the databases.
        away: those that could not be reached, and are looked for.
        is_there: whether a database can be served now; may raise CommandError.
        metrics, make_process: as ``Supervisor``.

    Raises:
        ConfigurationError: probes or metrics cannot be answered at the planned address.
    """

    def __init__(
        self,
        plan: WorkerConfig,
        aliases: Sequence[str],
        away: Sequence[str],
        is_there: Callable[[str], bool],
        metrics: PageOf | None = None,
        *,
        make_process: MakeProcess = SPAWN.Process,
    ) -> None:
        self._probes = Probes(plan)
        shared = SharedProbes(self._probes, aliases)
        silent = {"health_port": None, "health_file": "", "metrics_port": None}
        name_databases()
        self._members: dict[str, Supervisor] = {}
        for alias in aliases:
            with served(alias):
                self._members[alias] = Supervisor(
                    dataclasses.replace(plan, database=alias, is_one_of_several=True, **silent),  # type: ignore[arg-type]
                    make_process=make_process,
                    probes=shared.of(alias),
                    is_metered=metrics is not None,
                )
        figures = {alias: member.figures for alias, member in self._members.items()}
        self._pages = PageServer(planned_pages(plan, self._probes, metrics and metrics(figures)))
        self._away = away
        self._is_there = is_there
        self._is_drain = plan.drain
        self._serving: dict[str, Supervisor] = {}
        self._untold: dict[str, float] = {}  # those whose start is not logged yet, and until when to wait, monotonic
        self._finishing: list[threading.Thread] = []
        self._found: dict[str, Supervisor] = {}  # there by now, and to be started by the main thread
        self._is_over = threading.Event()

    @property
    def exit_code(self) -> int:
        return max(member.exit_code for member in self._members.values())

    @property
    def is_stopping(self) -> bool:
        return all(member.is_stopping for member in self._members.values())

    def stop(self) -> None:
        """Stop all gracefully; called again, stop now. May be called from a signal handler or any thread."""
        for member in self._members.values():
            member.stop()

    def stop_once(self, *, within: float = math.inf, exit_code: int = 0) -> None:
        """As ``Supervisor.stop_once``, for all."""
        for member in self._members.values():
            member.stop_once(within=within, exit_code=exit_code)

    def quiet_on(self, number: int) -> None:
        for member in self._members.values():
            member.quiet_on(number)

    def run(self) -> None:
        """Work until all are drained, or stopped by a signal, as ``Supervisor.run``.

        Raises:
            ConfigurationError: no child can ever work.
        """
        connections.close_all()
        try:
            with stop_signals(self._stop_on), stop_signals(self.quiet_on, (QUIET_SIGNAL, RESUME_SIGNAL)):
                self._pages.start()
                self._start()
                try:
                    while self._serving or not self.is_stopping:
                        self._watch()
                finally:
                    for thread in self._finishing:
                        thread.join()
                self._probes.stopping()
        finally:
            self._is_over.set()
            for member in self._serving.values():
                member.close()
            self._pages.close()
            self._probes.close()
        for member in self._members.values():
            member.check_is_guarded()

    def _start(self) -> None:
        for alias in self._members:
            if alias not in self._away:
                self._serve(alias)
        for alias in self._away:
            if self._is_drain:
                logger.error("The database %r cannot be reached, and is not drained", alias)
                self._members[alias].stop_once(exit_code=1)
                continue
            logger.warning("The database %r cannot be reached, and is served once it can be", alias)
            threading.Thread(target=self._look_for, args=(alias,), name=f"pgqueue-look-{alias}", daemon=True).start()

    def _serve(self, alias: str) -> None:
        member = self._serving[alias] = self._members[alias]
        self._untold[alias] = time.monotonic() + SETTLE_SECONDS
        with served(alias):
            member.start()

    def _look_for(self, alias: str) -> None:
        told = ""
        while not self._is_over.wait(LOOK_SECONDS) and not self._members[alias].is_stopping:
            try:
                if self._is_there(alias):
                    self._found[alias] = self._members[alias]
                    return
            except (CommandError, Error) as error:
                if str(error) != told:
                    logger.error("The database %r is not served: %s", alias, told := str(error))  # noqa: TRY400
            finally:
                connections[alias].close()

    def _watch(self) -> None:
        while self._found:
            self._serve(self._found.popitem()[0])
        serving = list(self._serving.items())
        descriptors = [one for _, member in serving for one in member.waits_for]
        idle = [member.pool.changed_read for alias, member in self._members.items() if alias not in self._serving]
        seconds = min((member.wait_seconds for _, member in serving), default=LOOK_SECONDS)
        ready = wait([*descriptors, *idle], timeout=seconds)
        for news in idle:
            if news in ready:
                os.read(news, 1024)
        for alias, member in serving:
            with served(alias):
                member.watch(ready)
                self._tell_of_start(alias, member)
            if member.is_over:
                self._finish(alias, member)
        if not self._serving and not self._found:  # asked to stop, or drained: those that are away do not keep it
            self.stop_once()

    def _tell_of_start(self, alias: str, member: Supervisor) -> None:
        """Wait neither for one whose server is silent nor for the others."""
        if alias not in self._untold:
            return
        if member.is_settled or member.is_over or time.monotonic() > self._untold[alias]:
            del self._untold[alias]
            member.tell_of_start(wait_seconds=0)

    def _finish(self, alias: str, member: Supervisor) -> None:
        """Let one whose database is silent not delay the end of the others."""

        def finish() -> None:
            with served(alias):
                try:
                    with contextlib.closing(member):
                        member.finish()
                except Exception:
                    logger.exception("The command has not ended in order, and its exit code is 1")
                    member.exit_code = 1
                finally:
                    connections.close_all()

        del self._serving[alias]
        thread = threading.Thread(target=finish, name=f"pgqueue-finish-{alias}")
        self._finishing.append(thread)
        thread.start()

    def _stop_on(self, number: int) -> None:
        for member in self._members.values():
            member.stop_on(number)
