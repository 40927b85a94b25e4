"""A peer's processes: one that answers orders, and its workers. All are children of the benchmark, in groups of their
own, and ended by process id."""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.peers.catalogue import NODE, Peer
from benchmarks.peers.install import interpreter
from benchmarks.peers.places import NODE_FOLDER, PROJECT, WORKERS, environment
from benchmarks.peers.tally import FOLDER

ORDER_SECONDS = 300.0  # enqueueing 100,000 jobs takes some peers a while
LEFT_SECONDS = 30.0
STOP_SECONDS = 10.0


class PeerError(Exception):
    """A peer's process ended or kept silent: what, and the last line it wrote to its standard error."""


class Control:
    """The process that prepares, seeds, enqueues and counts what is left. Its answers are numbers."""

    def __init__(self, process: subprocess.Popen, errors: Path) -> None:
        self._process = process
        self._errors = errors

    def left(self) -> int:
        """Return how many jobs are not finished yet."""
        return self.ask("left", seconds=LEFT_SECONDS)

    def ask(self, order: str, *, seconds: float = ORDER_SECONDS) -> int:
        """Send an order and wait for its answer.

        Raises:
            PeerError: the process ended, or did not answer within ``seconds``.
        """
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{order}\n".encode())
            self._process.stdin.flush()
        readable, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not readable:
            raise PeerError(f"{order}: no answer within {seconds:.0f} s")
        answer = self._process.stdout.readline().decode().strip()
        if not answer.isdigit():
            raise PeerError(f"{order}: {last_words(self._errors) or answer or 'ended'}")
        return int(answer)


@contextlib.contextmanager
def control(peer: Peer, database: str, scratch: Path) -> Iterator[Control]:
    """Start the process that answers orders; end it afterwards."""
    errors = scratch / "control.err"
    with errors.open("wb") as file:
        process = start(peer, "control", database, scratch, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file)
    try:
        yield Control(process, errors)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        end([process])
        process.stdout.close()


@contextlib.contextmanager
def workers(peer: Peer, database: str, scratch: Path, *, count: int) -> Iterator["Workers"]:
    """Start N worker processes; stop them afterwards."""
    errors = scratch / "workers.err"
    commands = 1 if peer.shares_workers else count
    variables = {"PEERS_PROCESSES": str(count)}
    with errors.open("ab") as file:
        outputs = {"stdout": file, "stderr": file, "stdin": subprocess.DEVNULL}
        started = [start(peer, "work", database, scratch, variables, **outputs) for _ in range(commands)]
    try:
        yield Workers(started, errors)
    finally:
        for process in started:
            process.terminate()
        end(started)


class Workers:
    """Worker processes that are running."""

    def __init__(self, processes: list[subprocess.Popen], errors: Path) -> None:
        self._processes = processes
        self._errors = errors

    def check(self) -> None:
        """Raise PeerError if one of them has ended."""
        for process in self._processes:
            if process.poll() is not None:
                raise PeerError(f"worker ended ({process.returncode}): {last_words(self._errors)}")


def start(
    peer: Peer, role: str, database: str, scratch: Path, variables: dict[str, str] | None = None, **streams: object
) -> subprocess.Popen:
    extra = {FOLDER: str(scratch / "tally"), "PEERS_NODE_FOLDER": str(NODE_FOLDER)}
    try:
        return subprocess.Popen(
            [interpreter(peer), *arguments(peer), role],
            cwd=PROJECT,
            env=environment(database) | peer.environment | extra | (variables or {}),
            start_new_session=True,
            **streams,
        )
    except OSError as error:
        raise PeerError(str(error)) from error


def arguments(peer: Peer) -> list[str]:
    if peer.language == NODE:
        return [str(WORKERS / f"{peer.module}.mjs")]
    return ["-m", "benchmarks.peers.workers", peer.module]


def end(processes: list[subprocess.Popen]) -> None:
    """Wait for processes that were asked to end; after a while enforce it, with all that they started."""
    until = time.monotonic() + STOP_SECONDS
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def last_words(errors: Path) -> str:
    lines = [line for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
