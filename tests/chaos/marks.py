"""Lines that handlers write: a line for each event, by one ``write`` to a file that is only appended to.

It needs no database, and what is written survives the SIGKILL of its writer, so a run without a mark has not begun.
"""

import functools
import os
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from django_pgqueue import current_job

START, END, RAISE, LATER, DISCARD = "start", "end", "raise", "later", "discard"


def mark(word: str, key: int) -> None:
    """Write down that the current job's run has come so far."""
    job = current_job()
    _write("marks", f"{word} {key} {job.id} {job.attempt} {job.lease_token} {os.getpid()} {now()}\n")


def note(word: str, *numbers: int) -> None:
    """Write down what a job has done whose runs are not compared one by one."""
    _write("notes", f"{word} {' '.join(map(str, numbers))} {now()}\n")


def _write(folder: str, line: str) -> None:
    with _opening:
        file = _file(folder)
    os.write(file, line.encode())


_opening = threading.Lock()


@functools.cache
def _file(folder: str) -> int:
    path = Path(os.environ["CHAOS_FOLDER"], folder, f"{os.getpid()}-{time.time_ns()}")
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def now() -> int:
    """Return microseconds since 1970, by the clock that the server of the same machine goes by."""
    return time.time_ns() // 1000


def size(folder: Path, pids: Collection[int] | None = None) -> int:
    """Return how many bytes of marks there are, of all processes or of these."""
    files = [path for path in folder.iterdir() if pids is None or int(path.name.partition("-")[0]) in pids]
    return sum(path.stat().st_size for path in files)


@dataclass(slots=True)
class Run:
    """One call of a handler."""

    key: int
    job_id: int
    attempt: int
    lease_token: int
    pid: int
    started_at: int  # microseconds since 1970, as all instants of a ledger
    how: str | None = None  # END, RAISE, LATER or DISCARD; None: it did not get so far
    ended_at: int = 0


def read_runs(folder: Path) -> Iterator[Run]:
    """Yield all runs of which there are marks.

    SIGKILL may come between two pages of a file: then a last line has no end, and its event did not happen.
    """
    open_runs: dict[tuple[int, int, int], Run] = {}
    for word, (key, job_id, attempt, token, pid, at) in read_lines(folder):
        if word == START:
            run = open_runs[key, token, pid] = Run(key, job_id, attempt, token, pid, at)
            yield run
        else:
            run = open_runs[key, token, pid]
            run.how, run.ended_at = word, at


def read_lines(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Yield the word and the numbers of each line that is whole."""
    for path in sorted(folder.iterdir()):
        for line in path.read_text().rpartition("\n")[0].splitlines():
            word, *numbers = line.split()
            yield word, list(map(int, numbers))
