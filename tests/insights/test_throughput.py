"""Throughput and recent work of the queues, as they are read from the counts."""

import datetime as dt
import itertools

import pytest

import tests.app.tasks as app
from django_pgqueue.db.queries import statement
from django_pgqueue.insights import throughput
from django_pgqueue.insights.throughput import RecentWork, StatsCounts
from django_pgqueue.jobs.stats import BOUNDS, BUCKETS
from tests.support.plans import explain
from tests.support.recent import NOW


def test_series_has_every_minute_with_zeros_where_nothing_was_done(db, stat):
    stat(0, succeeded=5, run_seconds=1.0)
    stat(59, task="a", succeeded=1)
    stat(59, task="b", queue="other", succeeded=2)
    stat(60, succeeded=100)
    series = throughput.per_minute("default", now=NOW)
    assert len(series) == 60
    steps = {later.begins_at - earlier.begins_at for earlier, later in itertools.pairwise(series)}
    assert steps == {dt.timedelta(minutes=1)}
    assert (series[0].counts.succeeded, series[-1].counts.succeeded, series[1].counts.succeeded) == (3, 5, 0)
    assert throughput.total(series).succeeded == 8


def test_series_of_one_queue_leaves_the_others_out(db, stat):
    stat(1, queue="a", succeeded=1)
    stat(1, queue="b", succeeded=2)
    assert throughput.total(throughput.per_minute("default", now=NOW, queue="a")).succeeded == 1


def test_day_comes_in_quarters_of_an_hour(db, stat):
    for minutes_ago in range(0, 1440, 5):
        stat(minutes_ago, succeeded=1)
    series = throughput.of_day("default", now=NOW).series
    assert len(series) == 96
    assert {stretch.begins_at.minute % 15 for stretch in series} == {0}
    assert {stretch.counts.succeeded for stretch in series[1:-1]} == {3}


def test_hour_that_local_time_has_twice_comes_in_order_where_time_zones_are_off(db, sql, settings):
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
    sql("INSERT INTO pgqueue_stats (minute, queue, task, succeeded) VALUES ('2027-10-31 00:59+00', 'a', 't', 5)")
    now = dt.datetime(2027, 10, 31, 1, 1, 30, tzinfo=dt.UTC)
    series = throughput.per_minute("default", now=now)
    assert [stretch.counts.succeeded for stretch in series[-4:]] == [0, 5, 0, 0]
    times = [stretch.begins_at for stretch in throughput.of_day("default", now=now).series]
    assert [time.isoformat() for time in times[-2:]] == ["2027-10-31T00:45:00+00:00", "2027-10-31T01:00:00+00:00"]
    assert len(times) == 96


def test_day_is_read_once_for_the_series_and_the_queues(db, stat):
    stat(0, queue="a", succeeded=1)
    stat(20, queue="a", succeeded=2)
    stat(20, queue="b", task="x", succeeded=4, wait_seconds=1.5)
    stat(20, queue="b", task="y", succeeded=8)
    stat(1500, queue="c", succeeded=100)
    day = throughput.of_day("default", now=NOW)
    assert [stretch.counts.succeeded for stretch in day.series if stretch.counts.succeeded] == [14, 1]
    assert {queue: counts.succeeded for queue, counts in day.by_queue.items()} == {"a": 3, "b": 12}
    assert day.by_queue["b"].wait_seconds == 1.5


def test_rates_and_means_are_of_attempts_that_have_ended(db, stat):
    stat(1, succeeded=6, failed=3, retried=2, died=1, lost=1, wait_seconds=18.0, run_seconds=4.5)
    counts = throughput.total(throughput.per_minute("default", now=NOW))
    assert (counts.ended, counts.left) == (9, 7)
    assert counts.failure_rate == pytest.approx(0.4)
    assert (counts.mean_wait_seconds, counts.mean_run_seconds) == (2.0, 0.5)


def test_where_nothing_was_done_there_is_no_rate_and_no_mean(db):
    counts = throughput.total(throughput.per_minute("default", now=NOW))
    assert counts == throughput.StatsCounts()
    assert (counts.failure_rate, counts.mean_wait_seconds, counts.mean_run_seconds) == (None, None, None)


def empty_in_seconds(now: dt.datetime | None = None) -> float | None:
    done = throughput.by_queue("default", now=now).get("default", StatsCounts())
    return throughput.empty_in_seconds_of(throughput.backlog("default", "default"), done)


def test_time_to_empty_is_predicted_from_the_jobs_that_left_in_the_last_minutes(queue, stat):
    app.noop.enqueue_many([()] * 20)
    stat(0, succeeded=1_000_000)  # this minute is not over
    stat(1, succeeded=6, failed=5, retried=4, died=1)
    stat(5, succeeded=3)
    stat(6, succeeded=1_000_000)
    stat(1, queue="other", succeeded=1_000_000)
    assert empty_in_seconds(now=NOW) == pytest.approx(20 / (10 / 300))


def test_queue_without_jobs_is_empty_and_of_one_that_stands_still_nothing_is_said(queue):
    assert empty_in_seconds(now=NOW) == 0.0
    app.noop.enqueue_many([()] * 3)
    assert empty_in_seconds() is None


def test_backlog_is_counted_up_to_a_bound_and_estimated_beyond(queue, monkeypatch, sql):
    app.noop.enqueue_many([()] * 500)
    assert throughput.backlog("default", "default") == 500
    assert throughput.backlog("default", "other") == 0
    monkeypatch.setattr(throughput, "MOST_COUNTED", 100)
    sql("ANALYZE pgqueue_jobs")
    assert 101 < throughput.backlog("default", "default") < 1000


@pytest.mark.parametrize(
    ("parameters", "minutes"),
    [
        ({"minutes": 1, "number": 60, "queue": None, "by_queue": False}, 60),
        ({"minutes": 1, "number": 60, "queue": "q1", "by_queue": False}, 60),
        ({"minutes": 15, "number": 96, "queue": None, "by_queue": True}, 1440),
    ],
)
def test_counts_are_read_by_their_minute(queue, sql, parameters, minutes):
    sql(
        "INSERT INTO pgqueue_stats (minute, queue, task, succeeded) SELECT "
        "date_trunc('minute', now()) - make_interval(mins => n), 'q' || t, 't' || t, 1 "
        "FROM generate_series(0, 2999) AS n, generate_series(1, 10) AS t"
    )
    nodes = explain(queue, statement("throughput"), {**parameters, "now": None})
    [scan] = [node for node in nodes if node.get("Relation Name") == "pgqueue_stats"]
    assert scan["Index Name"] == "pgqueue_stats_minute"
    assert scan["Actual Loops"] == 1
    assert scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0) <= 10 * minutes


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


@pytest.mark.parametrize(("by_task", "only_full_minutes"), [(False, False), (False, True), (True, False)])
def test_recent_counts_are_read_by_their_minute(queue, sql, by_task, only_full_minutes):
    sql(
        "INSERT INTO pgqueue_stats (minute, queue, task, succeeded, wait_buckets) SELECT "
        "date_trunc('minute', now()) - make_interval(mins => n), 'q' || t, 't' || t, 1, '{1,2,3}' "
        "FROM generate_series(0, 2999) AS n, generate_series(1, 10) AS t"
    )
    parameters = {"minutes": 5, "by_task": by_task, "only_full_minutes": only_full_minutes, "now": None, "limit": 10}
    nodes = explain(queue, statement("throughput_recent"), parameters)
    [scan] = [node for node in nodes if node.get("Relation Name") == "pgqueue_stats"]
    assert scan["Index Name"] == "pgqueue_stats_minute"
    assert scan["Actual Rows"] * scan["Actual Loops"] <= 10 * 7
