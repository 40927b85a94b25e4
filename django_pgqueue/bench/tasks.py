"""The tasks of the bench's jobs.

No app names this module, so ``pgqueue_worker`` does not know them: ``bench.worker`` imports it, and the bench itself.
"""

import asyncio
import functools
import os
import time
from pathlib import Path
from typing import Final

from django_pgqueue.bench.board import Board
from django_pgqueue.bench.load import QUEUE
from django_pgqueue.jobs.context import current_job
from django_pgqueue.tasks import task

BOARD: Final = "PGQUEUE_BENCH_BOARD"
"""The environment variable that names the board's file."""


@task(queue=QUEUE)
def work(number: int, seconds: float, _payload: str = "") -> None:
    """Say when it starts, and sleep."""
    note(number)
    if seconds:
        time.sleep(seconds)


@task(queue=QUEUE)
async def awork(number: int, seconds: float, _payload: str = "") -> None:
    """Do the same in the event loop."""
    note(number)
    if seconds:
        await asyncio.sleep(seconds)


def note(number: int) -> None:
    """Write down on the board that this job starts."""
    job = current_job()
    board().note(number, job.attempt if job else 0)


@functools.cache
def board() -> Board:
    """Open the board that the bench has made."""
    return Board(Path(os.environ[BOARD]))
