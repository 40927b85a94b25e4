"""Recent work, as it is read from the counts."""

import pytest

from django_pgqueue.db.queries import statement
from django_pgqueue.insights import throughput
from django_pgqueue.insights.throughput import RecentWork, StatsCounts
from django_pgqueue.jobs.stats import BOUNDS, BUCKETS
from tests.support.plans import explain
from tests.support.recent import NOW


def test_minute_that_is_not_over_belongs_to_the_last_minutes(db, stat):
    for minutes_ago, succeeded in ((-1, 1), (0, 2), (1, 4), (5, 8), (6, 16)):
        stat(minutes_ago, succeeded=succeeded)
    assert throughput.recent_by_queue("default", minutes=5, now=NOW)["default"].counts.succeeded == 2 + 4 + 8


def test_buckets_of_several_minutes_and_tasks_are_added_one_by_one(db, stat):
    stat(0, task="a", succeeded=6, stale=1, wait_buckets=[1, 2, 3], run_buckets=[0, 6])
    stat(1, task="a", succeeded=1, wait_buckets=[0, 0, 0, 1], run_buckets=[1])
    stat(1, task="b", succeeded=1, wait_buckets=[1], run_buckets=[0] * (BUCKETS - 1) + [1])
    stat(1, queue="other", failed=1)
    found = throughput.recent_by_queue("default", minutes=5, now=NOW)
    assert found["default"].wait_buckets == [2, 2, 3, 1, *[0] * (BUCKETS - 4)]
    assert found["default"].run_buckets == [1, 6, *[0] * (BUCKETS - 3), 1]
    assert found["default"].counts == StatsCounts(succeeded=8, stale=1)
    assert found["other"] == RecentWork(StatsCounts(failed=1), [], [])
    tasks = throughput.by_task("default", minutes=5, now=NOW)
    assert tasks["default", "a"].wait_buckets == [1, 2, 3, 1]
    assert tasks["default", "b"].run_buckets[-1] == 1


def test_tasks_that_took_most_time_come_first_and_the_others_are_left_out(db, stat):
    for task, seconds in (("quick", 1.0), ("slow", 9.0), ("slower", 8.5)):
        stat(1, task=task, succeeded=1, run_seconds=seconds / 2)
        stat(2, task=task, succeeded=1, run_seconds=seconds / 2)
    assert list(throughput.by_task("default", minutes=5, limit=2, now=NOW)) == [
        ("default", "slow"),
        ("default", "slower"),
    ]


def test_percentiles_are_told_from_the_buckets():
    counts = [0] * BUCKETS
    counts[9], counts[10] = 95, 5  # 95 up to a second, 5 up to 2.5 seconds
    done = RecentWork(StatsCounts(), wait_buckets=counts, run_buckets=[])
    assert (BOUNDS[9], BOUNDS[10]) == (1.0, 2.5)
    assert done.wait_seconds(0.95) == 1.0
    assert 1.0 < done.wait_seconds(0.99) < 2.5
    assert done.run_seconds(0.5) is None


@pytest.mark.parametrize("name", ["throughput_recent_by_queue", "throughput_recent_by_task"])
def test_recent_counts_are_read_by_their_minute(queue, sql, name):
    sql(
        "INSERT INTO pgqueue_stats (minute, queue, task, succeeded, wait_buckets) SELECT "
        "date_trunc('minute', now()) - make_interval(mins => n), 'q' || t, 't' || t, 1, '{1,2,3}' "
        "FROM generate_series(0, 2999) AS n, generate_series(1, 10) AS t"
    )
    nodes = explain(queue, statement(name), {"minutes": 5, "now": None, "limit": 10})
    [scan] = [node for node in nodes if node.get("Relation Name") == "pgqueue_stats"]
    assert scan["Index Name"] == "pgqueue_stats_minute"
    assert scan["Actual Rows"] * scan["Actual Loops"] <= 10 * 7
