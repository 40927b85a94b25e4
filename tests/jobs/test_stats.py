"""Counts are added minute by minute, and percentiles told from their buckets."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue.db.queries import statement
from django_pgqueue.jobs import stats
from django_pgqueue.jobs.stats import BOUNDS, BUCKETS, counted, percentile
from tests.support.plans import explain


def counts_of(seconds):
    found = counted(seconds)
    return [found[bucket] for bucket in range(BUCKETS)]


@pytest.mark.parametrize("bucket", range(len(BOUNDS)))
def test_bound_belongs_to_the_bucket_that_ends_with_it(bucket):
    assert counted([BOUNDS[bucket]]) == {bucket: 1}
    assert counted([BOUNDS[bucket] * 1.001]) == {bucket + 1: 1}


def test_bounds_ascend():
    assert list(BOUNDS) == sorted(set(BOUNDS))


def test_nothing_has_no_percentile():
    assert percentile([], 0.5) is None
    assert percentile([0] * BUCKETS, 0.99) is None


def test_percentile_lies_in_its_bucket_in_proportion():
    counts = counts_of([0.03] * 100)  # above 25 ms, up to 50 ms
    assert percentile(counts, 0.5) == pytest.approx(0.0375)
    assert percentile(counts, 1.0) == pytest.approx(0.05)


def test_percentile_does_not_mind_zeros_that_are_missing():
    assert percentile([0, 4], 0.5) == percentile([0, 4, 0, 0, 0], 0.5)


def test_of_what_is_longer_than_the_highest_bound_no_more_is_known():
    assert percentile(counts_of([1e6]), 0.5) == BOUNDS[-1]


def test_other_bounds_may_be_given():
    assert percentile([0, 10], 0.5, bounds=(1, 2)) == pytest.approx(1.5)


@given(
    st.lists(st.floats(min_value=0.0, max_value=14400.0), min_size=2, max_size=200), st.sampled_from([0.5, 0.95, 0.99])
)
def test_percentile_is_in_the_bucket_of_the_value_itself(seconds, share):
    ranked = sorted(seconds)
    value = ranked[max(math.ceil(len(ranked) * share), 1) - 1]
    [bucket] = counted([value])
    lower = BOUNDS[bucket - 1] if bucket else 0.0
    assert lower <= percentile(counts_of(seconds), share) <= BOUNDS[bucket]


def test_rows_come_in_order_so_that_two_who_add_cannot_wait_for_each_other():
    counted = {
        (2, "b", "x"): [1] * stats.WIDTH,
        (1, "c", "x"): [2] * stats.WIDTH,
        (2, "a", "y"): [3] * stats.WIDTH,
        (2, "a", "x"): [4] * stats.WIDTH,
    }
    parameters = stats._parameters(counted)
    assert parameters["minutes"] == "{1,2,2,2}"
    assert (parameters["queues"], parameters["tasks"]) == (["c", "a", "a", "b"], ["x", "x", "y", "x"])
    assert parameters["succeeded"] == "{2,4,3,1}"


def test_rows_to_add_to_are_found_by_the_unique_index(queue, sql):
    sql(
        "INSERT INTO pgqueue_stats (minute, queue, task) "
        "SELECT date_trunc('minute', now()) - make_interval(mins => n), 'q', 't' FROM generate_series(0, 1999) AS n"
    )
    minute = int(time.time() // 60)
    nodes = explain(queue, statement("add_stats"), stats._parameters({(minute, "q", "t"): [1] * stats.WIDTH}))
    assert "pgqueue_stats_minute" in str(nodes[0]["Conflict Arbiter Indexes"])
    assert not [node for node in nodes if node["Node Type"] == "Seq Scan"]
