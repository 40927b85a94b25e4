"""One child process as its supervisor sees it: its process, pipe and shared memory."""

import contextlib
import math
import multiprocessing
import os
import random
import select
import time
from pathlib import Path

from django_pgqueue.jobs.stats import ProcessCounters
from django_pgqueue.worker import child
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.in_flight import CAREFUL_SECONDS
from django_pgqueue.worker.shared_state import SharedState
from django_pgqueue.worker.timeouts import PATIENCE_SECONDS

SPAWN = multiprocessing.get_context("spawn")
"""A fresh interpreter: no connection, lock or thread of the supervisor's is inherited."""

SETTLED_SECONDS = 10.0

JITTER = 0.1  # on max_jobs, so that processes started together are not recycled together

MOMENT_SECONDS = 1.0
"""A process that is told to leave gives back within this what it has only fetched."""

LOOK_SECONDS = 2.0
"""Maximum time that counts from one look at a process to the next: what is longer, this process was frozen too."""

UNGUARDED = os.EX_CONFIG
"""Exit code of a process that was to run the command again: its main module does so whenever it is imported."""

MIB = 2**20
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class WorkerProcess:
    """One child: its process, the pipe of its orders and the memory shared with it.

    Attributes:
        stalled_seconds: for how long its consumer has not finished a cycle, as far as that was looked at; 0 while it is
            starting: before its first cycle, or a job in that.

    Args:
        plan: says how many jobs and how much memory it may use up before it is replaced.
        failures: how many processes in this place have died young, one after the other.
        replaces: the one that is to leave as soon as this one is at work.
        meter: where it sums up what it does, for metrics; None: there are none.
    """

    def __init__(
        self,
        brief: child.ChildConfig,
        plan: WorkerConfig,
        *,
        failures: int = 0,
        replaces: "WorkerProcess | None" = None,
        meter: ProcessCounters | None = None,
    ) -> None:
        self.worker_id = brief.worker_id
        self.failures = failures
        self._is_careful = brief.is_careful
        self.replaces = replaces
        self.is_replaced = False  # another one has been asked for
        self.is_leaving = False  # it takes no more
        self._max_jobs = (plan.max_jobs or math.inf) * random.uniform(1 - JITTER, 1)  # noqa: S311 - jitter
        self._max_memory_mb = plan.max_memory_mb or math.inf
        self.was_stopped = False
        self._is_crash = False
        self.killed: frozenset[int] = frozenset()  # the run ids of jobs that were killed
        self._pressed: dict[int, float] = {}  # run ids of jobs that are to stop -> since when, monotonic
        self._given_up_at: float | None = None
        self._ended_at: float | None = None
        self.pid = 0  # kept for those who speak of it when it is gone
        self.shared = SharedState(SPAWN)
        self.meter = meter
        self._orders_read, self._orders = SPAWN.Pipe(duplex=False)
        self._process = SPAWN.Process(
            target=child.main, args=(brief, self._orders_read, self.shared, meter), name=f"pgqueue-{brief.worker_id}"
        )
        self._started_at = self._looked_at = time.monotonic()
        self._cycles = 0  # when it was last looked at
        self.stalled_seconds = 0.0

    def start(self) -> None:
        self._process.start()
        self.pid = self._process.pid or 0
        self._orders_read.close()
        os.set_blocking(self._orders.fileno(), False)

    @property
    def sentinel(self) -> int:
        return self._process.sentinel

    def has_ended(self, *, is_ending: bool) -> bool:
        """Whether the process is gone; waits a moment for one whose sentinel says that it is about to be."""
        if is_ending:
            self._process.join(1.0)
        if self.exit_code is not None and self._ended_at is None:
            self._ended_at = time.monotonic()
        return self._ended_at is not None

    @property
    def exit_code(self) -> int | None:
        """None while it lives; below 0: the signal that ended it."""
        return self._process.exitcode

    @property
    def ended_seconds(self) -> float:
        return 0.0 if self._ended_at is None else time.monotonic() - self._ended_at

    @property
    def is_young(self) -> bool:
        return time.monotonic() - self._started_at < SETTLED_SECONDS

    @property
    def was_careful(self) -> bool:
        lived = (self._ended_at or math.inf) - self._started_at
        has_ended_itself = not self.was_stopped and not self.shared.has_ended_cycles()
        return self._is_careful and has_ended_itself and lived < CAREFUL_SECONDS

    @property
    def is_at_work(self) -> bool:
        return self.shared.cycles() > 0

    def look(self) -> None:
        """Take note whether its consumer has finished a cycle; to be called about once a second, by one thread.

        The first cycle may be kept from its end too, by a job that was claimed in it.
        """
        cycles, at = self.shared.cycles(), time.monotonic()
        if cycles != self._cycles or not (cycles or self.shared.busy()):
            self.stalled_seconds = 0.0
        else:
            self.stalled_seconds += min(at - self._looked_at, LOOK_SECONDS)
        self._cycles, self._looked_at = cycles, at

    @property
    def is_unguarded(self) -> bool:
        """Whether it ended before it could begin, as will every other one; a job may have ended it by the same code."""
        has_claimed = self.shared.started() or self.shared.unbegun()
        return self.exit_code == UNGUARDED and not self.is_at_work and not has_claimed

    def excess(self) -> str | None:
        """Say what it has used up; None where it is within its limits, or a new process would be no better.

        Memory does not count before the first job and in the first 10 seconds: a limit below what the code alone takes
        must not keep the supervisor busy with replacing.
        """
        finished = self.shared.finished()
        if self._given_up_at is not None:
            return "it runs jobs that do not stop"
        if finished >= self._max_jobs:
            return f"{finished} jobs finished"
        if self._max_memory_mb < math.inf and finished and not self.is_young:
            memory_mb = resident_mb(self.pid)
            return f"{memory_mb:.0f} MiB in use" if memory_mb > self._max_memory_mb else None
        return None

    def overdue(self) -> set[int]:
        return self.shared.overdue(time.monotonic() if self._ended_at is None else self._ended_at)

    def ignoring_stop(self) -> set[int]:
        """Return the run ids of jobs that ignored a stop request for several seconds. Poll this."""
        pressed = self.overdue() | (self.killed and self.shared.running() & self.killed)
        at = time.monotonic()
        self._pressed = {run_id: self._pressed.get(run_id, at) for run_id in pressed}
        return {run_id for run_id, since in self._pressed.items() if at - since >= PATIENCE_SECONDS}

    def stop_claiming(self, *, is_stuck: bool = False) -> bool:
        """Let it finish what it runs beside jobs that do not stop; return whether that was not known before.

        ``is_stuck``: its consumer has not finished a cycle for long, and may begin nothing for that reason.
        """
        is_new = self._given_up_at is None
        is_away = not (self.shared.is_lease_valid() or is_stuck)  # no outcome can be written while the database is away
        if is_new or is_away:
            self._given_up_at = time.monotonic()
        self.leave()
        return is_new

    def is_beyond_stopping(self, deaf: set[int], shutdown_timeout_seconds: float) -> bool:
        others = self.shared.started() - deaf
        patience = shutdown_timeout_seconds if others else MOMENT_SECONDS
        return self._given_up_at is not None and time.monotonic() - self._given_up_at >= patience

    def leave(self) -> None:
        """Let it finish what it runs and take no more; to be repeated until it has ended."""
        self.is_leaving = True
        self.order("stop")

    def order(self, word: str, detail: str = "") -> None:
        """Send an order. One that does not fit into the pipe of a frozen child, or comes too late, is dropped.

        Longer ones than a pipe takes as a whole would be torn; they go without their detail.
        """
        line = f"{word} {detail}".encode()
        with contextlib.suppress(OSError):
            os.write(self._orders.fileno(), (line if len(line) < select.PIPE_BUF else word.encode()) + b"\n")

    def kill(self, *, is_crash: bool = False) -> None:
        """End it now, on purpose.

        Args:
            is_crash: what it was running is to pay for that as if it had crashed; else it goes back. That stands though
                it is ended once more before it is gone.
        """
        self._is_crash |= is_crash
        self.was_stopped = not self._is_crash
        self._process.kill()

    def discard(self) -> None:
        self._orders_read.close()
        self._orders.close()

    def close(self) -> None:
        self._process.join()
        self._process.close()
        self._orders.close()


def can_read_memory() -> bool:
    """Whether this system tells the memory of another process: Linux does."""
    return resident_mb(os.getpid()) > 0


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MiB; 0 if it is gone, or the system does not tell."""
    return resident_bytes(pid) / MIB


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it is gone, or the system has no ``/proc``."""
    try:
        _, resident, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except (OSError, ValueError):  # whatever it is, no heartbeat is to fail for it
        return 0
    return int(resident) * PAGE_BYTES
