"""How many took up to so and so long: sums of such counts still tell percentiles."""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

BOUNDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0),
)
"""Upper ends of the buckets, in seconds, themselves included; one more bucket takes all that is longer.

What is stored is counted by these: a change of them would need other columns.
"""

BUCKETS: Final = len(BOUNDS) + 1

SIZES: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)
"""The same for how many there are at once."""


def counted(seconds: Iterable[float]) -> Counter[int]:
    """Return by bucket, from 0, how many there are; buckets without any are left out."""
    return Counter([bisect_left(BOUNDS, one) for one in seconds])


def percentile(counts: Sequence[float], share: float, *, bounds: Sequence[float] = BOUNDS) -> float | None:
    """Return which value a share of all does not exceed, about: as if they lay evenly in their bucket.

    Args:
        counts: of each bucket, in order; what is missing at the end is zero.
        share: 0.95 for the 95th percentile; above 0, 1 at most.
        bounds: upper ends of the buckets.

    Returns:
        None where there are none. The highest bound for what lies beyond it: nothing more is known.

    Source: https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile
    """
    rank, below = share * math.fsum(counts), 0.0
    for bucket, count in enumerate(counts):
        if count and below + count >= rank:
            if bucket >= len(bounds):
                return bounds[-1]
            lower = bounds[bucket - 1] if bucket else 0.0
            return lower + (bounds[bucket] - lower) * (rank - below) / count
        below += count
    return None
