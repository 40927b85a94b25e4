"""Interface of every peer, and the two roles in which its process runs."""

import os
import sys
import time
from abc import ABC, abstractmethod

DATABASE_URL = os.environ.get("PEERS_DATABASE_URL", "")
"""Set by the benchmark, as are PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE."""

CHUNK = 5_000
"""Jobs in one call of a peer's bulk API."""


class Queue(ABC):
    """A peer. One instance lives in each process."""

    @abstractmethod
    def prepare(self) -> None:
        """Make the tables in an empty database."""

    @abstractmethod
    def seed(self, count: int) -> None:
        """Enqueue many no-op jobs, the fastest way there is."""

    def join(self, members: int) -> None:
        """Enqueue no-op jobs, and one more that runs once all of them have succeeded."""
        raise NotImplementedError

    def fan(self, members: int) -> None:
        """Enqueue a no-op job, and others that run once it has succeeded."""
        raise NotImplementedError

    @abstractmethod
    def enqueue(self) -> None:
        """Enqueue one no-op job; it is committed on return."""

    @abstractmethod
    def left(self) -> int:
        """Return how many jobs are not finished yet, as the peer's tables say. Asked once all were called."""

    @abstractmethod
    def work(self) -> None:
        """Run a worker until SIGTERM."""


def serve(queue: Queue, role: str) -> None:
    """Be a worker, or be the one who answers orders."""
    {"work": queue.work, "control": lambda: control(queue)}[role]()


def control(queue: Queue) -> None:
    """Answer each line of the standard input with one number on the standard output, until it ends."""
    orders = {
        "prepare": queue.prepare,
        "seed": lambda count: queue.seed(int(count)),
        "join": lambda members: queue.join(int(members)),
        "fan": lambda members: queue.fan(int(members)),
        "enqueue": lambda: committed_ns(queue),
        "left": queue.left,
    }
    for line in sys.stdin:
        order, *arguments = line.split()
        print(orders[order](*arguments) or 0, flush=True)


def committed_ns(queue: Queue) -> int:
    """Enqueue one job; return the clock right after its commit, in nanoseconds."""
    queue.enqueue()
    return time.monotonic_ns()


def chunks(count: int) -> list[int]:
    """Part a number of jobs into calls of the bulk API."""
    return [min(CHUNK, count - begin) for begin in range(0, count, CHUNK)]
