"""Runs the passes of housekeeping for one command, in turn, each when it is due."""

import logging
import time
from collections.abc import Callable

from django_pgqueue.base.conf import conf
from django_pgqueue.db import QueueConnection
from django_pgqueue.housekeeping.promote import next_due_seconds, promote
from django_pgqueue.housekeeping.reaper import forget_workers, reap_lost
from django_pgqueue.lifecycle import heartbeat
from django_pgqueue.lifecycle.drain import is_drained
from django_pgqueue.lifecycle.reap import settle_dead_process
from django_pgqueue.lifecycle.wake import announce
from django_pgqueue.runtime.crew import Crew
from django_pgqueue.runtime.duties import LONGEST_SLEEP_SECONDS, Duties
from django_pgqueue.runtime.heart import Pulse

logger = logging.getLogger("django_pgqueue.worker")

REAP_SECONDS = 1.0
CHORES_SECONDS = 3600.0
DRAIN_LOOK_SECONDS = 0.05
LOCKED_SECONDS = 0.2  # what is due and could not be promoted is held by somebody


class Steward:
    """Everything that any worker may do at any time, and what only this one can: settle and replace its children.

    Args:
        pulse: says whether this worker may judge others.
        wake: called with the queues that have work again, for the own children.
        drained: called when the plan is to drain and nothing is left to do; None otherwise.
    """

    def __init__(
        self,
        alias: str,
        crew: Crew,
        pulse: Pulse,
        *,
        wake: Callable[[set[str]], None],
        drained: Callable[[], None] | None,
    ) -> None:
        self.database = QueueConnection(alias, "housekeeping")
        self._crew = crew
        self._pulse = pulse
        self._wake = wake
        self._drained = drained
        self._forget_at = self._reap_at = 0.0
        self._duties = Duties(
            self.settle_ended,
            self._fill,
            self._forget_workers,
            self._reap,
            self._promote,
            self._look_whether_drained,
        )

    def pass_once(self) -> float:
        """Do what is due; return the seconds until the next pass."""
        return self._duties.pass_once()

    def _fill(self) -> float | None:
        self._crew.fill(self.database)
        return self._crew.next_start_seconds()

    def settle_ended(self) -> None:
        """Settle what ended children left, and remove their rows."""
        for process in list(self._crew.ended):
            leases = heartbeat.leases(self.database, [process.worker_id])
            started = process.marks.started()
            settled = settle_dead_process(self.database, leases, started=started, was_stopped=process.was_stopped)
            self._announce(set(settled.queues))
            if leases:
                logger.info(
                    "Process %d left %d jobs: %d go back, %d dead",
                    *(process.pid, len(leases), settled.returned, settled.dead),
                )
            if settled.returned + settled.dead < len(leases):
                continue  # somebody has locked a row; its marks are needed again
            heartbeat.deregister(self.database, [process.worker_id])
            self._crew.ended.remove(process)
            process.close()

    def _forget_workers(self) -> None:
        if time.monotonic() >= self._forget_at:
            forget_workers(self.database)
            self._forget_at = time.monotonic() + CHORES_SECONDS

    def _reap(self) -> None:
        if not self._pulse.is_steady() or time.monotonic() < self._reap_at:
            return
        reaped = reap_lost(self.database)
        self._reap_at = time.monotonic() + REAP_SECONDS
        if reaped.returned or reaped.dead:
            logger.warning("Reaped jobs of lost workers: %d go back, %d dead", reaped.returned, reaped.dead)
            self._announce(set(reaped.queues))

    def _promote(self) -> float:
        due_in = next_due_seconds(self.database)
        while due_in is not None and due_in <= 0 and (promoted := promote(self.database)):
            self._announce(set(promoted))
            due_in = next_due_seconds(self.database)
        if due_in is None:
            return LONGEST_SLEEP_SECONDS
        return min(due_in, LONGEST_SLEEP_SECONDS) if due_in > 0 else LOCKED_SECONDS

    def _look_whether_drained(self) -> float | None:
        if self._drained is None:
            return None
        if is_drained(self.database, queues=self._crew.plan.queues, worker_ids=self._crew.worker_ids()):
            self._drained()
        return DRAIN_LOOK_SECONDS

    def _announce(self, queues: set[str]) -> None:
        """Wake the own children at once, other workers by NOTIFY."""
        if queues:
            self._wake(queues)
            if conf.notify:
                announce(self.database, sorted(queues))
