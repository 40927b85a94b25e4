"""One ``pgqueue_worker``, which is started again whenever it has ended, as a service manager does."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.chaos.journal import Journal
from tests.support.waiting import PATIENCE_SECONDS

MANAGE = Path(__file__).with_name("manage.py")
BANNER = "pgqueue worker"


class Command:
    """A place for a worker command. Not safe for two threads at once.

    Args:
        number: for its name and logs.
        lifeline: a pipe's end that closes when the soak ends.
    """

    def __init__(
        self,
        number: int,
        folder: Path,
        *,
        environment: dict[str, str],
        options: list[str],
        journal: Journal,
        lifeline: int,
        is_proxied: bool,
    ) -> None:
        self.number = number
        self.is_proxied = is_proxied
        self.starts = 0
        self._folder = folder
        self._environment = {**os.environ, **environment, "CHAOS_NAME": f"chaos worker {number}"}
        self._options = options
        self._journal = journal
        self._lifeline = lifeline
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self) -> None:
        """Start it, in a process group of its own."""
        self.starts += 1
        with self.log.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, str(MANAGE), "pgqueue_worker", *self._options],
                env=self._environment,
                stdin=self._lifeline,
                stdout=file,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    @property
    def log(self) -> Path:
        return self._folder / f"worker-{self.number}-{self.starts:04}.log"

    def children(self) -> list[int]:
        """Return the pids of its worker processes; may be called by any thread."""
        process = self._process
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True) if process else []
            return [one.pid for one in family if _is_worker(one)]
        return []

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def is_at_work(self) -> bool:
        """Whether it has worker processes; a command that has ended is started again."""
        if not self.is_running():
            self._look_why_it_ended()
            self.start()
        return bool(self.children())

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL the whole group."""
        self.send(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def end(self) -> None:
        """Kill what still runs."""
        if self._process is not None:
            self.kill()

    def kill_supervisor(self) -> None:
        """SIGKILL the supervisor alone, with which its children must die."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()
        if not within(PATIENCE_SECONDS, lambda: not self._group()):
            self._journal.trouble(f"children of command {self.number} outlive their supervisor: {self._group()}")
            self.send(signal.SIGKILL)
        self._process = None

    def terminate(self) -> None:
        """SIGTERM the supervisor, and wait until all of it has gone."""
        os.kill(self.pid, signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._journal.trouble(
                f"command {self.number} has not stopped {PATIENCE_SECONDS:.0f} s after SIGTERM: {self.log}"
            )
            self.kill()
        else:
            self._judge_stop()
            self._process = None

    def _judge_stop(self) -> None:
        if self._process.returncode != 0 and self._has_begun():
            self._journal.trouble(f"command {self.number} ended with {self._process.returncode} on SIGTERM: {self.log}")
        if not within(PATIENCE_SECONDS, lambda: not self._group()):
            self._journal.trouble(f"command {self.number} has stopped and left processes: {self._group()}")
            self.send(signal.SIGKILL)

    def _look_why_it_ended(self) -> None:
        """Ending by itself is wrong, unless it could not start for want of a database."""
        if self._process is not None and self._has_begun():
            self._journal.trouble(f"command {self.number} ended by itself with {self._process.returncode}: {self.log}")

    def _has_begun(self) -> bool:
        return BANNER in self.log.read_text(errors="replace")

    def _group(self) -> list[int]:
        """Return the pids of the group that still live."""
        return [process.pid for process in psutil.process_iter() if _group_of(process) == self.pid]


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds; return whether it came to."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _group_of(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid) if process.status() != psutil.STATUS_ZOMBIE else None
    except (ProcessLookupError, psutil.NoSuchProcess):
        return None


def _is_worker(process: psutil.Process) -> bool:
    """Whether it is one that runs jobs, forked or started afresh, and not the one that forks them."""
    try:
        is_forked = re.fullmatch(r"pgqueue-\d+", process.name()) is not None
        return is_forked or "multiprocessing.spawn" in " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False
