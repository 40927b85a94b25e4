"""A worker process as its supervisor sees it."""

import contextlib
import multiprocessing
import os
import time

from django_pgqueue.runtime import child
from django_pgqueue.runtime.marks import Marks

SPAWN = multiprocessing.get_context("spawn")
"""A fresh interpreter: no connection, lock or thread of the supervisor's is inherited."""

SETTLED_SECONDS = 10.0


class Process:
    """One child: its process, the pipe of its orders and the memory shared with it.

    Args:
        failures: how many processes in this place have died young, one after the other.
    """

    def __init__(self, brief: child.Brief, *, failures: int = 0) -> None:
        self.worker_id = brief.worker_id
        self.failures = failures
        self.was_stopped = False
        self.marks = Marks(SPAWN)
        self._orders_read, self._orders = SPAWN.Pipe(duplex=False)
        self._process = SPAWN.Process(
            target=child.main, args=(brief, self._orders_read, self.marks), name=f"pgqueue-{brief.worker_id}"
        )
        self._started_at = time.monotonic()

    def start(self) -> None:
        self._process.start()
        self._orders_read.close()
        os.set_blocking(self._orders.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    @property
    def sentinel(self) -> int:
        """A file descriptor that becomes readable when the process has ended."""
        return self._process.sentinel

    def has_ended(self, *, is_ending: bool) -> bool:
        """Whether the process is gone; waits a moment for one whose sentinel says that it is about to be."""
        if is_ending:
            self._process.join(1.0)
        return self.exit_code is not None

    @property
    def exit_code(self) -> int | None:
        """None while it lives; below 0: the signal that ended it."""
        return self._process.exitcode

    @property
    def died_young(self) -> bool:
        return time.monotonic() - self._started_at < SETTLED_SECONDS

    def order(self, line: str) -> None:
        """Send an order. One that does not fit into the pipe of a frozen child, or comes too late, is dropped."""
        with contextlib.suppress(OSError):
            os.write(self._orders.fileno(), line.encode() + b"\n")

    def kill(self) -> None:
        """End it now, on purpose: what it was running goes back."""
        self.was_stopped = True
        self._process.kill()

    def close(self) -> None:
        """Give its resources back once it has ended."""
        self._process.join()
        self._process.close()
        self._orders.close()
