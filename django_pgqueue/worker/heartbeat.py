"""Heartbeat of a command and its processes, and the session by which others see that it lives.

All workers can see the one session of each command: while it is there, the command may live. It is the listener's,
because that one is known to be direct: behind a pooler no notification would arrive, and sessions would come and go
with other people's. When a process is killed, its machine closes the connection, and the server ends the session.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.notify import announce_queues
from django_pgqueue.jobs import leases as heartbeat
from django_pgqueue.jobs.leases import BEAT_SECONDS, SILENT_SECONDS, release
from django_pgqueue.records import Lease
from django_pgqueue.worker.processes import ProcessPool, WorkerProcess, resident_bytes
from django_pgqueue.worker.shared_state import now

logger = logging.getLogger("django_pgqueue.worker")

SIGN_OF_LIFE_SECONDS = 1.0  # between heartbeats of a command that has lost its session, until it has another


class Liveness:
    """That of this command. Set by the listener's thread, read by the heartbeat's."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.pid = 0  # of the server's process; 0: there is none
        self._changed = changed  # called when it has begun or ended
        self._was_there = False

    def begin(self, pid: int) -> None:
        self.pid, self._was_there = pid, True
        self._changed()

    def end(self) -> None:
        self.pid = 0
        self._changed()

    def forgo(self) -> None:
        """Go without a session: behind a pooler others could not see it."""
        self.pid, self._was_there = 0, False
        self._changed()

    @property
    def beat_seconds(self) -> float:
        if self.is_lost:
            return SIGN_OF_LIFE_SECONDS
        return BEAT_SECONDS if self.pid else math.inf

    @property
    def is_lost(self) -> bool:
        return self._was_there and not self.pid


@dataclass
class HeartbeatMonitor:
    """For how long heartbeats have gone through without a failure or a gap."""

    lease_seconds: float
    first: float | None = None
    last: float = field(default_factory=now)

    def beat(self, at: float) -> None:
        if self.first is None or at - self.last > self.lease_seconds / 2:
            self.first = at
        self.last = at

    def stumble(self) -> None:
        """Start over: a heartbeat has failed, and those of other workers may have failed too."""
        self.first = None

    def has_stood(self, seconds: float) -> bool:
        return self.first is not None and now() - self.last < self.lease_seconds and self.last - self.first >= seconds

    def is_reliable(self) -> bool:
        """Whether all living workers have had the time of a full lease to send a heartbeat."""
        return self.has_stood(self.lease_seconds)


class Heartbeat:
    """Renews the leases of the pool's processes, and reads what the database believes they are running.

    Args:
        told_to_stop: called, with every beat, while a stop of the command is requested; with who asked for it.
        told_quiet: called when it is asked to be quiet, with who asked for it, or to go on, with None.
    """

    def __init__(
        self,
        alias: str,
        pool: ProcessPool,
        session: Liveness,
        *,
        told_to_stop: Callable[[str], None],
        told_quiet: Callable[[str | None], None],
    ) -> None:
        self.monitor = HeartbeatMonitor(pool.lease_seconds)
        self.database = QueueConnection(alias, "heartbeat", patience_seconds=max(pool.lease_seconds / 2, 2.0))
        self._session = session
        self._pool = pool
        self._told_to_stop = told_to_stop
        self._told_quiet = told_quiet
        self._stuck: set[int] = set()  # worker ids of processes that were stuck at the last beat
        self._strangers: dict[int, int] = {}  # run ids of rows that their process did not know -> its cycles then

    def pass_once(self) -> float:
        try:
            all_stand = self._beat()
        except Exception:
            self.monitor.stumble()
            raise
        finally:
            self.mind_session()
        seconds = min(self._pool.lease_seconds / 3, self._session.beat_seconds)
        return seconds if all_stand else min(seconds, SIGN_OF_LIFE_SECONDS)

    def mind_session(self) -> None:
        """Shorten the leases, while the session is lost, to what others allow a command whose session they do not see.

        They count from its last heartbeat. So this is done when the session ends, as a heartbeat under way may never
        come back, and after each heartbeat, which has just renewed the leases; may be called from any thread.
        """
        if not self._session.is_lost:
            return
        for process in list(self._pool.living):
            process.shared.cap_lease(self.monitor.last + min(SILENT_SECONDS, self._pool.lease_seconds))

    def _beat(self) -> bool:
        """Return whether all leases were renewed. Else some rows were locked, or gone."""
        processes = {process.worker_id: process for process in list(self._pool.living)}
        begun, quiet_by, tells_quiet = now(), self._pool.quiet_by, not self._pool.is_quiet_written
        standing, stop_by, quiet_of = heartbeat.heartbeat(
            self.database,
            {worker_id: process.pid for worker_id, process in processes.items()},
            lease_seconds=self._pool.lease_seconds,
            session_pid=self._session.pid,
            memory_bytes={worker_id: resident_bytes(process.pid) for worker_id, process in processes.items()},
            tells_quiet=tells_quiet,
            quiet_by=quiet_by,
        )
        self.monitor.beat(begun)
        for worker_id in standing & processes.keys():
            if self._pool.is_stuck(processes[worker_id]):
                processes[worker_id].shared.cap_lease(begun)
            else:
                processes[worker_id].shared.renew_lease(begun + self._pool.lease_seconds)
        for worker_id in processes.keys() - standing:
            self._pool.register_again(self.database, processes[worker_id])
        if stop_by is not None:
            self._told_to_stop(stop_by)
        if tells_quiet:
            self._pool.note_quiet(quiet_by, standing)
        else:
            self._heed_quiet(quiet_by, quiet_of)
        self._compare_books(processes)
        return standing >= processes.keys()

    def _heed_quiet(self, told: str | None, quiet_of: Mapping[int, str | None]) -> None:
        """Pass on what a row says that is not as this command has written it: a user has asked for it."""
        if self._pool.quiet_by != told or not self._pool.is_quiet_written:
            return  # it has changed meanwhile
        if others := {worker_id: by for worker_id, by in quiet_of.items() if (by is None) is not (told is None)}:
            by = next(iter(others.values()))
            self._told_quiet(by)
            self._pool.note_quiet(by, others)

    def _compare_books(self, processes: dict[int, WorkerProcess]) -> None:
        """Pass kill requests on; release rows unknown to their process though its consumer finished a cycle since.

        The process never got the answer to that claim. A consumer that has not finished a cycle may still be recording
        its claim.
        """
        cycles = {worker_id: process.shared.cycles() for worker_id, process in processes.items()}
        leases = heartbeat.worker_leases(self.database, list(processes))
        killed = [lease for lease in leases if lease.is_kill_requested]
        for worker_id, process in processes.items():
            process.killed = frozenset(lease.run_id for lease in killed if lease.worker_id == worker_id)
            for run_id in process.killed:
                process.order("kill", str(run_id))
        self._free_of_stuck(processes, leases)
        since = {worker_id: process.shared.cycles() for worker_id, process in processes.items()}
        held = {worker_id: process.shared.held() for worker_id, process in processes.items()}
        strangers = [lease for lease in leases if lease.run_id not in held[lease.worker_id]]
        if lost := [
            lease for lease in strangers if self._strangers.get(lease.run_id, math.inf) < cycles[lease.worker_id]
        ]:
            logger.warning("Releasing %d jobs whose claim was committed but never answered", len(lost))
            self._release(lost)
        self._strangers = {lease.run_id: since[lease.worker_id] for lease in strangers}

    def _free_of_stuck(self, processes: dict[int, WorkerProcess], leases: Sequence[Lease]) -> None:
        """Give back the jobs that stuck processes, whose consumers finish no cycle, have fetched and not begun.

        Their right to begin jobs has ended, so a consumer that goes on gives up the jobs that it holds. But a slot may
        have checked that right just before: jobs that may start only once stay with their process.
        """
        stuck = {worker_id for worker_id, process in processes.items() if self._pool.is_stuck(process)}
        for worker_id in stuck:
            process, shared = processes[worker_id], processes[worker_id].shared
            unbegun = set() if shared.is_lease_valid() else shared.unbegun()
            mine = [lease for lease in leases if lease.worker_id == worker_id]
            unrun = [lease for lease in mine if lease.run_id in unbegun and lease.max_attempts > 1]
            if worker_id not in self._stuck:
                running = [f"job {lease.id} ({lease.task})" for lease in mine if lease.run_id in shared.running()]
                logger.error(
                    "Process %d has not finished a cycle for %d s, while it runs %s: it begins nothing, "
                    "and %d jobs go back",
                    *(process.pid, process.stalled_seconds, ", ".join(running[:5]) or "nothing", len(unrun)),
                )
            self._release(unrun)
        self._stuck = stuck

    def _release(self, leases: Sequence[Lease]) -> None:
        released = set(release(self.database, leases)) if leases else set()
        announce_queues(self.database, {lease.queue for lease in leases if lease.id in released})
