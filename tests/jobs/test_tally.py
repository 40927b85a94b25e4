"""Outcomes of jobs are counted, and added to the table now and then."""

import datetime as dt
import math
import threading
import time
from itertools import zip_longest
from types import SimpleNamespace

import pytest
from django.db import OperationalError, transaction

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.jobs import leases as heartbeat
from django_pgqueue.jobs import stats
from django_pgqueue.jobs import tally as tallies
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.counters import ProcessCounters
from django_pgqueue.jobs.stats import BOUNDS
from django_pgqueue.jobs.tally import StatsBuffer
from django_pgqueue.maintenance.expirer import expire
from django_pgqueue.maintenance.reaper import reap_lost, settle_dead_process
from django_pgqueue.models import Job, Stat
from django_pgqueue.records import EndCounts, Fate, Outcome
from django_pgqueue.states import Reason
from django_pgqueue.worker.heartbeat import HeartbeatMonitor
from django_pgqueue.worker.maintenance import MaintenanceRunner
from tests.support.consumers import cycle
from tests.support.waiting import PATIENCE_SECONDS, beside, eventually
from tests.support.worker_rows import register

WORK = {"succeeded", "failed", "retried", "died", "lost", "stale"}


@pytest.fixture
def tally(queue):
    queue.autocommit()  # so that it knows the server's clock
    return StatsBuffer(queue)


def claimed(queue, number=1, name="default"):
    enqueue_many(app.noop.using(queue=name), [()] * number)
    return claim(queue, name, limit=number, worker_id=1)


def written() -> dict[str, float]:
    """Return the sums over all rows that are not zero."""
    rows = list(Stat.objects.values(*WORK))
    return {name: total for name in WORK if (total := sum(row[name] for row in rows))}


def test_name_that_no_index_has_room_for_takes_no_other_counts_along(tally):
    """SQL can enqueue a job of such a task; it dies as one of an unknown task."""
    random = "".join(map(chr, range(0x4E00, 0x4E00 + 4000)))
    longest = random[: tallies.LONGEST - len("q")]
    tally.count_ends(EndCounts(died=[("q", "short"), ("q", longest), ("q", random), (random, "x")]))
    tally.add()
    assert set(Stat.objects.values_list("queue", "task")) == {("q", "short"), ("q", longest)}


# What counts as what


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        ({"fate": Fate.SUCCEEDED}, {"succeeded": 1}),
        ({"fate": Fate.REPEATED}, {"succeeded": 1}),
        ({"fate": Fate.RECORDED}, {"succeeded": 1}),
        ({"fate": Fate.RETRIED}, {"failed": 1, "retried": 1}),
        ({"fate": Fate.DIED}, {"failed": 1, "died": 1}),
        ({"fate": Fate.DIED, "reason": Reason.DISCARDED}, {"failed": 1, "died": 1}),
        ({"fate": Fate.DIED, "reason": Reason.KILLED}, {"died": 1}),
        ({"fate": Fate.DIED, "reason": Reason.EXPIRED}, {"died": 1}),
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
    enqueue_many(app.noop, [()] * 2)
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 day'")
    jobs = claim(queue, "default", limit=2, worker_id=1)
    day, here = 24 * 3600.0, StatsBuffer(queue)
    here.count([Outcome(job, Fate.SUCCEEDED) for job in jobs], stale=frozenset())
    here.add()
    assert 2 * day - 60 < sum(Stat.objects.values_list("wait_seconds", flat=True)) < 3 * day


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


# When and how they are added


def test_consumer_counts_what_it_writes_and_adds_it_when_that_is_due(consumer):
    enqueue_many(app.noop, [()] * 3)
    cycle(consumer)
    assert consumer._follow_ups.add_at() == math.inf, "who has done nothing has nothing to add"
    for fate in (Fate.SUCCEEDED, Fate.SUCCEEDED, Fate.RETRIED):
        consumer.slots.finish(fate, **({"error": {"error": "x"}} if fate is Fate.RETRIED else {}))
    before = time.monotonic()
    cycle(consumer)
    assert before + 5 < consumer._follow_ups.add_at() <= time.monotonic() + 10
    assert not Stat.objects.exists()
    consumer.stop()
    consumer.run()
    assert written() == {"succeeded": 2, "failed": 1, "retried": 1}


def test_idle_consumer_is_woken_by_what_it_has_to_add(consumer):
    enqueue_many(app.noop, [()])
    cycle(consumer)
    consumer.slots.finish()
    cycle(consumer)
    consumer._follow_ups._stats._add_at = 0.0
    assert consumer._patience() == 0.0
    consumer._follow_ups.add_counts()
    assert consumer._follow_ups.add_at() == math.inf
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
    monkeypatch.setattr(tallies, "LAST_MILLISECONDS", 100_000)
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
    enqueue_many(app.noop, [()] * 2)
    cycle(consumer)
    consumer.slots.finish()
    sql("ALTER TABLE pgqueue_stats RENAME TO pgqueue_stats_hidden")
    try:
        cycle(consumer)
        consumer._follow_ups.add_counts()
        consumer.slots.finish()
        cycle(consumer)
    finally:
        sql("ALTER TABLE pgqueue_stats_hidden RENAME TO pgqueue_stats")
    assert caplog.text.count("is not counted for an hour") == 1
    assert (Job.objects.count(), consumer._backoff.failures) == (0, 0)
    assert consumer._follow_ups.add_at() > time.monotonic() + 600


def test_counts_do_not_grow_without_bound(queue, tally, monkeypatch):
    monkeypatch.setattr(tallies, "MOST", 10)
    tally.count_ends(EndCounts(died=tuple(("q", f"t{number}") for number in range(100))))
    tally.count_ends(EndCounts(died=(("q", "t1"),)))
    tally.add()
    assert set(Stat.objects.values_list("task", flat=True)) <= {f"t{number}" for number in range(10)}
    assert Stat.objects.count() >= 10
    assert Stat.objects.filter(task="t1", died__gt=0).exists()


# What ends without an outcome


def test_jobs_of_lost_workers_are_counted(queue, lost):
    lost(2)
    lost(1, max_attempts=1)
    ends = reap_lost(queue).ends
    kind = ("default", app.noop.name)
    assert ends == EndCounts(lost=(kind,) * 3, died=(kind,))


def test_jobs_of_a_dead_process_are_counted_by_how_far_they_had_come(queue):
    worker_id = register(queue)
    enqueue_many(app.noop, [()] * 2)
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


def test_maintenance_counts_what_expires_and_adds_it_when_that_is_due(queue, sql):
    app.noop.using(expires=dt.timedelta(hours=1)).enqueue()
    sql("UPDATE pgqueue_jobs SET expires_at = now() - interval '1 s'")
    maintenance = MaintenanceRunner(
        "default", SimpleNamespace(ended=[]), HeartbeatMonitor(30), wake=lambda queues: None, drained=None
    )
    try:
        maintenance._look()
        maintenance._expire()
        maintenance._add_counts()
        assert not Stat.objects.exists(), "it is not due"
        maintenance._stats._add_at = 0.0
        maintenance._add_counts()
    finally:
        maintenance.database.close()
    assert written() == {"died": 1}
    assert expire(queue).ends == EndCounts()
