"""Count of the calls of a handler: written by workers while they run, read by the benchmark at the same time.

Each thread of each worker has a file with two numbers of 64 bits: the calls so far, and the clock at the latest one in
nanoseconds. The clock is CLOCK_MONOTONIC, which all processes of a machine share. Needs the standard library only.
"""

import mmap
import os
import struct
import threading
import time
from pathlib import Path
from typing import NamedTuple

CELLS = struct.Struct("=QQ")
FOLDER = "PEERS_TALLY"
"""Environment variable: where the files are."""

_mine = threading.local()  # filled at the first call, so that a process that forks shares no file with its children


class Count(NamedTuple):
    """All calls so far; the time of the latest one in nanoseconds."""

    calls: int
    latest_ns: int


def count() -> None:
    """Count one call of the handler."""
    try:
        cells = _mine.cells
    except AttributeError:
        cells = _mine.cells = _open_cells()
    cells[1] = time.monotonic_ns()
    cells[0] += 1


def read(folder: Path) -> Count:
    """Add up what all workers counted."""
    counts = [Count(*CELLS.unpack(path.read_bytes())) for path in folder.iterdir() if path.stat().st_size == CELLS.size]
    return Count(sum(each.calls for each in counts), max((each.latest_ns for each in counts), default=0))


def _open_cells() -> memoryview:
    path = Path(os.environ[FOLDER]) / f"{os.getpid()}-{threading.get_native_id()}"
    path.write_bytes(bytes(CELLS.size))
    with path.open("r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), CELLS.size)).cast("Q")
