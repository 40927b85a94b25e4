import datetime as dt
import threading
from types import SimpleNamespace

import pytest
from django.db import OperationalError, connection, transaction

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.base.records import Fate, Lease, Outcome
from django_pgqueue.db import QueueConnection
from django_pgqueue.housekeeping.promote import next_due_seconds, promote
from django_pgqueue.housekeeping.reaper import forget_workers, reap_lost
from django_pgqueue.housekeeping.retention import keep_partitions
from django_pgqueue.lifecycle import ack, heartbeat
from django_pgqueue.lifecycle.claim import claim
from django_pgqueue.lifecycle.drain import is_drained
from django_pgqueue.lifecycle.reap import settle_dead_process
from django_pgqueue.models import DeadJob, FinishedJob, Job, Worker
from django_pgqueue.runtime.heart import Heart, Pulse
from django_pgqueue.runtime.marks import Marks, now


def register(queue, **changes) -> int:
    values = {
        "supervisor_id": 1,
        "host": "web1",
        "name": "",
        "version": "1",
        "concurrency": 8,
        "queues": (),
        "lease_seconds": 30,
    }
    return heartbeat.register(queue, **values | changes)


@pytest.fixture
def lost(queue, sql):
    """Claim jobs for a worker that then falls silent; return their ids."""

    def make(number=1, **options):
        ids = enqueue_many(app.noop.using(**options), [()] * number)
        worker_id = register(queue)
        heartbeat.beat(queue, {worker_id: 4711}, lease_seconds=30)
        claim(queue, "default", limit=1000, worker_id=worker_id)
        sql("UPDATE pgqueue_jobs SET lease_until = now() - interval '1 s'")
        sql("UPDATE pgqueue_workers SET lease_until = now() - interval '1 s'")
        return ids

    return make


# Promote


def test_promote_makes_due_jobs_claimable_and_leaves_others(queue, sql):
    due, later = enqueue_many(app.noop.using(run_at=dt.timedelta(hours=1)), [(), ()])
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s' WHERE id = %s", due)
    assert promote(queue) == {"default": 1}
    assert dict(Job.objects.values_list("id", "status")) == {due: "queued", later: "scheduled"}
    assert promote(queue) == {}


def test_promote_takes_a_bounded_slice_and_steps_over_locked_rows(queue, sql):
    ids = enqueue_many(app.noop.using(run_at=dt.timedelta(hours=1)), [()] * 1500)
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s'")
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=ids[0])
        assert promote(queue) == {"default": 1000}
        assert promote(queue) == {"default": 499}
    assert promote(queue) == {"default": 1}


def test_next_due_is_the_time_to_the_first_scheduled_job(queue):
    assert next_due_seconds(queue) is None
    app.noop.using(run_at=dt.timedelta(hours=1)).enqueue()
    assert 3590 < next_due_seconds(queue) <= 3600


# Reap


def test_reaper_requeues_jobs_of_a_silent_worker_and_says_who_it_was(queue, lost):
    [job_id] = lost()
    assert reap_lost(queue) == (1, 0, {"default"})
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.attempts, job.lost, job.lease_token) == ("queued", 1, 1, 0)
    assert (job.errors[0]["error"], job.errors[0]["worker"]) == ("worker lost", "web1 pid 4711")


def test_reaper_leaves_jobs_whose_own_lease_stands(queue, lost, sql):
    lost()
    sql("UPDATE pgqueue_jobs SET lease_until = now() + interval '1 s'")
    assert reap_lost(queue) == (0, 0, frozenset())


def test_reaper_leaves_jobs_of_a_worker_that_is_alive(queue, lost, sql):
    lost()
    sql("UPDATE pgqueue_workers SET lease_until = now() + interval '1 s'")
    assert reap_lost(queue) == (0, 0, frozenset())


def test_reaper_takes_jobs_whose_worker_has_no_row_at_all(queue, lost, sql):
    lost(3)
    sql("DELETE FROM pgqueue_workers")
    assert reap_lost(queue)[0] == 3
    assert "worker " in Job.objects.first().errors[0]["worker"]


@pytest.mark.parametrize(
    ("column", "reason"),
    [("attempts = max_attempts", "lost"), ("lost = 2", "lost"), ("cancel_requested_at = now()", "killed")],
)
def test_reaper_buries_what_may_not_run_again(queue, lost, sql, column, reason):
    [job_id] = lost()
    sql(f"UPDATE pgqueue_jobs SET {column}")
    assert reap_lost(queue) == (0, 1, frozenset())
    dead = DeadJob.objects.get(pk=job_id)
    assert (dead.reason, dead.errors[-1]["error"]) == (reason, "worker lost")


@pytest.mark.parametrize("column", ["attempts = max_attempts - 1", "lost = 1"])
def test_reaper_gives_a_last_chance(queue, lost, sql, column):
    lost()
    sql(f"UPDATE pgqueue_jobs SET {column}")
    assert reap_lost(queue)[0] == 1


def test_late_ack_of_a_reaped_job_is_stale(queue, sql):
    app.noop.enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=5)
    sql("UPDATE pgqueue_jobs SET lease_until = now() - interval '1 s'")
    reap_lost(queue)
    assert ack.write(queue, [Outcome(job, Fate.SUCCEEDED)]).stale == {job.id}
    assert Job.objects.get().status == "queued"


def test_two_reapers_at_once_settle_each_job_once(queue, other_queue, lost):
    lost(500)
    results = []
    threads = [threading.Thread(target=lambda c=c: results.append(reap_lost(c))) for c in (queue, other_queue)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result.returned for result in results) == 500
    assert set(Job.objects.values_list("lost", flat=True)) == {1}


def test_reaper_does_not_wait_for_a_locked_row(queue, lost):
    ids = lost(3)
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=ids[1])
        assert reap_lost(queue).returned == 2
    assert reap_lost(queue).returned == 1


def test_dead_process_pays_only_for_what_it_had_started(queue):
    worker_id = register(queue)
    enqueue_many(app.noop, [()] * 3)
    started, *unrun = claim(queue, "default", limit=4, worker_id=worker_id)
    leases = heartbeat.leases(queue, [worker_id])
    mark = started.id ^ started.lease_token
    assert settle_dead_process(queue, leases, started={mark}, was_stopped=False)[:2] == (3, 0)
    rows = Job.objects.in_bulk()
    assert (rows[started.id].attempts, rows[started.id].lost) == (1, 1)
    assert all((rows[job.id].attempts, rows[job.id].lost) == (0, 0) for job in unrun)


def test_job_that_was_to_be_killed_does_not_go_back_when_its_process_is_stopped(queue, sql):
    worker_id = register(queue)
    app.noop.enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=worker_id)
    sql("UPDATE pgqueue_jobs SET cancel_requested_at = now()")
    leases = heartbeat.leases(queue, [worker_id])
    assert settle_dead_process(queue, leases, started={job.id ^ job.lease_token}, was_stopped=True)[:2] == (0, 1)
    assert DeadJob.objects.get().reason == "killed"


def test_process_stopped_on_purpose_gives_attempts_back_but_for_those_with_one_only(queue):
    worker_id = register(queue)
    many = app.noop.enqueue().id
    once = app.noop.using(max_attempts=1).enqueue().id
    claimed = claim(queue, "default", limit=2, worker_id=worker_id)
    leases = heartbeat.leases(queue, [worker_id])
    marks = {job.id ^ job.lease_token for job in claimed}
    settle_dead_process(queue, leases, started=marks, was_stopped=True)
    assert Job.objects.get().id == many
    assert Job.objects.get().attempts == 0
    assert (DeadJob.objects.get().id, DeadJob.objects.get().reason) == (once, "lost")


# Heartbeat


def test_heartbeat_renews_leases_and_names_those_that_stand(queue, sql):
    one, two = register(queue), register(queue)
    sql("UPDATE pgqueue_workers SET lease_until = now() - interval '1 hour'")
    sql("DELETE FROM pgqueue_workers WHERE id = %s", two)
    assert heartbeat.beat(queue, {one: 11, two: 22}, lease_seconds=30) == {one}
    worker = Worker.objects.get()
    assert worker.pid == 11
    assert worker.lease_until - worker.heartbeat_at == dt.timedelta(seconds=30)


def test_leases_carry_cancel_requests(queue, sql):
    app.noop.enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=9)
    assert heartbeat.leases(queue, [9]) == [
        Lease(job.id, job.lease_token, 9, "default", 1, 10, 0, is_cancelled=False, worker="worker 9")
    ]
    sql("UPDATE pgqueue_jobs SET cancel_requested_at = now()")
    assert heartbeat.leases(queue, [9])[0].is_cancelled
    assert heartbeat.leases(queue, [8]) == []


def test_silent_workers_are_forgotten_after_an_hour_if_they_run_nothing(queue, sql):
    idle, busy, _fresh = register(queue), register(queue), register(queue)
    app.noop.enqueue()
    claim(queue, "default", limit=1, worker_id=busy)
    sql("UPDATE pgqueue_workers SET lease_until = now() - interval '61 min' WHERE id IN (%s, %s)", idle, busy)
    assert forget_workers(queue) == 1
    assert Worker.objects.filter(pk=busy).exists()


def test_pulse_is_steady_after_a_lease_without_a_gap():
    start = now()
    pulse = Pulse(lease_seconds=10, last=start)
    assert not pulse.is_steady()
    for at in (start - 10.5, start - 8, start - 4):
        pulse.beat(at)
    assert not pulse.is_steady()
    pulse.beat(start)
    assert pulse.is_steady()
    pulse.stumble()
    assert not pulse.is_steady()


@pytest.mark.parametrize(("gap", "is_steady"), [(4.9, True), (5.1, False)])
def test_pulse_starts_over_after_a_gap_of_half_a_lease(gap, is_steady):
    start = now()
    pulse = Pulse(lease_seconds=10, last=start)
    for at in (start - 18, start - 14, start - 10, start - 6, start - gap, start):
        pulse.beat(at)
    assert pulse.is_steady() is is_steady


def test_process_taken_for_dead_is_registered_again_under_its_id(queue):
    worker_id = register(queue)
    assert register(queue, worker_id=worker_id) is None
    heartbeat.deregister(queue, [worker_id])
    assert register(queue, worker_id=worker_id) == worker_id
    assert register(queue) != worker_id


@pytest.fixture
def heart(queue):
    """The heartbeat of one process that holds nothing by its own book."""
    process = SimpleNamespace(worker_id=register(queue), pid=1, marks=Marks(), order=lambda line: None)
    made = Heart("default", SimpleNamespace(living=[process], lease_seconds=30))
    yield made, process
    made.database.close()


def test_claim_that_never_reached_its_process_is_released_once_its_pump_has_turned(queue, heart):
    beat, process = heart[0].pass_once, heart[1]
    app.noop.enqueue()
    claim(queue, "default", limit=1, worker_id=process.worker_id)
    beat()
    beat()
    assert Job.objects.get().status == "running", "the pump may still be writing down what it has claimed"
    process.marks.turned()
    beat()
    assert (Job.objects.get().status, Job.objects.get().attempts) == ("queued", 0)


def test_claim_that_its_process_holds_is_left_alone(queue, heart):
    beat, process = heart[0].pass_once, heart[1]
    app.noop.enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=process.worker_id)
    for turn in range(3):
        beat()
        process.marks.turned()
        if turn == 0:
            process.marks.hold([0], [job])
    assert Job.objects.get().status == "running"


def test_beat_that_fails_starts_the_pulse_over(heart, monkeypatch):
    heart[0].pulse.first = now() - 60
    monkeypatch.setitem(heart[0].database._wrapper.settings_dict, "HOST", "/nowhere")
    with pytest.raises(OperationalError):
        heart[0].pass_once()
    assert not heart[0].pulse.is_steady()


# Drain


def test_drained_means_nothing_claimable_due_or_running_here(queue, sql):
    def drained(queues=(), worker_ids=()):
        return is_drained(queue, queues=queues, worker_ids=worker_ids)

    assert drained()
    job_id = app.noop.using(queue="mail").enqueue().id
    assert not drained()
    assert drained(queues=["default"])
    assert not drained(queues=["mail"])
    claim(queue, "mail", limit=1, worker_id=3)
    assert drained(worker_ids=[4])
    assert not drained(worker_ids=[3])
    sql(
        "UPDATE pgqueue_jobs SET status = 'scheduled', lease_token = 0, run_at = now() + interval '1 h' WHERE id = %s",
        job_id,
    )
    assert drained()
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s'")
    assert not drained()


# Retention


def partitions() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'pgqueue_finished_jobs'::regclass"
        )
        return {name for (name,) in cursor.fetchall()}


def day(offset: int) -> str:
    return f"pgqueue_finished_jobs_{dt.datetime.now(dt.UTC).date() + dt.timedelta(offset):%Y%m%d}"


def test_partitions_are_made_ahead_and_dropped_behind(queue, sql):
    name = day(-9)
    sql(f"CREATE TABLE {name} PARTITION OF pgqueue_finished_jobs FOR VALUES FROM ('{name[-8:]}') TO ('{day(-8)[-8:]}')")
    sql(f"DROP TABLE {day(7)}")
    assert keep_partitions(queue, retention_days=7) == (1, 1)
    assert day(7) in partitions()
    assert name not in partitions()
    assert keep_partitions(queue, retention_days=7) == (0, 0)


def test_history_that_was_switched_off_is_dropped_but_for_today(queue):
    assert keep_partitions(queue, retention_days=0) == (0, 0)
    name = day(-1)
    queue.autocommit().execute(
        f"CREATE TABLE {name} PARTITION OF pgqueue_finished_jobs FOR VALUES FROM ('{name[-8:]}') TO ('{day(0)[-8:]}')"
    )
    assert keep_partitions(queue, retention_days=1) == (0, 0)
    assert keep_partitions(queue, retention_days=0) == (0, 1)


def test_reader_in_the_way_of_a_drop_postpones_it(queue, sql):
    name = day(-9)
    sql(f"CREATE TABLE {name} PARTITION OF pgqueue_finished_jobs FOR VALUES FROM ('{name[-8:]}') TO ('{day(-8)[-8:]}')")
    with transaction.atomic():
        list(FinishedJob.objects.all()[:1])
        assert keep_partitions(queue, retention_days=7) == (0, 0)
    assert keep_partitions(queue, retention_days=7) == (0, 1)


def test_day_whose_rows_are_in_the_default_partition_is_left_there(queue, sql):
    sql(f"DROP TABLE {day(0)}")
    app.noop.enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=1)
    ack.write(queue, [Outcome(job, Fate.SUCCEEDED)])
    assert keep_partitions(queue, retention_days=7) == (0, 0)
    assert FinishedJob.objects.count() == 1
    sql("DELETE FROM pgqueue_finished_jobs")
    assert keep_partitions(queue, retention_days=7) == (1, 0)


def test_role_that_does_not_own_the_table_is_told_so(queue, sql, caplog):
    sql("DROP ROLE IF EXISTS pgqueue_lesser")
    sql("CREATE ROLE pgqueue_lesser")
    sql(f"DROP TABLE {day(7)}")
    lesser = QueueConnection("default", "lesser")
    lesser.autocommit().execute("SET ROLE pgqueue_lesser")
    assert keep_partitions(lesser, retention_days=7) == (0, 0)
    lesser.close()
    sql("DROP ROLE pgqueue_lesser")
    assert "The worker's role must own the table" in caplog.text
    assert keep_partitions(queue, retention_days=7) == (1, 0)
