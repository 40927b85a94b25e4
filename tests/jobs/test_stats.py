"""Counts of attempts and jobs: buffered, added minute by minute, kept in shared memory for metrics; percentiles."""

import datetime as dt
import math
import multiprocessing
import signal
import threading
import time
from itertools import zip_longest

import pytest
from django.db import OperationalError, transaction
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

import tests.app.tasks as app
from django_pgqueue import queues
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs import leases as heartbeat
from django_pgqueue.jobs import stats
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.stats import (
    BOUNDS,
    BUCKETS,
    ENQUEUED,
    LOST,
    ROW_WIDTH,
    SUCCEEDED,
    ProcessCounters,
    StatsBuffer,
    bucket_counts,
    percentile,
)
from django_pgqueue.maintenance.expirer import expire
from django_pgqueue.maintenance.reaper import settle_dead_process
from django_pgqueue.models import Job, Stat
from django_pgqueue.records import EndCounts, Fate, Outcome
from django_pgqueue.states import DeathReason
from tests.support.consumers import cycle
from tests.support.counters import add_and_die
from tests.support.passes import run_service
from tests.support.plans import explain
from tests.support.queue_limits import take
from tests.support.waiting import PATIENCE_SECONDS, beside, eventually
from tests.support.worker_rows import reap_all, register


def counts_of(seconds):
    found = bucket_counts(seconds)
    return [found[bucket] for bucket in range(BUCKETS)]


@pytest.mark.parametrize("bucket", range(len(BOUNDS)))
def test_bound_belongs_to_the_bucket_that_ends_with_it(bucket):
    assert bucket_counts([BOUNDS[bucket]]) == {bucket: 1}
    assert bucket_counts([BOUNDS[bucket] * 1.001]) == {bucket + 1: 1}


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


def test_percentile_that_rounding_would_put_above_its_bucket_is_its_bound():
    assert percentile(counts_of([0.002] * 3 + [1.0] * 3), 0.5) == 0.0025


@given(
    st.lists(st.floats(min_value=0.0, max_value=14400.0), min_size=2, max_size=200), st.sampled_from([0.5, 0.95, 0.99])
)
def test_percentile_is_in_the_bucket_of_the_value_itself(seconds, share):
    ranked = sorted(seconds)
    value = ranked[max(math.ceil(len(ranked) * share), 1) - 1]
    [bucket] = bucket_counts([value])
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


def kept(meter) -> dict:
    return {(queue, task): sums[SUCCEEDED] for queue, task, sums in meter.rows()}


def test_rows_are_kept_apart_and_found_again():
    meter = ProcessCounters()
    for queue, task, number in (("a", "x", 1), ("a", "y", 2), ("b", "x", 4), ("a", "x", 8)):
        meter.row(queue, task)[SUCCEEDED] += number
    assert kept(meter) == {("a", "x"): 9, ("a", "y"): 2, ("b", "x"): 4}


def test_rows_without_any_sum_are_left_out():
    meter = ProcessCounters()
    meter.row("a", "x")
    assert not list(meter.rows())
    meter.row("a", "x")[LOST] += 1
    [(_queue, _task, sums)] = meter.rows()
    assert len(sums) == ROW_WIDTH
    assert sum(sums) == 1


def test_names_may_be_any_text():
    meter = ProcessCounters()
    meter.row('"quoted"\n', "Aufgabe ü 🦆")[SUCCEEDED] += 1
    assert kept(meter) == {('"quoted"\n', "Aufgabe ü 🦆"): 1}


@pytest.mark.parametrize("queue", ["full", "long" * 1000])
def test_what_finds_no_room_is_summed_up_without_names(queue, monkeypatch):
    monkeypatch.setattr(stats, "ROWS", 3)
    meter = ProcessCounters()
    for number in range(2):
        meter.row(f"queue {number}", "x")[SUCCEEDED] += 1
    meter.row(queue, "x")[SUCCEEDED] += 5
    meter.row(queue, "y")[SUCCEEDED] += 5
    assert kept(meter) == {("queue 0", "x"): 1, ("queue 1", "x"): 1, ("", ""): 10}


def test_what_finds_no_room_takes_no_memory_either():
    """With a queue for each tenant there is no end of names."""
    meter = ProcessCounters()
    for number in range(2 * stats.ROWS):
        meter.row(f"queue {number}", "x")[SUCCEEDED] += 1
        meter.enqueued("long" * 1000, f"task {number}", 1)
    assert len(meter._rows) < stats.ROWS
    assert kept(meter)["", ""] == stats.ROWS + 1


def test_what_a_process_has_added_stays_when_it_is_killed():
    context = multiprocessing.get_context("spawn")
    meter = ProcessCounters()
    process = context.Process(target=add_and_die, args=(meter,))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == -signal.SIGKILL
    assert kept(meter) == {("a", "x"): 7}


def test_copy_of_a_process_counts_nothing():
    meter = ProcessCounters()
    meter.enqueued("a", "x", 2)
    meter.disown()
    meter.enqueued("a", "x", 40)
    [(_, _, row)] = meter.rows()
    assert row[ENQUEUED] == 2


WORK = {"succeeded", "failed", "retried", "died", "lost", "stale"}


@pytest.fixture
def tally(queue):
    queue.autocommit()  # so that it knows the server's clock
    return StatsBuffer(queue)


def claimed(queue, number=1, name="default"):
    app.noop.using(queue=name).enqueue_many([()] * number)
    return claim(queue, name, limit=number, worker_id=1)


def written() -> dict[str, float]:
    """Return the sums over all rows that are not zero."""
    rows = list(Stat.objects.values(*WORK))
    return {name: total for name in WORK if (total := sum(row[name] for row in rows))}


def test_name_that_no_index_has_room_for_takes_no_other_counts_along(tally):
    """SQL can enqueue a job of such a task; it dies as one of an unknown task."""
    random = "".join(map(chr, range(0x4E00, 0x4E00 + 4000)))
    longest = random[: stats.LONGEST - len("q")]
    tally.count_ends(EndCounts(died=[("q", "short"), ("q", longest), ("q", random), (random, "x")]))
    tally.add()
    assert set(Stat.objects.values_list("queue", "task")) == {("q", "short"), ("q", longest)}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ({"fate": Fate.SUCCEEDED}, {"succeeded": 1}),
        ({"fate": Fate.REPEATED}, {"succeeded": 1}),
        ({"fate": Fate.RECORDED}, {"succeeded": 1}),
        ({"fate": Fate.RETRIED}, {"failed": 1, "retried": 1}),
        ({"fate": Fate.DIED}, {"failed": 1, "died": 1}),
        ({"fate": Fate.DIED, "reason": DeathReason.DISCARDED}, {"failed": 1, "died": 1}),
        ({"fate": Fate.DIED, "reason": DeathReason.KILLED}, {"died": 1}),
        ({"fate": Fate.DIED, "reason": DeathReason.EXPIRED}, {"died": 1}),
        ({"fate": Fate.RELEASED}, {}),
    ],
)
def test_outcome_counts_as_what_it_is(queue, tally, outcome, expected):
    [job] = claimed(queue)
    tally.count([Outcome(job, run_seconds=0.5, **outcome)], stale=frozenset())
    tally.add()
    assert written() == expected
    has_run = "succeeded" in expected or "failed" in expected
    assert sum(Stat.objects.values_list("run_seconds", flat=True)) == (0.5 if has_run else 0.0)


def test_outcome_that_lost_its_lease_is_not_counted(queue, tally):
    first, second = claimed(queue, 2)
    tally.count([Outcome(first, Fate.SUCCEEDED), Outcome(second, Fate.SUCCEEDED)], stale={first.id})
    tally.add()
    assert written() == {"succeeded": 1, "stale": 1}


def test_job_that_is_given_back_too_late_is_no_stale_result(queue, tally):
    [job] = claimed(queue)
    tally.count([Outcome(job, Fate.RELEASED)], stale={job.id})
    tally.add()
    assert written() == {}


def test_counts_are_kept_apart_by_queue_and_task_and_added_to_those_that_are_there(queue, tally):
    jobs = claimed(queue, 3, "a") + claimed(queue, 2, "b")
    for _ in range(2):
        tally.count([Outcome(job, Fate.SUCCEEDED, run_seconds=0.25) for job in jobs], stale=frozenset())
        tally.add()
    sums: dict[str, list[float]] = {"a": [0, 0.0], "b": [0, 0.0]}
    for name, succeeded, run_seconds in Stat.objects.values_list("queue", "succeeded", "run_seconds"):
        sums[name][0] += succeeded
        sums[name][1] += run_seconds
    assert sums == {"a": [6, 1.5], "b": [4, 1.0]}
    assert set(Stat.objects.values_list("task", flat=True)) == {app.noop.name}


def test_wait_is_from_when_it_was_due_to_its_claim_by_the_clock_of_the_database(queue, sql):
    app.noop.enqueue_many([()] * 2)
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 day', enqueued_at = now() - interval '2 days'")
    jobs = claim(queue, "default", limit=2, worker_id=1)
    day, here = 24 * 3600.0, StatsBuffer(queue)
    here.count([Outcome(job, Fate.SUCCEEDED) for job in jobs], stale=frozenset())
    here.add()
    assert 2 * day - 60 < sum(Stat.objects.values_list("wait_seconds", flat=True)) < 3 * day


@pytest.mark.parametrize("is_limited", [False, True])
def test_head_start_is_not_waited_for(queue, tally, is_limited):
    app.noop.using(head_start=3600).enqueue()
    if is_limited:
        queues.limit("default", max_running=9)
        jobs, *_ = take(queue)
    else:
        jobs = claim(queue, "default", limit=2, worker_id=1)
    tally.count([Outcome(job, Fate.SUCCEEDED) for job in jobs], stale=frozenset())
    tally.add()
    assert 0.0 <= Stat.objects.get().wait_seconds < PATIENCE_SECONDS


@pytest.mark.parametrize("is_limited", [False, True])
def test_fair_job_behind_an_old_backlog_has_waited_since_it_was_enqueued(queue, tally, sql, is_limited):
    """Its run_at is its turn: that of the head of the queue, which may be of any age."""
    app.noop.enqueue()
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 hour', enqueued_at = now() - interval '1 hour'")
    fair = app.noop.using(fair_key="a").enqueue().id
    assert Job.objects.get(pk=fair).run_at < timezone.now() - dt.timedelta(minutes=50)
    if is_limited:
        queues.limit("default", max_running=9)
        jobs, *_ = take(queue)
    else:
        jobs = claim(queue, "default", limit=2, worker_id=1)
    tally.count([Outcome(job, Fate.SUCCEEDED) for job in jobs if job.id == fair], stale=frozenset())
    tally.add()
    assert 0.0 <= Stat.objects.get().wait_seconds < PATIENCE_SECONDS


def test_fair_job_whose_turn_came_after_it_was_enqueued_has_waited_since_its_turn(queue, tally, sql):
    app.noop.using(fair_key="a").enqueue()
    sql("UPDATE pgqueue_jobs SET enqueued_at = now() - interval '1 hour'")
    jobs = claim(queue, "default", limit=1, worker_id=1)
    tally.count([Outcome(job, Fate.SUCCEEDED) for job in jobs], stale=frozenset())
    tally.add()
    assert 0.0 <= Stat.objects.get().wait_seconds < PATIENCE_SECONDS


def test_buckets_are_added_to_those_that_are_there_however_many_there_are(queue, tally):
    jobs = claimed(queue, 3)
    for run_seconds in (0.2, 0.0005, 40.0):
        tally.count([Outcome(job, Fate.SUCCEEDED, run_seconds=run_seconds) for job in jobs], stale=frozenset())
        tally.add()
    sums = [sum(counts) for counts in zip_longest(*Stat.objects.values_list("run_buckets", flat=True), fillvalue=0)]
    assert {BOUNDS[bucket]: number for bucket, number in enumerate(sums) if number} == {0.001: 3, 0.25: 3, 60.0: 3}
    assert sum(map(sum, Stat.objects.values_list("wait_buckets", flat=True))) == 9


def test_attempts_that_came_to_no_end_are_in_no_bucket(queue, tally):
    tally.count_ends(EndCounts(lost=[("default", "x")]))
    tally.add()
    assert list(Stat.objects.values_list("lost", "wait_buckets", "run_buckets")) == [(1, [], [])]


def test_meter_is_told_the_same(queue):
    queue.autocommit()
    meter = ProcessCounters()
    here = StatsBuffer(queue, meter)
    first, second, third = claimed(queue, 3)
    done = [Outcome(first, Fate.SUCCEEDED, run_seconds=0.2), Outcome(second, Fate.RETRIED, error={"error": "x"})]
    here.count([*done, Outcome(third, Fate.SUCCEEDED)], stale={third.id})
    here.count_ends(EndCounts(lost=[("default", app.noop.name)]))
    here.add()
    [(name, task, sums)] = meter.rows()
    assert (name, task) == ("default", app.noop.name)
    rows = list(Stat.objects.values_list(*stats.NAMES))
    assert sums[: len(stats.NAMES)] == pytest.approx([sum(column) for column in zip(*rows, strict=True)])
    assert sum(sums[stats.RUN_BUCKETS :]) == 2


def test_no_job_has_waited_for_less_than_no_time(queue, tally):
    [job] = claimed(queue)
    queue.clock_offset -= 3600.0
    tally.count([Outcome(job, Fate.SUCCEEDED)], stale=frozenset())
    tally.add()
    assert Stat.objects.get().wait_seconds == 0.0


def test_minute_is_that_of_the_database(queue, tally, sql):
    [job] = claimed(queue)
    before = queue.clock_offset
    queue.clock_offset += 30 * 24 * 3600.0
    tally.count([Outcome(job, Fate.SUCCEEDED)], stale=frozenset())
    tally.add()
    assert sql("SELECT minute > now() + interval '29 days' FROM pgqueue_stats") == [(True,)]
    assert Stat.objects.get().minute.second == 0
    assert abs(queue.clock_offset - before) < 24 * 3600.0, "to add is to look at the server's clock"


def test_consumer_counts_what_it_writes_and_adds_it_when_that_is_due(consumer):
    app.noop.enqueue_many([()] * 3)
    cycle(consumer)
    assert consumer._stats.add_at() == math.inf, "who has done nothing has nothing to add"
    for fate in (Fate.SUCCEEDED, Fate.SUCCEEDED, Fate.RETRIED):
        consumer.slots.finish(fate, **({"error": {"error": "x"}} if fate is Fate.RETRIED else {}))
    before = time.monotonic()
    cycle(consumer)
    assert before + 5 < consumer._stats.add_at() <= time.monotonic() + 10
    assert not Stat.objects.exists()
    consumer.stop()
    consumer.run()
    assert written() == {"succeeded": 2, "failed": 1, "retried": 1}


def test_idle_consumer_is_woken_by_what_it_has_to_add(consumer):
    app.noop.enqueue_many([()])
    cycle(consumer)
    consumer.slots.finish()
    cycle(consumer)
    consumer._stats._add_at = 0.0
    assert consumer._patience() == 0.0
    consumer._stats.add()
    assert consumer._stats.add_at() == math.inf
    assert written() == {"succeeded": 1}


def test_locked_row_is_not_waited_for_and_the_counts_are_kept(queue, tally, monkeypatch):
    [job] = claimed(queue)
    monkeypatch.setattr(tally, "_minute", lambda: 29_000_000)  # else the next one may have begun, and a row of its own
    tally.count([Outcome(job, Fate.SUCCEEDED)], stale=frozenset())
    tally.add()
    tally.count([Outcome(job, Fate.SUCCEEDED)], stale=frozenset())
    with transaction.atomic():
        list(Stat.objects.select_for_update())
        tally.add()
    assert tally.add_at() < math.inf
    tally.add()
    assert written() == {"succeeded": 2}


def test_process_that_ends_waits_for_a_row_since_it_has_no_next_time(queue, other_queue, tally, monkeypatch):
    [job] = claimed(queue)
    monkeypatch.setattr(tally, "_minute", lambda: 29_000_000)
    for _ in range(2):
        tally.count([Outcome(job, Fate.SUCCEEDED)], stale=frozenset())
        if not Stat.objects.exists():
            tally.add()
    monkeypatch.setattr(stats, "LAST_MILLISECONDS", 100_000)
    is_locked = threading.Event()

    def end():
        is_locked.wait(PATIENCE_SECONDS)
        tally.add(is_last=True)

    waits = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %(what)s"
    with beside(end), transaction.atomic():
        list(Stat.objects.select_for_update())
        is_locked.set()
        eventually(lambda: other_queue.rows(waits, {"what": "%pgqueue_stats%"}))
    assert written() == {"succeeded": 2}


def test_counts_outlive_a_lost_connection(queue, tally, sql):
    [job] = claimed(queue)
    tally.count([Outcome(job, Fate.SUCCEEDED)], stale=frozenset())
    sql("SELECT pg_terminate_backend(%s)", queue.autocommit().info.backend_pid)
    with pytest.raises(OperationalError):
        tally.add()
    tally.add()
    assert written() == {"succeeded": 1}


def test_worker_that_may_not_count_says_so_and_works_on(consumer, sql, caplog):
    app.noop.enqueue_many([()] * 2)
    cycle(consumer)
    consumer.slots.finish()
    sql("ALTER TABLE pgqueue_stats RENAME TO pgqueue_stats_hidden")
    try:
        cycle(consumer)
        consumer._stats.add()
        consumer.slots.finish()
        cycle(consumer)
    finally:
        sql("ALTER TABLE pgqueue_stats_hidden RENAME TO pgqueue_stats")
    assert caplog.text.count("are not counted for an hour") == 1
    assert (Job.objects.count(), consumer._backoff.failures) == (0, 0)
    assert consumer._stats.add_at() > time.monotonic() + 600


def test_counts_do_not_grow_without_bound(queue, tally, monkeypatch):
    monkeypatch.setattr(stats, "MOST", 10)
    tally.count_ends(EndCounts(died=tuple(("q", f"t{number}") for number in range(100))))
    tally.count_ends(EndCounts(died=(("q", "t1"),)))
    tally.add()
    assert set(Stat.objects.values_list("task", flat=True)) <= {f"t{number}" for number in range(10)}
    assert Stat.objects.count() >= 10
    assert Stat.objects.filter(task="t1", died__gt=0).exists()


def test_jobs_of_lost_workers_are_counted(queue, lost):
    lost(2)
    lost(1, max_attempts=1)
    ends = reap_all(queue).ends
    kind = ("default", app.noop.name)
    assert ends == EndCounts(lost=(kind,) * 3, died=(kind,))


def test_jobs_of_a_dead_process_are_counted_by_how_far_they_had_come(queue):
    worker_id = register(queue)
    app.noop.enqueue_many([()] * 2)
    app.noop.using(max_attempts=1, queue="last").enqueue()
    app.noop.using(queue="overdue").enqueue()
    jobs = [job for name in ("default", "last", "overdue") for job in claim(queue, name, limit=2, worker_id=worker_id)]
    started = {job.run_id for job in jobs[1:]}
    leases = heartbeat.worker_leases(queue, [worker_id])
    settled = settle_dead_process(queue, leases, started=started, overdue={jobs[3].run_id}, was_stopped=False)
    name = app.noop.name
    assert settled.ends.lost == (("default", name), ("last", name))
    assert (settled.ends.failed, settled.ends.retried) == ((("overdue", name),), (("overdue", name),))
    assert settled.ends.died == (("last", name),)


def test_maintenance_counts_what_expires_and_adds_it_when_that_is_due(queue, sql, maintenance_runner):
    app.noop.using(expires=dt.timedelta(hours=1)).enqueue()
    sql("UPDATE pgqueue_jobs SET expires_at = now() - interval '1 s'")
    maintenance = maintenance_runner()
    for service in ("read_pending", "expire", "write_stats"):
        run_service(maintenance.services, service)
    assert not Stat.objects.exists(), "it is not due"
    maintenance._stats._add_at = 0.0
    run_service(maintenance.services, "write_stats")
    assert written() == {"died": 1}
    assert expire(queue).ends == EndCounts()
