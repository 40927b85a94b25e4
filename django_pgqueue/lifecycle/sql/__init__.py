"""The only loader of SQL. Each statement stands in a file of its own, named like the function that runs it."""

import functools
from pathlib import Path

FOLDER = Path(__file__).parent

# Sizes that a batch may have. LIMIT is a literal: with a parameter there, the planner of a prepared statement would
# assume a tenth of the table. A few sizes keep the number of prepared statements small.
LADDER = (
    1,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    12,
    16,
    20,
    25,
    32,
    40,
    50,
    64,
    80,
    100,
    128,
    160,
    200,
    250,
    320,
    400,
    500,
    700,
    1000,
)
LIMIT = "LIMIT 1000"


@functools.cache
def statement(name: str) -> str:
    """Return the text of ``name.sql``."""
    return (FOLDER / f"{name}.sql").read_text()


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
