"""Durations are summed up."""

import pytest

from django_pgqueue.bench.report import spread


@pytest.mark.parametrize(("count", "p50", "p99"), [(1, 1, 1), (2, 1, 2), (100, 50, 99), (101, 51, 100)])
def test_spread_is_the_nearest_rank(count, p50, p99):
    found = spread([number / 1000 for number in range(count, 0, -1)])
    assert (found.p50_ms, found.p99_ms, found.samples) == (p50, p99, count)
