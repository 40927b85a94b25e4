"""How long a failed job waits before its next attempt. Pure arithmetic."""

import random
from collections.abc import Callable

Backoff = Callable[[int], float]
"""Takes the number of the attempt that failed (from 1); returns seconds to wait (0 or more)."""

LONGEST_SECONDS = 3600.0
JITTER = 0.1


def exponential(attempt: int) -> float:
    """Wait ``min(2 ** attempt, 3600)`` seconds: 2, 4, 8 … up to an hour. The default."""
    return min(2.0 ** min(attempt, 12), LONGEST_SECONDS)


def with_jitter(seconds: float) -> float:
    """Spread ``seconds`` by up to 10 % either way, so that jobs which failed together do not return together.

    Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreading load, not secrets


def reconnect_delay(failures: int) -> float:
    """Return how long to wait, in seconds, before trying the database again after ``failures`` in a row (from 1)."""
    return with_jitter(min(0.1 * 2.0 ** min(failures - 1, 8), 2.0))
