"""The tasks of the bench's jobs, and the board that shows when each was started, by which process, in which attempt.

The board is memory that the bench shares with its workers. No app names this module, so ``pgqueue_worker`` does not
know the tasks: ``bench.worker`` imports it, and the bench itself.
"""

import asyncio
import functools
import mmap
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from django_pgqueue.bench.report import QUEUE
from django_pgqueue.jobs.context import find_current
from django_pgqueue.tasks import task

RECORD = struct.Struct("=dIB")
SAMPLES = 100


class BenchRun(NamedTuple):
    """The last run of one job, in the order of ``RECORD``."""

    started_at: float  # monotonic, the same clock for all processes of a machine; 0 = not started
    pid: int
    attempt: int  # from 1; a second one means that a lease was reaped


class Board:
    """One record for each job, found by its number, in the memory of a file that the bench makes and workers open."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    @classmethod
    def make(cls, path: Path, *, size: int) -> "Board":
        with path.open("wb") as file:
            file.truncate(size * RECORD.size)
        return cls(path)

    def note(self, number: int, attempt: int) -> None:
        RECORD.pack_into(self._memory, number * RECORD.size, time.monotonic(), os.getpid(), attempt)

    def runs(self, numbers: range) -> Iterator[BenchRun]:
        begin, end = numbers.start * RECORD.size, numbers.stop * RECORD.size
        return map(BenchRun._make, RECORD.iter_unpack(self._memory[begin:end]))

    def is_started(self, number: int) -> bool:
        return bool(RECORD.unpack_from(self._memory, number * RECORD.size)[0])

    def share_started(self, numbers: range) -> float:
        """Return about which share of the jobs has been started, 0 to 1, without reading them all."""
        sample = numbers[:: max(len(numbers) // SAMPLES, 1)]
        return sum(map(self.is_started, sample)) / len(sample)


# Tasks

BOARD: Final = "PGQUEUE_BENCH_BOARD"  # the environment variable that names the board's file


@task(queue=QUEUE)
def work(number: int, seconds: float, _payload: str = "") -> None:
    note(number)
    if seconds:
        time.sleep(seconds)


@task(queue=QUEUE)
async def awork(number: int, seconds: float, _payload: str = "") -> None:
    note(number)
    if seconds:
        await asyncio.sleep(seconds)


def note(number: int) -> None:
    job = find_current()
    board().note(number, job.attempt if job else 0)


@functools.cache
def board() -> Board:
    return Board(Path(os.environ[BOARD]))
