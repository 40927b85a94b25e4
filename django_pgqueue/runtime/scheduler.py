"""Sees to the schedules for one command: what the code declares, and what is due."""

import logging
import time
from collections.abc import Callable, Iterable

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.housekeeping.declaring import Declaration, declare
from django_pgqueue.housekeeping.schedules import Compute, directly, fire_due
from django_pgqueue.services import SPELL_SECONDS

logger = logging.getLogger("django_pgqueue.worker")

DECLARE_SECONDS = 60.0
STRANGE_SECONDS = 5.0
"""When to look again where all that is due is unknown to this worker's code, or held by somebody."""

LOCKED_SECONDS = 0.2  # what is due and is still there is being seen to by another worker, or edited


class Scheduler:
    """Two duties of the steward.

    Args:
        announce: called with the payloads of wake-ups, once jobs are committed.
        compute: as of ``fire_due``.
    """

    def __init__(
        self, database: QueueConnection, announce: Callable[[set[str]], None], compute: Compute = directly
    ) -> None:
        self._database = database
        self._compute = compute
        self._announce = announce
        self._declare_at = self._look_at = 0.0  # monotonic
        self._told: dict[str, set[str]] = {}  # of which schedules what was logged

    def declare_schedules(self) -> float:
        """Bring code and table together, at the start and every minute; return the seconds until the next time."""
        now = time.monotonic()
        if now >= self._declare_at:
            self._tell(declare(self._database))
            self._declare_at = now + DECLARE_SECONDS
        return self._declare_at - now

    def fire_schedules(self, tick_seconds: float | None) -> float | None:
        """Make jobs of ticks that are over; return the seconds until the next look, None where no tick is known.

        Args:
            tick_seconds: until the next tick of any schedule; None where there is none.
        """
        now = time.monotonic()
        if tick_seconds is None or tick_seconds > 0 or now < self._look_at:
            return tick_seconds if tick_seconds is None or tick_seconds > 0 else self._look_at - now
        fired = fire_due(self._database, until=now + SPELL_SECONDS, compute=self._compute)
        if fired.payloads:
            self._announce(fired.payloads)
        if fired.jobs:
            pause = 0.0  # there may be more of them
        elif fired.next_seconds is None:
            pause = STRANGE_SECONDS
        else:
            pause = min(fired.next_seconds or LOCKED_SECONDS, STRANGE_SECONDS)
        self._look_at = time.monotonic() + pause
        return pause

    def _tell(self, found: Declaration) -> None:
        for name in found.new:
            logger.info("Schedule %s is new", name)
        for name in found.changed:
            logger.info("Schedule %s was changed in the code", name)
        for name in found.forgotten:
            logger.info("Schedule %s is removed: no code has declared it for 30 days", name)
        for name in self._fresh("edited", found.edited):
            logger.info("Schedule %s stays as it was edited in the admin, not as the code has it", name)
        for name in self._fresh("gone", found.gone):
            logger.info("Schedule %s is not in this code: this worker leaves it alone", name)
        for name in self._fresh("taken", found.taken):
            logger.warning("Schedule %s of the code is left out: one made in the admin has its name. Rename one", name)
        for name in self._fresh("wrong", found.wrong):
            logger.error("Schedule %s of the code is left out: %s", name, found.wrong[name])
        for name, task in found.strange.items():
            logger.error("Schedule %s waits: neither this worker nor another knows the task %s", name, task)

    def _fresh(self, kind: str, names: Iterable[str]) -> list[str]:
        """Return the names of which this was not told by the pass before."""
        before, now = self._told.get(kind, set()), set(names)
        self._told[kind] = now
        return sorted(now - before)
