"""Judgement of a command on workers of others: none before its own heartbeats are steady, and each has its time."""

from types import SimpleNamespace

import pytest
from django.db import OperationalError

from django_pgqueue.jobs import leases as worker_rows
from django_pgqueue.jobs.stats import StatsBuffer
from django_pgqueue.models import Job
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.heartbeat import HeartbeatMonitor
from django_pgqueue.worker.maintenance import MaintenanceRunner
from django_pgqueue.worker.reaper import Reaper
from django_pgqueue.worker.shared_state import now
from tests.support.passes import run_service
from tests.support.worker_rows import silence


def test_maintenance_that_has_lost_its_server_judges_no_worker_by_sessions_for_a_while(queue, lost, sql, monkeypatch):
    """The heartbeat may not know yet that there is another server, which has no sessions of the living."""
    monkeypatch.setattr("django_pgqueue.worker.reaper.GONE_SECONDS", 0.0)
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
        maintenance.services.reschedule("reap_disconnected", 0.0)
        maintenance.pass_once()
        assert Job.objects.get().status == "queued"
    finally:
        maintenance.database.close()


def test_maintenance_reaps_only_when_its_own_heartbeats_have_been_steady(queue, lost):
    """After an outage the leases of the living have passed, too, and they need time to say that they live."""
    lost()
    monitor = HeartbeatMonitor(30)
    maintenance = MaintenanceRunner(
        "default", SimpleNamespace(ended=[]), monitor, wake=lambda queues: None, drained=None
    )
    try:
        run_service(maintenance.services, "read_pending")
        run_service(maintenance.services, "reap")
        assert Job.objects.get().status == "running"
        monitor.first = now() - 31
        monitor.beat(now())
        maintenance.services.reschedule("reap", 0.0)
        run_service(maintenance.services, "reap")
        assert Job.objects.get().status == "running", "who lives says so with the next heartbeat"
        maintenance.services.reschedule("reap", 0.0)
        [worker_id] = maintenance._reaper._lapsed._seconds
        maintenance._reaper._lapsed._seconds[worker_id] += 30
        run_service(maintenance.services, "reap")
        assert Job.objects.get().status == "queued"
    finally:
        maintenance.database.close()


@pytest.fixture
def reaper(queue, monkeypatch):
    """A reaper that may judge, and its clock: ``look(seconds)`` moves that on, a second after the other, and reaps."""
    clock = [1000.0]
    monkeypatch.setattr("django_pgqueue.worker.reaper.time", SimpleNamespace(monotonic=lambda: clock[0]))
    monitor = SimpleNamespace(is_reliable=lambda: True, has_stood=lambda seconds: True, lease_seconds=30)
    made = Reaper(queue, SimpleNamespace(worker_ids=list), monitor, announce=lambda *_: None, stats=StatsBuffer(queue))

    def look(seconds):
        for _ in range(seconds):
            clock[0] += 1
            made.reap_lost()
        return Job.objects.get().status

    made.look, made.clock = look, clock
    return made


def test_only_an_absence_without_a_gap_counts(reaper, monkeypatch):
    def looks(*seconds_and_absent):
        found = []
        for reaper.clock[0], absent in seconds_and_absent:
            monkeypatch.setattr(worker_rows, "silent_workers", lambda *_, absent=absent, **__: absent)
            found.append(reaper._gone())
        return found

    assert looks((0, [7]), (1.9, [7]), (2, [7, 8]), (3, [7, 8])) == [[], [], [7], [7]]
    assert looks((6, []), (7, [7]), (8, [7]), (9, [7])) == [[], [], [], [7]]
    monkeypatch.setattr(worker_rows, "silent_workers", lambda *_, **__: {}["the database is away"])
    with pytest.raises(LookupError):
        reaper._gone()
    assert looks((12, [7]), (13, [7])) == [[], []]
    reaper.forget_absences()
    assert looks((18, [7])) == [[]]


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
