import contextlib
import datetime as dt
import logging
import os
import threading
from types import SimpleNamespace

import psycopg
import pytest
from django.db import OperationalError, transaction

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.jobs import ack
from django_pgqueue.jobs import leases as worker_rows
from django_pgqueue.jobs.actions import kill
from django_pgqueue.jobs.claim import claim, send
from django_pgqueue.jobs.leases import request_stop
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.jobs.tally import StatsBuffer
from django_pgqueue.maintenance.pending_work import is_drained
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.maintenance.reaper import forget_workers, reap_gone, reap_lost, settle_dead_process
from django_pgqueue.models import DeadJob, FinishedJob, Job, Worker
from django_pgqueue.records import Fate, Lease, Outcome
from django_pgqueue.services import AdaptiveBatch
from django_pgqueue.states import NEVER
from django_pgqueue.worker.child import ChildConfig
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.heartbeat import SILENT_SECONDS, Heartbeat, HeartbeatMonitor, Liveness, SilentWorkers
from django_pgqueue.worker.maintenance import MaintenanceRunner
from django_pgqueue.worker.metrics import CommandCounters
from django_pgqueue.worker.processes import ProcessPool, Vacancy
from django_pgqueue.worker.reaper import Reaper
from django_pgqueue.worker.shared_state import SharedState, now
from django_pgqueue.worker.worker_process import UNGUARDED, WorkerProcess, can_read_memory, resident_bytes
from tests.support import needs
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.worker_rows import register

# Promote


def test_promote_makes_due_jobs_claimable_and_leaves_others(queue, sql):
    due, later = enqueue_many(app.noop.using(run_at=dt.timedelta(hours=1)), [(), ()])
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s' WHERE id = %s", due)
    assert promote(queue).queues == {"default": 1}
    assert dict(Job.objects.values_list("id", "status")) == {due: "queued", later: "scheduled"}
    assert promote(queue) == ({}, {})


def test_promote_takes_a_bounded_slice_and_steps_over_locked_rows(queue, sql):
    ids = enqueue_many(app.noop.using(run_at=dt.timedelta(hours=1)), [()] * 1500)
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s'")
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=ids[0])
        assert promote(queue).queues == {"default": 1000}
        assert promote(queue).queues == {"default": 499}
    assert promote(queue).queues == {"default": 1}


# Reap


def test_reaper_retries_jobs_of_a_silent_worker_and_says_who_it_was(queue, lost):
    [job_id] = lost()
    assert reap_lost(queue)[:3] == (1, 0, {"default"})
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.attempts, job.lost, job.lease_token) == ("queued", 1, 1, 0)
    assert (job.errors[0]["kind"], job.errors[0]["worker"]) == ("lost", "web1 pid 4711")


def test_reaper_leaves_jobs_whose_own_lease_stands(queue, lost, sql):
    lost()
    sql("UPDATE pgqueue_jobs SET lease_until = now() + interval '1 min'")
    assert reap_lost(queue)[:3] == (0, 0, frozenset())


def test_reaper_leaves_jobs_of_a_worker_that_is_alive(queue, lost, sql):
    lost()
    sql("UPDATE pgqueue_workers SET lease_until = now() + interval '1 min'")
    assert reap_lost(queue)[:3] == (0, 0, frozenset())


def silence(sql, session_pid, seconds=60):
    sql(
        "UPDATE pgqueue_workers SET lease_until = now() + interval '1 min', session_pid = %s, "
        "heartbeat_at = now() - make_interval(secs => %s)",
        session_pid,
        seconds,
    )


def test_process_is_absent_when_its_session_has_ended_and_it_is_silent(queue, other_queue, lost, sql):
    lost()
    [(worker_id,)] = sql("SELECT id FROM pgqueue_workers")
    silence(sql, other_queue.autocommit().info.backend_pid)
    assert worker_rows.silent_workers(queue, seconds=4) == [], "its session is there"
    silence(sql, 0)
    assert worker_rows.silent_workers(queue, seconds=4) == [], "it never had one"
    pid = other_queue.autocommit().info.backend_pid
    other_queue.close()
    eventually(lambda: not sql("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid))
    silence(sql, pid, seconds=61)
    assert worker_rows.silent_workers(queue, seconds=120) == [], "its heartbeat is fresh"
    assert worker_rows.silent_workers(queue, seconds=60) == [worker_id]
    sql("UPDATE pgqueue_workers SET lease_until = now()")
    assert worker_rows.silent_workers(queue, seconds=4) == [], "then the lease decides"


def test_jobs_of_a_process_that_is_gone_are_settled_before_their_lease(queue, lost, sql):
    [job_id] = lost()
    silence(sql, 1)
    sql("UPDATE pgqueue_jobs SET lease_until = now() + interval '20 s'")
    [(worker_id,)] = sql("SELECT id FROM pgqueue_workers")
    assert reap_lost(queue)[:3] == (0, 0, frozenset())
    assert reap_gone(queue, [worker_id])[:3] == (1, 0, {"default"})
    assert Job.objects.get(pk=job_id).errors[0]["kind"] == "lost"


def test_jobs_of_a_process_that_is_gone_are_settled_in_slices(queue, lost, sql):
    lost(3)
    [(worker_id,)] = sql("SELECT id FROM pgqueue_workers")
    assert [reap_gone(queue, [worker_id], limit=2).returned for _ in range(3)] == [2, 1, 0]


def test_only_an_absence_without_a_gap_counts(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("django_pgqueue.worker.heartbeat.time", SimpleNamespace(monotonic=lambda: clock[0]))
    absences = SilentWorkers()

    def looks(*seconds_and_absent):
        found = []
        for seconds, absent in seconds_and_absent:
            clock[0] = seconds
            found.append(absences.still_silent(lambda absent=absent: absent))
        return found

    assert looks((0, [7]), (1.9, [7]), (2, [7, 8]), (3, [7, 8])) == [[], [], [7], [7]]
    assert looks((6, []), (7, [7]), (8, [7]), (9, [7])) == [[], [], [], [7]]
    with pytest.raises(LookupError):
        absences.still_silent(lambda: {}["the database is away"])
    assert looks((12, [7]), (13, [7])) == [[], []]
    absences.forget()
    assert looks((18, [7])) == [[]]


def test_maintenance_that_has_lost_its_server_judges_no_worker_by_sessions_for_a_while(queue, lost, sql, monkeypatch):
    """The heartbeat may not know yet that there is another server, which has no sessions of the living."""
    monkeypatch.setattr("django_pgqueue.worker.heartbeat.GONE_SECONDS", 0.0)
    lost()
    sql("UPDATE pgqueue_jobs SET lease_until = now() + interval '20 s'")
    silence(sql, 1)
    monitor = HeartbeatMonitor(30, first=now() - 20)
    monitor.beat(now())
    pool = SimpleNamespace(
        plan=WorkerConfig(), ended=[], fill=lambda database: None, next_start_seconds=lambda: None, worker_ids=list
    )
    maintenance = MaintenanceRunner("default", pool, monitor, wake=lambda queues: None, drained=None)
    try:
        sql("SELECT pg_terminate_backend(%s)", maintenance.database.autocommit().info.backend_pid)
        with pytest.raises(OperationalError):
            maintenance.pass_once()
        maintenance.pass_once()
        assert Job.objects.get().status == "running"
        maintenance._reaper._judge_from = 0.0
        maintenance.pass_once()
        assert Job.objects.get().status == "queued"
    finally:
        maintenance.database.close()


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
    assert reap_lost(queue)[:3] == (0, 1, frozenset())
    dead = DeadJob.objects.get(pk=job_id)
    assert dead.reason == reason
    assert dead.errors[-1]["kind"] == ("lost" if reason == "lost" else "failed")
    assert dead.errors[-1]["worker"].endswith("pid 4711")


@pytest.mark.parametrize("column", ["attempts = max_attempts - 1", "lost = 1"])
def test_reaper_gives_a_last_chance(queue, lost, sql, column):
    lost()
    sql(f"UPDATE pgqueue_jobs SET {column}")
    assert reap_lost(queue)[0] == 1


def test_maintenance_reaps_only_when_its_own_heartbeats_have_been_steady(queue, lost):
    """After an outage the leases of the living have passed, too, and they need time to say that they live."""
    lost()
    monitor = HeartbeatMonitor(30)
    maintenance = MaintenanceRunner(
        "default", SimpleNamespace(ended=[]), monitor, wake=lambda queues: None, drained=None
    )
    try:
        maintenance._look()
        maintenance._reap()
        assert Job.objects.get().status == "running"
        monitor.first = now() - 31
        monitor.beat(now())
        maintenance._reap()
        assert Job.objects.get().status == "running", "who lives says so with the next heartbeat"
        maintenance._reaper._reap_at = 0.0
        [worker_id] = maintenance._reaper._lapses._seen
        maintenance._reaper._lapses._seen[worker_id] += 30
        maintenance._reap()
        assert Job.objects.get().status == "queued"
    finally:
        maintenance.database.close()


@pytest.fixture
def reaper(queue, monkeypatch):
    """A reaper that may judge, and its clock: ``look(seconds)`` moves that on, a second after the other, and reaps."""
    clock = [1000.0]
    monkeypatch.setattr("django_pgqueue.worker.reaper.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monitor = SimpleNamespace(is_reliable=lambda: True, has_stood=lambda seconds: True, lease_seconds=30)
    made = Reaper(queue, SimpleNamespace(worker_ids=list), monitor, tell=lambda *_: None, tally=StatsBuffer(queue))

    def look(seconds):
        for _ in range(seconds):
            clock[0] += 1
            made.reap_lost()
        return Job.objects.get().status

    made.look, made.clock = look, clock
    return made


@pytest.mark.parametrize(("session_pid", "seconds"), [(0, 10), (1, 4)])
def test_no_worker_is_judged_that_has_not_had_the_time_of_a_heartbeat_since_its_lease_passed(
    sql, lost, reaper, session_pid, seconds
):
    """As after a step forward of the database's clock, by which all leases have passed."""
    lost()
    sql(
        "UPDATE pgqueue_workers SET session_pid = %s, "
        "heartbeat_at = now() - interval '1 hour', lease_until = now() - interval '1 hour' + interval '30 s'",
        session_pid,
    )
    assert reaper.look(seconds + 1) == "running"
    assert reaper.look(1) == "queued"


def test_heartbeat_after_the_clock_was_put_forward_keeps_a_worker_from_being_judged(queue, sql, lost, reaper):
    lost()
    sql("UPDATE pgqueue_workers SET heartbeat_at = now() - interval '40 s', lease_until = now() - interval '10 s'")
    assert reaper.look(5) == "running"
    [(worker_id,)] = sql("SELECT id FROM pgqueue_workers")
    worker_rows.heartbeat(queue, {worker_id: 1}, lease_seconds=30)
    assert reaper.look(1) == "running"
    sql("UPDATE pgqueue_workers SET heartbeat_at = now() - interval '40 s', lease_until = now() - interval '10 s'")
    assert reaper.look(10) == "running", "it counts anew"


def test_time_between_two_looks_that_are_far_apart_does_not_count(sql, lost, reaper):
    """As when the server has stood still: those who live could say nothing either. Slow passes do judge in the end."""
    lost()
    sql("UPDATE pgqueue_workers SET heartbeat_at = now() - interval '40 s', lease_until = now() - interval '10 s'")
    assert reaper.look(8) == "running"
    reaper.clock[0] += 60
    assert reaper.look(2) == "running"
    for _ in range(2):
        reaper.clock[0] += 60
        status = reaper.look(1)
    assert status == "queued"


def test_worker_whose_row_is_locked_is_not_judged_while_that_lasts_nor_right_after_it(
    queue, other_queue, sql, lost, reaper
):
    """It lives for all that the others can know, and its heartbeats step over the row."""
    lost()
    sql("UPDATE pgqueue_workers SET heartbeat_at = now() - interval '40 s', lease_until = now() - interval '10 s'")
    with other_queue.transaction():
        other_queue.rows("UPDATE pgqueue_workers SET stop_requested_by = 'ann' RETURNING id", {})
        assert reaper.look(40) == "running"
    assert reaper.look(3) == "running"
    assert reaper.look(12) == "queued"


def test_row_that_stays_locked_keeps_jobs_from_others_for_one_more_lease_only(queue, other_queue, sql, lost, reaper):
    """As a heartbeat does whose machine is lost before its transaction has ended: the server waits for the rest."""
    lost()
    sql("UPDATE pgqueue_workers SET heartbeat_at = now() - interval '40 s', lease_until = now() - interval '10 s'")
    [(worker_id,)] = sql("SELECT id FROM pgqueue_workers")
    with other_queue.transaction():
        worker_rows.heartbeat(other_queue, {worker_id: 1}, lease_seconds=30)
        assert reaper.look(11 + 30) == "running"
        assert reaper.look(2) == "queued"


def test_heart_does_not_wait_for_the_locked_row_of_its_process_and_beats_again_soon(queue, other_queue, heartbeat, sql):
    """Kills of its jobs are passed on all the same."""
    beat, process = heartbeat[0].pass_once, heartbeat[1]
    assert beat() == 10
    with other_queue.transaction():
        other_queue.rows("UPDATE pgqueue_workers SET stop_requested_by = 'ann' RETURNING id", {})
        app.noop.enqueue()
        [job] = claim(queue, "default", limit=1, worker_id=process.worker_id)
        kill([job.id], by="eve")
        assert beat() == 1
    assert process.killed == {job.run_id}
    assert beat() == 10


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
        thread.join(PATIENCE_SECONDS)
    assert sum(result.returned for result in results) == 500
    assert set(Job.objects.values_list("lost", flat=True)) == {1}


def test_ack_and_reaper_at_once_have_each_job_once(queue, other_queue, sql):
    enqueue_many(app.noop, [()] * 500)
    jobs = claim(queue, "default", limit=500, worker_id=5)
    sql("UPDATE pgqueue_jobs SET lease_until = now() - interval '1 s'")
    reaped, receipts = [], []
    threads = [
        threading.Thread(target=lambda: reaped.append(reap_lost(other_queue))),
        threading.Thread(
            target=lambda: receipts.append(ack.write(queue, [Outcome(job, Fate.SUCCEEDED) for job in jobs]))
        ),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    [receipt], [[returned, dead, *_]] = receipts, reaped
    assert (FinishedJob.objects.count(), Job.objects.filter(status="queued", lost=1).count()) == (
        500 - returned,
        returned,
    )
    assert (len(receipt.stale) + len(receipt.locked), dead) == (returned, 0)


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
    leases = worker_rows.worker_leases(queue, [worker_id])
    mark = started.id ^ started.lease_token
    assert settle_dead_process(queue, leases, started={mark}, was_stopped=False)[:2] == (3, 0)
    rows = Job.objects.in_bulk()
    assert (rows[started.id].attempts, rows[started.id].lost) == (1, 1)
    assert all((rows[job.id].attempts, rows[job.id].lost) == (0, 0) for job in unrun)


def test_one_job_that_a_careful_process_had_not_begun_pays(queue):
    """However many attempts it has, it dies with its third process; none of them counts as an attempt."""
    worker_id = register(queue)
    culprit = app.noop.using(max_attempts=1).enqueue().id
    for lost in (1, 2, 3):
        assert claim(queue, "default", limit=2, worker_id=worker_id)
        leases = worker_rows.worker_leases(queue, [worker_id])
        settled = settle_dead_process(queue, leases, started=(), was_stopped=False, was_careful=True)
        assert settled[:2] == ((1, 0) if lost < 3 else (0, 1))
        if lost < 3:
            row = Job.objects.get()
            assert (row.attempts, row.lost, row.first_started_at) == (0, lost, NEVER)
    dead = DeadJob.objects.get()
    assert (dead.id, dead.reason, dead.lost) == (culprit, "lost", 3)
    assert {entry["message"] for entry in dead.errors} == {"Its process ended before it was begun, and because of it."}


@pytest.mark.parametrize(("number", "was_careful"), [(1, False), (1, True), (2, True)])
def test_no_job_is_blamed_where_it_is_not_known_which_job_has_ended_the_process(queue, number, was_careful):
    worker_id = register(queue)
    enqueue_many(app.noop, [()] * (number + 1))
    started, *_ = claim(queue, "default", limit=4, worker_id=worker_id)
    leases = worker_rows.worker_leases(queue, [worker_id])
    settle_dead_process(queue, leases, started={started.run_id}, was_stopped=False, was_careful=was_careful)
    lost = dict(Job.objects.values_list("id", "lost"))
    assert lost.pop(started.id) == 1
    assert set(lost.values()) == {0}


def test_job_that_was_to_be_killed_does_not_go_back_when_its_process_is_stopped(queue, sql):
    worker_id = register(queue)
    app.noop.enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=worker_id)
    sql("UPDATE pgqueue_jobs SET cancel_requested_at = now()")
    leases = worker_rows.worker_leases(queue, [worker_id])
    assert settle_dead_process(queue, leases, started={job.id ^ job.lease_token}, was_stopped=True)[:2] == (0, 1)
    assert DeadJob.objects.get().reason == "killed"


@pytest.mark.parametrize("was_stopped", [True, False])
def test_job_over_its_time_has_failed_for_that_however_its_process_ended(queue, was_stopped):
    worker_id = register(queue)
    again = app.noop.using(timeout=7).enqueue().id
    last = app.noop.using(timeout=7, max_attempts=1).enqueue().id
    unrun = app.noop.enqueue().id
    claimed = claim(queue, "default", limit=3, worker_id=worker_id)
    overdue = {job.run_id for job in claimed if job.id in (again, last)}
    leases = worker_rows.worker_leases(queue, [worker_id])
    settled = settle_dead_process(queue, leases, started=overdue, overdue=overdue, was_stopped=was_stopped)
    assert settled[:3] == (2, 1, frozenset({"default"}))
    jobs, dead = Job.objects.in_bulk(), DeadJob.objects.get()
    assert (jobs[unrun].status, jobs[unrun].attempts) == ("queued", 0)
    assert (jobs[again].status, jobs[again].attempts, jobs[again].lost) == ("scheduled", 1, 0)
    failed_at = dt.datetime.fromisoformat(jobs[again].errors[-1]["at"])
    assert 1.7 < (jobs[again].run_at - failed_at).total_seconds() < 2.3
    assert (dead.id, dead.reason, dead.lost) == (last, "exhausted", 0)
    for entry in (jobs[again].errors[-1], dead.errors[-1]):
        assert entry["error"] == "django_pgqueue.exceptions.TimeLimitExceeded"
        assert entry["message"] == "Its time limit of 7 s had passed, and it had not stopped when its process ended."
        assert entry["worker"] == "web1 pid 0"


@pytest.mark.parametrize("is_started", [True, False])
def test_killed_job_dies_as_killed_whatever_else_it_was(queue, is_started):
    worker_id = register(queue)
    job_id = app.noop.using(timeout=7).enqueue().id
    [job] = claim(queue, "default", limit=1, worker_id=worker_id)
    kill([job_id], by="eve")
    leases = worker_rows.worker_leases(queue, [worker_id])
    shared = {job.run_id} if is_started else set()
    assert settle_dead_process(queue, leases, started=shared, overdue=shared, was_stopped=True)[:2] == (0, 1)
    dead = DeadJob.objects.get()
    assert (dead.reason, dead.errors[-1]["by"]) == ("killed", "eve")


def test_process_stopped_on_purpose_gives_attempts_back_but_for_those_with_one_only(queue):
    worker_id = register(queue)
    many = app.noop.enqueue().id
    once = app.noop.using(max_attempts=1).enqueue().id
    claimed = claim(queue, "default", limit=2, worker_id=worker_id)
    leases = worker_rows.worker_leases(queue, [worker_id])
    shared = {job.id ^ job.lease_token for job in claimed}
    settle_dead_process(queue, leases, started=shared, was_stopped=True)
    assert Job.objects.get().id == many
    assert Job.objects.get().attempts == 0
    assert (DeadJob.objects.get().id, DeadJob.objects.get().reason) == (once, "lost")


def test_dead_process_is_kept_in_mind_until_the_last_of_its_jobs_is_settled(queue, other_queue):
    """Its shared state says which jobs had started, so it is needed for a row that is locked for now."""
    worker_id = register(queue)
    locked, free = enqueue_many(app.noop, [()] * 2)
    claim(queue, "default", limit=2, worker_id=worker_id)
    process = SimpleNamespace(
        worker_id=worker_id,
        shared=SharedState(),
        was_stopped=False,
        was_careful=False,
        pid=1,
        exit_code=0,
        overdue=set,
        close=lambda: None,
        ended_seconds=0.0,
    )
    pool = SimpleNamespace(ended=[process])
    maintenance = MaintenanceRunner("default", pool, HeartbeatMonitor(30), wake=lambda queues: None, drained=None)
    try:
        with other_queue.transaction():
            other_queue.rows("SELECT id FROM pgqueue_jobs WHERE id = %(id)s FOR UPDATE", {"id": locked})
            maintenance.settle_ended()
            assert (pool.ended, Worker.objects.count()) == ([process], 1)
            assert Job.objects.get(status="queued").id == free
        with other_queue.transaction():
            other_queue.rows("SELECT id FROM pgqueue_workers FOR UPDATE", {})
            maintenance.settle_ended()
            assert (pool.ended, Worker.objects.count()) == ([process], 1)
        maintenance.settle_ended()
        assert (pool.ended, Worker.objects.count()) == ([], 0)
        assert set(Job.objects.values_list("status", "attempts")) == {("queued", 0)}
    finally:
        maintenance.database.close()


@pytest.mark.parametrize("exit_code", [-9, 0], ids=["killed", "ended by a job"])
def test_claim_in_flight_when_its_process_dies_is_settled_when_the_server_is_through_with_it(queue, exit_code):
    """It is committed after its process was settled; not even a job that may start only once pays for it."""
    worker_id = register(queue)
    app.noop.using(max_attempts=1, lease=dt.timedelta(days=1)).enqueue()
    process = SimpleNamespace(
        worker_id=worker_id,
        shared=SharedState(),
        was_stopped=False,
        was_careful=False,
        pid=1,
        exit_code=exit_code,
        overdue=set,
        close=lambda: None,
        ended_seconds=0.0,
    )
    pool = SimpleNamespace(ended=[process])
    maintenance = MaintenanceRunner("default", pool, HeartbeatMonitor(30), wake=lambda queues: None, drained=None)
    consumer = QueueConnection("default", f"consumer {worker_id}")
    try:
        with consumer.transaction():
            assert len(send(consumer, "default", limit=1, worker_id=worker_id).jobs()) == 1
            assert maintenance.settle_ended() is not None, "the server is still at it"
            assert (pool.ended, Worker.objects.count()) == ([process], 1)
        assert Job.objects.get().status == "running"
        consumer.close()
        eventually(lambda: maintenance.settle_ended() is None)
        assert (pool.ended, Worker.objects.count()) == ([], 0)
        assert set(Job.objects.values_list("status", "attempts", "lost")) == {("queued", 0, 0)}
    finally:
        consumer.close()
        maintenance.database.close()


def test_session_of_a_process_whose_consumer_has_ended_is_not_waited_for(queue):
    """It closed its own; what is there is that of a copy."""
    worker_id = register(queue)
    shared = SharedState()
    shared.end_cycles()
    process = SimpleNamespace(
        worker_id=worker_id,
        shared=shared,
        was_stopped=False,
        was_careful=False,
        pid=1,
        exit_code=0,
        overdue=set,
        close=lambda: None,
        ended_seconds=0.0,
    )
    pool = SimpleNamespace(ended=[process])
    maintenance = MaintenanceRunner("default", pool, HeartbeatMonitor(30), wake=lambda queues: None, drained=None)
    copy = QueueConnection("default", f"consumer {worker_id}")
    try:
        copy.rows("SELECT 1", {})
        assert maintenance.settle_ended() is None
        assert (pool.ended, Worker.objects.count()) == ([], 0)
    finally:
        copy.close()
        maintenance.database.close()


def test_exit_code_that_a_job_has_chosen_does_not_end_the_command(monkeypatch):
    """Though its process has not turned yet: what it has claimed shows that it did begin."""
    process = WorkerProcess(ChildConfig(7, (), 2, 1), WorkerConfig())
    monkeypatch.setattr(process, "_process", SimpleNamespace(exitcode=UNGUARDED))
    try:
        assert process.is_unguarded
        process.shared.hold([0], [SimpleNamespace(id=1, lease_token=2)])
        assert not process.is_unguarded
    finally:
        process.discard()


def test_session_of_a_dead_process_that_does_not_end_is_waited_for_no_longer_than_a_statement_may_take(queue):
    """As where a job has made a copy of the process by fork, which keeps the socket and lives on."""
    worker_id = register(queue)
    process = SimpleNamespace(
        worker_id=worker_id,
        shared=SharedState(),
        was_stopped=False,
        pid=1,
        exit_code=-9,
        overdue=set,
        close=lambda: None,
    )
    process.was_careful = False
    pool = SimpleNamespace(ended=[process])
    maintenance = MaintenanceRunner("default", pool, HeartbeatMonitor(30), wake=lambda queues: None, drained=None)
    consumer = QueueConnection("default", f"consumer {worker_id}")
    try:
        consumer.rows("SELECT 1", {})
        pauses = []
        for process.ended_seconds in (0.0, 0.9, 1.0, 60.0):
            pauses.append(maintenance.settle_ended())
            assert (pool.ended, Worker.objects.count()) == ([process], 1)
        assert pauses == [0.1, 0.1, 1.0, 1.0]
        process.ended_seconds = 60.1
        assert maintenance.settle_ended() is None
        assert (pool.ended, Worker.objects.count()) == ([], 0)
    finally:
        consumer.close()
        maintenance.database.close()


def test_session_that_a_pooler_keeps_for_others_claims_nothing(queue):
    consumer = QueueConnection("default", "consumer 4711")
    try:
        consumer.rows("SELECT 1", {})
        assert worker_rows.has_session(queue, 4711, is_pooled=False)
        assert not worker_rows.has_session(queue, 4711, is_pooled=True)
        with consumer.transaction():
            consumer.rows("SELECT 1", {})
            assert worker_rows.has_session(queue, 4711, is_pooled=True)
    finally:
        consumer.close()


# What takes too long


@pytest.fixture
def slow_promotion(transactional_db, sql):
    """Let a statement that promotes more than 40 rows end as one that takes too long."""
    sql(
        "CREATE FUNCTION pgqueue_slow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF (SELECT count(*) FROM promoted) > 40 THEN RAISE query_canceled; END IF; RETURN NULL; END $$"
    )
    sql(
        "CREATE TRIGGER slow AFTER UPDATE ON pgqueue_jobs REFERENCING NEW TABLE AS promoted "
        "FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_slow()"
    )
    yield
    sql("DROP FUNCTION pgqueue_slow CASCADE")


def test_duty_that_takes_too_long_takes_less_at_once_and_holds_up_no_other(sql, slow_promotion, caplog):
    enqueue_many(app.noop.using(run_at=dt.timedelta(hours=1)), [()] * 64)
    sql("ALTER TABLE pgqueue_jobs DISABLE TRIGGER slow")
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s'")
    sql("ALTER TABLE pgqueue_jobs ENABLE TRIGGER slow")
    pool = SimpleNamespace(
        plan=WorkerConfig(), ended=[], fill=lambda database: None, next_start_seconds=lambda: None, worker_ids=list
    )
    woken, looked = [], []
    maintenance = MaintenanceRunner(
        "default", pool, HeartbeatMonitor(30), wake=woken.append, drained=lambda: looked.append(True)
    )
    maintenance._promoting.size = 64
    maintenance.pass_once()
    assert (Job.objects.filter(status="queued").count(), maintenance._promoting.size) == (0, 32)
    [record] = [record for record in caplog.records if "The duty promote took too long" in record.getMessage()]
    assert (record.levelname, record.exc_info) == ("WARNING", None), "a time limit is no error of this package"
    maintenance.pass_once()
    maintenance.pass_once()
    assert Job.objects.filter(status="queued").count() == 64
    assert woken
    sql("DELETE FROM pgqueue_jobs")
    maintenance.pass_once()
    assert looked
    maintenance.database.close()


def test_slice_is_halved_by_what_is_too_much_and_by_nothing_else():
    one = AdaptiveBatch()
    for _ in range(12):
        with contextlib.suppress(OperationalError), one.taken():
            raise OperationalError from psycopg.errors.QueryCanceled()
    assert one.size == 1
    with pytest.raises(OperationalError), one.taken() as size:
        raise OperationalError from psycopg.errors.AdminShutdown()
    assert size == one.size == 1
    for _ in range(12):
        with one.taken():
            pass
    assert one.size == 1000


# Heartbeat


def test_heartbeat_renews_leases_and_names_those_that_stand(queue, sql):
    one, two = register(queue), register(queue)
    sql("UPDATE pgqueue_workers SET lease_until = now() - interval '1 hour'")
    sql("DELETE FROM pgqueue_workers WHERE id = %s", two)
    assert worker_rows.heartbeat(queue, {one: 11, two: 22}, lease_seconds=30) == ({one}, None)
    worker = Worker.objects.get()
    assert worker.pid == 11
    assert worker.lease_until - worker.heartbeat_at == dt.timedelta(seconds=30)


def test_leases_carry_cancel_requests(queue, sql):
    app.noop.enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=9)
    assert worker_rows.worker_leases(queue, [9]) == [
        Lease(
            job.id,
            job.lease_token,
            9,
            "default",
            1,
            10,
            0,
            is_cancelled=False,
            worker="worker 9",
            task=app.noop.name,
            timeout_seconds=0,
        )
    ]
    sql("UPDATE pgqueue_jobs SET cancel_requested_at = now()")
    assert worker_rows.worker_leases(queue, [9])[0].is_cancelled
    assert worker_rows.worker_leases(queue, [8]) == []


def test_silent_workers_are_forgotten_after_an_hour_if_they_run_nothing(queue, sql):
    idle, busy, _fresh = register(queue), register(queue), register(queue)
    app.noop.enqueue()
    claim(queue, "default", limit=1, worker_id=busy)
    sql("UPDATE pgqueue_workers SET lease_until = now() - interval '61 min' WHERE id IN (%s, %s)", idle, busy)
    assert forget_workers(queue) == 1
    assert Worker.objects.filter(pk=busy).exists()


def test_no_pass_waits_for_the_locked_row_of_a_worker(queue, other_queue, sql):
    worker_id = register(queue)
    sql("UPDATE pgqueue_workers SET lease_until = now() - interval '2 hours'")
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_workers FOR UPDATE", {})
        assert worker_rows.heartbeat(queue, {worker_id: 1}, lease_seconds=30) == (set(), None)
        assert forget_workers(queue) == 0
        assert worker_rows.deregister(queue, [worker_id]) == {worker_id}
        assert Worker.objects.get().pid == 0
    assert worker_rows.heartbeat(queue, {worker_id: 1}, lease_seconds=30) == ({worker_id}, None)


@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError, PermissionError, OSError])
def test_memory_that_the_system_does_not_tell_is_no_trouble(monkeypatch, error):
    def refuse(_):
        raise error

    monkeypatch.setattr("django_pgqueue.worker.worker_process.Path.read_text", refuse)
    assert resident_bytes(1) == 0


def test_heartbeat_tells_how_much_memory_each_process_has(queue):
    known, unknown = register(queue), register(queue)
    worker_rows.heartbeat(queue, {known: 11, unknown: 22}, lease_seconds=30, memory_bytes={known: 5_000_000_000})
    assert dict(Worker.objects.values_list("id", "memory_bytes")) == {known: 5_000_000_000, unknown: 0}


def test_heart_measures_its_own_processes(queue, heartbeat):
    if not can_read_memory():
        pytest.skip(needs.LINUX)
    heartbeat[1].pid = os.getpid()
    heartbeat[0].pass_once()
    assert Worker.objects.get().memory_bytes > 10_000_000
    heartbeat[1].pid = 2**22 + 1  # of no process
    heartbeat[0].pass_once()
    assert Worker.objects.get().memory_bytes == 0


def test_stop_is_asked_of_all_processes_of_a_command_and_the_first_who_asks_stays(queue):
    one, two = register(queue, supervisor_id=7), register(queue, supervisor_id=7)
    other = register(queue, supervisor_id=8)
    assert request_stop([two], by="ann") == [one, two]
    assert request_stop([one], by="ben") == []
    assert request_stop([other + 1000], by="ben") == []
    asked = dict(Worker.objects.exclude(stop_requested_at=None).values_list("id", "stop_requested_by"))
    assert asked == {one: "ann", two: "ann"}
    assert worker_rows.heartbeat(queue, {one: 1, two: 2}, lease_seconds=30) == ({one, two}, "ann")
    assert worker_rows.heartbeat(queue, {other: 3}, lease_seconds=30) == ({other}, None)


def test_stop_waits_for_no_lock_and_goes_with_the_callers_transaction(queue, other_queue):
    one, two = register(queue, supervisor_id=7), register(queue, supervisor_id=7)
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_workers WHERE id = %(id)s FOR UPDATE", {"id": one})
        with transaction.atomic():
            assert request_stop([one], by="ann") == [two]
            transaction.set_rollback(True)
    assert worker_rows.heartbeat(queue, {one: 1, two: 2}, lease_seconds=30).stop_by is None


def test_heart_passes_the_wish_to_stop_on(queue, heartbeat):
    told = []
    heartbeat[0]._told_to_stop = told.append
    heartbeat[0].pass_once()
    assert told == []
    request_stop([heartbeat[1].worker_id], by="ann")
    heartbeat[0].pass_once()
    assert told == ["ann"]


def test_pulse_is_steady_after_a_lease_without_a_gap():
    start = now()
    monitor = HeartbeatMonitor(lease_seconds=100, last=start)
    assert not monitor.is_reliable()
    for at in (start - 105, start - 80, start - 40):
        monitor.beat(at)
    assert not monitor.is_reliable()
    monitor.beat(start)
    assert monitor.is_reliable()
    monitor.stumble()
    assert not monitor.is_reliable()


@pytest.mark.parametrize(("gap", "is_reliable"), [(49, True), (51, False)])
def test_pulse_starts_over_after_a_gap_of_half_a_lease(gap, is_reliable):
    start = now()
    monitor = HeartbeatMonitor(lease_seconds=100, last=start)
    for at in (start - 180, start - 140, start - 100, start - 60, start - gap, start):
        monitor.beat(at)
    assert monitor.is_reliable() is is_reliable


@pytest.mark.parametrize(("exit_code", "line"), [(0, "is recycled"), (1, "ended (exit code 1) while it was replaced")])
def test_process_that_is_replaced_and_told_to_stop_has_ended_in_order(caplog, exit_code, line):
    """SIGTERM tells all processes to stop, also the one whose successor is not yet at work."""
    caplog.set_level("INFO", "django_pgqueue")
    pool = ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30)
    process = SimpleNamespace(
        pid=7, shared=SharedState(), meter=None, is_replaced=True, is_leaving=False, exit_code=exit_code
    )
    pool.living.append(process)
    pool.close()
    pool.remove(process)
    assert [record.getMessage() for record in caplog.records] == [f"Process 7 {line}"]
    os.close(pool.changed_read)
    os.close(pool._changed)


def test_process_taken_for_dead_is_registered_again_under_its_id(queue):
    worker_id = register(queue)
    assert register(queue, worker_id=worker_id) is None
    assert worker_rows.deregister(queue, [worker_id]) == set()
    assert register(queue, worker_id=worker_id) == worker_id
    assert register(queue) != worker_id


def test_process_that_ended_while_the_heart_beat_is_not_registered_again(queue, caplog):
    """It was settled and its row removed, after the heartbeat had looked who lives."""
    pool = ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30)
    process = SimpleNamespace(worker_id=4711, pid=1)
    pool.register_again(queue, process)
    assert (Worker.objects.count(), caplog.text) == (0, "")
    pool.living.append(process)
    pool.register_again(queue, process)
    assert Worker.objects.get().id == 4711
    assert "Process 1 was taken for dead and is registered again" in caplog.text


def test_process_is_among_those_that_may_run_jobs_all_the_while_it_is_parted_with(caplog):
    """``--drain`` asks at any time, and would end while its jobs run."""
    pool = ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30)
    process = SimpleNamespace(
        worker_id=4711,
        pid=1,
        exit_code=-9,
        shared=SharedState(),
        meter=None,
        is_young=False,
        is_replaced=False,
        replaces=None,
    )
    process.was_stopped, process.failures = False, 0
    pool.living.append(process)
    seen = []

    class Look(logging.Handler):
        def emit(self, record):
            seen.append(pool.worker_ids())

    look = Look()
    logging.getLogger("django_pgqueue.worker").addHandler(look)
    try:
        pool.remove(process)
    finally:
        logging.getLogger("django_pgqueue.worker").removeHandler(look)
    assert seen == [[4711]]
    assert (pool.worker_ids(), pool.living, pool.ended) == ([4711], [], [process])


@pytest.mark.parametrize(
    ("end", "is_careful"),
    [
        ({"exit_code": -9, "held": [0]}, True),
        ({"exit_code": 1, "is_young": True}, True),  # a row may end it that is not even written down
        ({"exit_code": 1}, False),
        ({"exit_code": -9, "was_stopped": True, "is_young": True, "held": [0]}, False),
        ({"exit_code": 0, "is_young": True, "held": [0]}, True),  # as a job chooses it by os._exit(0)
        ({"exit_code": 0, "has_ended_cycles": True, "is_young": True}, False),
    ],
)
def test_place_of_a_process_that_crashed_with_jobs_unbegun_gets_a_careful_one(queue, monkeypatch, end, is_careful):
    pool = ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30)
    pool._vacancies.clear()
    known = {"was_stopped": False, "is_young": False, "is_replaced": False, "failures": 0, "held": []} | end
    process = SimpleNamespace(worker_id=1, pid=1, shared=SharedState(), meter=None, replaces=None, **known)
    if "has_ended_cycles" in end:
        process.shared.end_cycles()
    process.shared.hold(process.held, [SimpleNamespace(id=1, lease_token=2) for _ in process.held])
    pool.living.append(process)
    pool.remove(process)
    monkeypatch.setattr(Vacancy, "seconds_left", lambda self: 0.0)
    briefs = []
    monkeypatch.setattr(
        "django_pgqueue.worker.processes.WorkerProcess",
        lambda brief, plan, **more: briefs.append(brief) or SimpleNamespace(shared=SharedState(), start=lambda: None),
    )
    pool.spawn_missing(queue)
    assert [brief.is_careful for brief in briefs] == [is_careful]


@pytest.mark.parametrize("step", ["__init__", "start"])
def test_process_that_cannot_be_started_leaves_no_row_and_is_tried_again_after_a_pause(queue, monkeypatch, step):
    """Nor can it be made where descriptors are short: it has a pipe."""

    def refuse(*_, **__):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(f"django_pgqueue.worker.worker_process.WorkerProcess.{step}", refuse)
    monkeypatch.setattr("django_pgqueue.worker.processes.reconnect_delay", lambda failures: 60.0)
    meters = CommandCounters()
    pool = ProcessPool(WorkerConfig(processes=2), supervisor_id=1, lease_seconds=30, counters=meters)
    for _ in range(2):
        with pytest.raises(OSError, match="Cannot allocate memory"):
            pool.spawn_missing(queue)
    assert (Worker.objects.count(), pool.living, meters._living) == (0, [], [])
    assert [vacancy.failures for vacancy in pool._vacancies] == [1, 1]
    assert pool.next_start_seconds() > 30


@pytest.fixture
def heartbeat(queue):
    """The heartbeat of one process that holds nothing of its own."""
    process = SimpleNamespace(
        worker_id=register(queue), pid=1, shared=SharedState(), order=lambda *line: None, unturned_seconds=0.0
    )
    pool = ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30)
    pool.living.append(process)
    made = Heartbeat("default", pool, Liveness(changed=lambda: None), told_to_stop=lambda by: None)
    yield made, process
    made.database.close()


@pytest.fixture
def seen(heartbeat, monkeypatch):
    """The session of the command of that process, which has begun, and when others will take it for silent."""
    made, process = heartbeat
    session = made._session
    monkeypatch.setattr(session, "_changed", made.mind_session)
    process.shared.extend_lease(now() + 30)
    session.begin(pid=1)
    made.pass_once()
    yield session, lambda: made.monitor.last + SILENT_SECONDS
    assert process.shared.is_lease_valid()


def test_process_starts_nothing_when_its_command_is_silent_to_others_though_a_heartbeat_hangs(heartbeat, seen):
    """The session ends, and the heartbeat that is under way does not come back."""
    (session, silent_at), shared = seen, heartbeat[1].shared
    assert shared._deadline[0] > silent_at() + 20
    session.end()
    assert shared._deadline[0] == silent_at()


def test_heartbeat_without_a_session_renews_no_more_than_others_allow(heartbeat, seen):
    (session, silent_at), shared = seen, heartbeat[1].shared
    session.end()
    before = silent_at()
    heartbeat[0].pass_once()
    assert before < silent_at() == shared._deadline[0], "the next heartbeat may hang"
    session.begin(pid=2)
    heartbeat[0].pass_once()
    assert shared._deadline[0] > silent_at() + 20


def test_claim_that_never_reached_its_process_is_released_once_its_consumer_has_turned(queue, heartbeat):
    beat, process = heartbeat[0].pass_once, heartbeat[1]
    app.noop.enqueue()
    claim(queue, "default", limit=1, worker_id=process.worker_id)
    beat()
    beat()
    assert Job.objects.get().status == "running", "the consumer may still be writing down what it has claimed"
    process.shared.count_cycle()
    beat()
    assert (Job.objects.get().status, Job.objects.get().attempts) == ("queued", 0)


def test_others_are_told_of_a_claim_that_never_reached_its_process(queue, other_queue, heartbeat):
    listening = other_queue.autocommit()
    listening.execute("LISTEN pgqueue_jobs")
    app.noop.using(queue="mail").enqueue()
    claim(queue, "mail", limit=1, worker_id=heartbeat[1].worker_id)
    heartbeat[0].pass_once()
    heartbeat[1].shared.count_cycle()
    list(listening.notifies(timeout=0))
    heartbeat[0].pass_once()
    assert [notice.payload for notice in listening.notifies(timeout=PATIENCE_SECONDS, stop_after=1)] == ["mail"]


def test_claim_that_its_process_holds_is_left_alone(queue, heartbeat):
    beat, process = heartbeat[0].pass_once, heartbeat[1]
    app.noop.enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=process.worker_id)
    for turn in range(3):
        beat()
        process.shared.count_cycle()
        if turn == 0:
            process.shared.hold([0], [job])
    assert Job.objects.get().status == "running"


def test_beat_that_fails_starts_the_pulse_over(heartbeat, monkeypatch):
    heartbeat[0].monitor.first = now() - 60
    monkeypatch.setitem(heartbeat[0].database._wrapper.settings_dict, "HOST", "/nowhere")
    with pytest.raises(OperationalError):
        heartbeat[0].pass_once()
    assert not heartbeat[0].monitor.is_reliable()


def test_command_without_a_session_shows_more_often_that_it_lives(heartbeat):
    made, process = heartbeat
    assert made.pass_once() == 10, "it never had one"
    made._session.begin(4711)
    assert made.pass_once() == 4, "who is seen by a session is soon missed by a heartbeat"
    assert Worker.objects.get(pk=process.worker_id).session_pid == 4711
    made._session.end()
    assert made.pass_once() == 1
    assert Worker.objects.get(pk=process.worker_id).session_pid == 0


def test_command_that_can_have_no_session_any_more_beats_as_one_that_never_had_one(heartbeat):
    made, _ = heartbeat
    made._session.begin(4711)
    made._session.end()
    assert made.pass_once() == 1
    made._session.forgo()
    assert made.pass_once() == 10


@pytest.mark.parametrize(("had_a_session", "seconds"), [(True, 5), (False, 30)])
def test_command_that_cannot_be_seen_any_more_starts_nothing(heartbeat, monkeypatch, had_a_session, seconds):
    made, process = heartbeat
    if had_a_session:
        made._session.begin(4711)
    process.shared.extend_lease(now() + 600)
    made.pass_once()
    beaten = made.monitor.last
    made._session.end()
    made.database.close()
    monkeypatch.setitem(made.database._wrapper.settings_dict, "HOST", "/nowhere")
    with pytest.raises(OperationalError):
        made.pass_once()
    assert process.shared._deadline[0] == beaten + seconds


def test_lease_that_is_shortened_never_ends_later_than_before():
    shared = SharedState()
    shared.extend_lease(now() + 30)
    shared.cap_lease(now() + 60)
    assert shared._deadline[0] < now() + 31
    shared.cap_lease(now() - 1)
    assert not shared.is_lease_valid()
    shared.renew_lease(now() + 30)
    shared.cap_lease(now() + 20)
    assert (shared.has_lease_lapsed(), shared.is_lease_valid()) == (True, False), (
        "what was fetched before it has to go back first"
    )
    shared.accept_lapse()
    assert shared.is_lease_valid()
    assert shared._deadline[0] < now() + 21


# Drain


def test_drained_means_nothing_claimable_due_or_running_here(queue, sql):
    def drained(queues=(), worker_ids=()):
        return is_drained(queue, served=QueueSelector.of(queues), worker_ids=worker_ids)

    assert drained()
    job_id = app.noop.using(queue="mail").enqueue().id
    assert not drained()
    assert drained(queues=["default"])
    assert not drained(queues=["mail"])
    assert not drained(queues=["d*", "m*"])
    assert drained(queues=["-mail"])
    sql("INSERT INTO pgqueue_queues (name, paused_at) VALUES ('mail', now())")
    assert drained(), "paused"
    sql("UPDATE pgqueue_queues SET resume_at = statement_timestamp()")
    assert not drained()
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


def test_id_that_is_in_use_is_not_given_to_a_new_process(queue, sql):
    """As after a failover to an asynchronous replica: its sequence is behind the row of one that registered again."""
    worker_id = register(queue)
    register(queue, worker_id=worker_id + 1)
    assert register(queue) == worker_id + 2
