"""Loader of SQL statements, the only one: each is a file of its own, in the ``sql`` folder of the subject that runs it.

No two files have the same name, so the name alone finds one.
"""

import functools
from pathlib import Path

PACKAGE = Path(__file__).parent.parent

# Sizes that a batch may have. LIMIT is a literal: with a parameter there, the planner of a prepared statement would
# assume a tenth of the table. A few sizes keep the number of prepared statements small.
LADDER = 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 64, 80, 100, 128, 160, 200, 250, 320, 400, 500, 700, 1000
LIMIT = "LIMIT 1000"


@functools.cache
def statement(name: str) -> str:
    """Return the text of ``name.sql``."""
    return files()[name].read_text()


@functools.cache
def files() -> dict[str, Path]:
    """Return the file of each statement by its name."""
    return {path.stem: path for path in PACKAGE.glob("*/sql/*.sql")}


@functools.cache
def sized(name: str, size: int) -> str:
    """Return ``name.sql`` with its LIMIT set to ``size``, one of ``LADDER``."""
    text = statement(name)
    if text.count(LIMIT) != 1 or size not in LADDER:
        raise ValueError(f"{name}.sql has no single {LIMIT!r}, or {size} is not in the ladder {LADDER}.")
    return text.replace(LIMIT, f"LIMIT {size:d}")


def ladder_size(wanted: int) -> int:
    """Return the largest size of the ladder that is not above ``wanted`` (1 or more)."""
    return max(size for size in LADDER if size <= wanted)
