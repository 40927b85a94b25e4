"""Decide when to reap: conditions that this worker and the others must meet before their leases are taken."""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.jobs import leases
from django_pgqueue.jobs.stats import StatsBuffer
from django_pgqueue.maintenance.reaper import forget_workers, lapsed_workers, locked_workers, reap_gone, reap_lost
from django_pgqueue.records import ReapResult
from django_pgqueue.services import AdaptiveBatch
from django_pgqueue.worker.heartbeat import (
    BEAT_SECONDS,
    RECONNECTED_SECONDS,
    SILENT_SECONDS,
    HeartbeatMonitor,
    SilentWorkers,
)
from django_pgqueue.worker.processes import ProcessPool

logger = logging.getLogger("django_pgqueue.worker")

REAP_SECONDS = 1.0
FORGET_SECONDS = 3600.0

LATE_SECONDS = 1.0  # maximum delay of a heartbeat that still counts as in time

GAP_SECONDS = 2.0
"""Maximum time that counts from one look to the next: in a longer one the server may have stood still for all."""


class LapsedLeases:
    """For how long the leases of others have been seen to have passed, or their rows to be locked.

    One look proves nothing: the clock of the database may have been put forward, or its server may have stood still for
    all, and a process that lives says so with its next heartbeat.
    """

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}  # for how many seconds, by the id of a worker process
        self._looked_at = 0.0  # monotonic

    def silent(self, lapsed: Mapping[int, float | None], *, unknown_seconds: float) -> list[int]:
        """Return the workers whose lease had passed at each look for longer than their heartbeats are apart.

        Args:
            lapsed: seconds between the heartbeats of each worker whose lease has passed now; None: its row does not
                say.
            unknown_seconds: the same where the row does not say.
        """
        now = time.monotonic()
        more = min(now - self._looked_at, GAP_SECONDS)
        self._seen = {worker_id: self._seen.get(worker_id, -more) + more for worker_id in lapsed}
        self._looked_at = now
        return [
            worker_id
            for worker_id, seconds in lapsed.items()
            if self._seen[worker_id] >= (unknown_seconds if seconds is None else seconds) + LATE_SECONDS
        ]

    def known(self) -> set[int]:
        return set(self._seen)

    def forget(self, worker_ids: Iterable[int]) -> None:
        for worker_id in worker_ids:
            self._seen.pop(worker_id, None)


class Reaper:
    """Three services of maintenance.

    Args:
        pool: the children of this command, of which it knows better than by their sessions.
        monitor: says whether this worker may judge others.
        tell: called with the queues and the concurrency keys of the jobs that were reaped.
        stats: counts them.
    """

    def __init__(
        self,
        database: QueueConnection,
        pool: ProcessPool,
        monitor: HeartbeatMonitor,
        *,
        tell: Callable[[Collection[str], Collection[str]], None],
        stats: StatsBuffer,
    ) -> None:
        self._database = database
        self._pool = pool
        self._monitor = monitor
        self._tell = tell
        self._stats = stats
        self._reaping = AdaptiveBatch()
        self._lapses = LapsedLeases()
        self._locks_of_lost, self._locks_of_gone = LapsedLeases(), LapsedLeases()
        self._absences = SilentWorkers()

    def forget_workers(self) -> None:
        forget_workers(self._database)

    def forget_absences(self) -> None:
        """Count anew for how long others have been absent: this may be another server, where no session is visible."""
        self._absences.forget()

    def reap_lost(self) -> float | None:
        """Settle what has no lease; after an outage the living first get time to say so. 0: there may be more."""
        if not self._monitor.is_reliable():
            return None
        lapsed = lapsed_workers(self._database, session_seconds=BEAT_SECONDS)
        silent = self._lapses.silent(lapsed, unknown_seconds=self._monitor.lease_seconds / 3)
        if not (lost := self._judged(silent, self._locks_of_lost)):
            return None
        with self._reaping.taken() as limit:
            reaped = reap_lost(self._database, lost, limit=limit)
        return 0.0 if self._report(reaped, limit) else None

    def reap_gone(self, *, has_running: bool) -> float | None:
        """Settle what commands were running that are gone; return 0 where there may be more.

        To wait for their leases would only lose time: one that lives has told its children by then to start nothing.
        After an outage all get time to connect.
        """
        if not has_running or not self._monitor.has_stood(RECONNECTED_SECONDS):
            self._absences.forget()
            return None
        if not (gone := self._judged(self._absences.still_silent(self._absent), self._locks_of_gone)):
            return None
        with self._reaping.taken() as limit:
            reaped = reap_gone(self._database, gone, limit=limit)
        return 0.0 if self._report(reaped, limit) else None

    def _absent(self) -> set[int]:
        return set(leases.silent_workers(self._database, seconds=SILENT_SECONDS)).difference(self._pool.worker_ids())

    def _judged(self, worker_ids: Collection[int], locks: LapsedLeases) -> list[int]:
        """Return those whose jobs may be taken: of locked rows, only those that have been locked for a lease.

        Until then their processes may live and be unable to say so, and they get the time for it afterwards. But what
        holds the lock may be the last heartbeat of a machine that is lost, half of which has come.

        Args:
            locks: for how long the rows of those have been locked that were found silent in the same way.
        """
        locked = locked_workers(self._database, worker_ids) if worker_ids else set()
        released = locks.known() - locked
        overdue = locks.silent(dict.fromkeys(locked, self._monitor.lease_seconds), unknown_seconds=0.0)
        self._lapses.forget(released)
        spared = (locked | released).difference(overdue)
        return [worker_id for worker_id in worker_ids if worker_id not in spared]

    def _report(self, reaped: ReapResult, limit: int) -> bool:
        if reaped.returned or reaped.dead:
            logger.warning("Reaped jobs of lost workers: %d go back, %d dead", reaped.returned, reaped.dead)
            self._stats.count_ends(reaped.ends)
            self._tell(reaped.queues, reaped.keys)
        return reaped.returned + reaped.dead >= limit
