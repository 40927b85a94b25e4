"""The heartbeat of one command: one statement for all its processes, and a comparison of books."""

import logging
import math
from dataclasses import dataclass, field

from django_pgqueue.db import QueueConnection
from django_pgqueue.lifecycle import heartbeat
from django_pgqueue.lifecycle.release import release
from django_pgqueue.runtime.crew import Crew
from django_pgqueue.runtime.marks import now
from django_pgqueue.runtime.process import Process

logger = logging.getLogger("django_pgqueue.worker")


@dataclass
class Pulse:
    """For how long heartbeats have gone through without a failure or a gap."""

    lease_seconds: float
    first: float | None = None
    last: float = field(default_factory=now)

    def beat(self, at: float) -> None:
        if self.first is None or at - self.last > self.lease_seconds / 2:
            self.first = at
        self.last = at

    def stumble(self) -> None:
        """Start over: a beat has failed, and who knows for whom else."""
        self.first = None

    def is_steady(self) -> bool:
        """Whether everybody who is alive has had a full lease's time to say so."""
        return self.first is not None and now() - self.last < self.lease_seconds <= self.last - self.first


class Heart:
    """Renews the leases of the crew's processes, and reads what the database believes they are running."""

    def __init__(self, alias: str, crew: Crew) -> None:
        self.pulse = Pulse(crew.lease_seconds)
        self.database = QueueConnection(alias, "heartbeat")
        self._crew = crew
        self._strangers: dict[int, int] = {}  # marks of rows that their process did not know -> its turns then

    def pass_once(self) -> float:
        """Beat once; return the seconds until the next beat."""
        try:
            self._beat()
        except Exception:
            self.pulse.stumble()
            raise
        return self._crew.lease_seconds / 3

    def _beat(self) -> None:
        processes = {process.worker_id: process for process in list(self._crew.living)}
        begun = now()
        standing = heartbeat.beat(
            self.database,
            {worker_id: process.pid for worker_id, process in processes.items()},
            lease_seconds=self._crew.lease_seconds,
        )
        self.pulse.beat(begun)
        for worker_id in standing & processes.keys():
            processes[worker_id].marks.extend(begun + self._crew.lease_seconds)
        for worker_id in processes.keys() - standing:
            self._crew.register_again(self.database, processes[worker_id])
        self._compare_books(processes)

    def _compare_books(self, processes: dict[int, Process]) -> None:
        """Pass cancel requests on; release rows that their process does not know although its pump has turned since.

        It never got the answer to that claim. A pump that has not turned may still be writing down what it claimed.
        """
        turns = {worker_id: process.marks.turns() for worker_id, process in processes.items()}
        leases = heartbeat.leases(self.database, list(processes))
        for lease in leases:
            if lease.is_cancelled:
                processes[lease.worker_id].order("cancel", str(lease.id))
        since = {worker_id: process.marks.turns() for worker_id, process in processes.items()}
        held = {worker_id: process.marks.held() for worker_id, process in processes.items()}
        strangers = [lease for lease in leases if lease.mark not in held[lease.worker_id]]
        if lost := [lease for lease in strangers if self._strangers.get(lease.mark, math.inf) < turns[lease.worker_id]]:
            logger.warning("Releasing %d jobs whose claim was committed but never answered", len(lost))
            release(self.database, lost)
        self._strangers = {lease.mark: since[lease.worker_id] for lease in strangers}
