"""Decide when to reap: conditions that this worker and the others must meet before their leases are taken."""

import logging
import time
from collections.abc import Callable, Collection, Iterable

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.jobs import leases
from django_pgqueue.jobs.stats import StatsBuffer
from django_pgqueue.maintenance.reaper import forget_workers, lapsed_workers, locked_workers, reap_gone, reap_lost
from django_pgqueue.records import ReapResult
from django_pgqueue.services import AdaptiveBatch
from django_pgqueue.worker.heartbeat import BEAT_SECONDS, RECONNECTED_SECONDS, SILENT_SECONDS, HeartbeatMonitor
from django_pgqueue.worker.processes import ProcessPool

logger = logging.getLogger("django_pgqueue.worker")

REAP_SECONDS = 1.0
FORGET_SECONDS = 3600.0

LATE_SECONDS = 1.0  # maximum delay of a heartbeat that still counts as in time

GONE_SECONDS = 2.0
"""Minimum time for which a command must be silent and without a session to count as gone."""

GAP_SECONDS = 2.0
"""Maximum time that counts from one look to the next: in a longer one the server may have been frozen."""


class SilenceTimer:
    """For how long worker processes have been seen in one state at every look: silent, their lease passed, or locked.

    One look proves nothing: the clock of the database may have been put forward, or its server may have been frozen,
    and a living process sends another heartbeat.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}  # by the id of a worker process
        self._looked_at = 0.0  # monotonic

    def see(self, worker_ids: Iterable[int], at: float) -> dict[int, float]:
        """Note who is in that state at an instant, monotonic; return for how many seconds each has been."""
        more = min(at - self._looked_at, GAP_SECONDS)
        self._seconds = {worker_id: self._seconds.get(worker_id, -more) + more for worker_id in worker_ids}
        self._looked_at = at
        return self._seconds

    def known(self) -> set[int]:
        """Return those that were in that state at the last look."""
        return set(self._seconds)

    def forget(self, worker_ids: Iterable[int]) -> None:
        for worker_id in worker_ids:
            self._seconds.pop(worker_id, None)


class Reaper:
    """Three services; ``announce`` is called with the queues and the concurrency keys of jobs that were reaped."""

    def __init__(
        self,
        database: QueueConnection,
        pool: ProcessPool,
        monitor: HeartbeatMonitor,
        *,
        announce: Callable[[Collection[str], Collection[str]], None],
        stats: StatsBuffer,
    ) -> None:
        self._database = database
        self._pool = pool  # whose own processes it knows better than by their sessions
        self._monitor = monitor
        self._announce = announce
        self._stats = stats
        self._reaping = AdaptiveBatch()
        self._lapsed, self._absent = SilenceTimer(), SilenceTimer()
        self._locked_of_lapsed, self._locked_of_absent = SilenceTimer(), SilenceTimer()

    def forget_workers(self) -> None:
        forget_workers(self._database)

    def forget_absences(self) -> None:
        """Reset how long others have been absent: this may be another server, where no session is visible."""
        self._absent.forget(self._absent.known())

    def reap_lost(self) -> float | None:
        """Settle jobs without a lease, once living workers have had time for a heartbeat. 0: there may be more."""
        if not self._monitor.is_reliable():
            return None
        lapsed = lapsed_workers(self._database, session_seconds=BEAT_SECONDS)  # -> seconds between its heartbeats
        seen, unknown = self._lapsed.see(lapsed, time.monotonic()), self._monitor.lease_seconds / 3
        silent = [
            worker_id
            for worker_id, seconds in lapsed.items()
            if seen[worker_id] >= (unknown if seconds is None else seconds) + LATE_SECONDS
        ]
        return self._reap(reap_lost, self._judged(silent, self._locked_of_lapsed))

    def reap_gone(self, *, has_running: bool) -> float | None:
        """Settle the jobs of commands that are gone; return 0 if there may be more.

        Waiting for their leases would only lose time: by then a living command has ordered its children to start
        nothing. After an outage all get time to connect.
        """
        if not has_running or not self._monitor.has_stood(RECONNECTED_SECONDS):
            self.forget_absences()
            return None
        return self._reap(reap_gone, self._judged(self._gone(), self._locked_of_absent))

    def _gone(self) -> list[int]:
        """Return those absent at each look for ``GONE_SECONDS``; if a look fails, nothing seen before counts."""
        at = time.monotonic()
        try:
            silent = leases.silent_workers(self._database, seconds=SILENT_SECONDS)
        except Exception:
            self.forget_absences()
            raise
        seen = self._absent.see(set(silent).difference(self._pool.worker_ids()), at)
        return [worker_id for worker_id, seconds in seen.items() if seconds >= GONE_SECONDS]

    def _judged(self, worker_ids: Collection[int], locks: SilenceTimer) -> list[int]:
        """Return those whose jobs may be taken: of locked rows, only those that have been locked for a lease.

        Until then their processes may live and be unable to say so, and they get the time for it afterwards. But what
        holds the lock may be the last heartbeat of a machine that is lost, half of which has come.

        Args:
            locks: those of the rows of workers that were found silent in the same way.
        """
        locked = locked_workers(self._database, worker_ids) if worker_ids else set()
        released = locks.known() - locked
        seen, patience = locks.see(locked, time.monotonic()), self._monitor.lease_seconds + LATE_SECONDS
        self._lapsed.forget(released)
        spared = {worker_id for worker_id in locked | released if seen.get(worker_id, 0.0) < patience}
        return [worker_id for worker_id in worker_ids if worker_id not in spared]

    def _reap(self, reap: Callable[..., ReapResult], worker_ids: list[int]) -> float | None:
        if not worker_ids:
            return None
        with self._reaping.taken() as limit:
            reaped = reap(self._database, worker_ids, limit=limit)
        if reaped.returned or reaped.dead:
            logger.warning("Reaped jobs of lost workers: %d go back, %d dead", reaped.returned, reaped.dead)
            self._stats.count_ends(reaped.ends)
            self._announce(reaped.queues, reaped.keys)
        return 0.0 if reaped.returned + reaped.dead >= limit else None
