"""Rows of workers: registration, heartbeats, leases of their jobs, the wish to stop, silence."""

import datetime as dt
import functools

from django.db import transaction

import tests.app.tasks as app
from django_pgqueue import workers
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.jobs import leases as worker_rows
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.reaper import forget_workers
from django_pgqueue.models import Worker
from django_pgqueue.records import Lease
from tests.support.waiting import eventually
from tests.support.worker_rows import register, silence


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


def test_session_is_known_by_a_name_to_which_a_pooler_has_added_the_address(queue):
    consumer = QueueConnection("default", "consumer 4711")
    try:
        name = "pgqueue consumer 4711 - 10.0.0.5:41234"
        consumer.rows("SELECT set_config('application_name', %(name)s, false)", {"name": name})
        assert worker_rows.has_session(queue, 4711, is_pooled=False)
        assert not worker_rows.has_session(queue, 471, is_pooled=False)
    finally:
        consumer.close()


def test_heartbeat_renews_leases_and_names_those_that_stand(queue, sql):
    one, two = register(queue), register(queue)
    sql("UPDATE pgqueue_workers SET lease_until = now() - interval '1 hour'")
    sql("DELETE FROM pgqueue_workers WHERE id = %s", two)
    assert worker_rows.heartbeat(queue, {one: 11, two: 22}, lease_seconds=30) == ({one}, None, {one: None})
    worker = Worker.objects.get()
    assert worker.pid == 11
    assert worker.lease_until - worker.heartbeat_at == dt.timedelta(seconds=30)


def test_leases_carry_kill_requests(queue, sql):
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
            is_kill_requested=False,
            worker="worker 9",
            task=app.noop.name,
            timeout_seconds=0,
        )
    ]
    sql("UPDATE pgqueue_jobs SET kill_requested_at = now()")
    assert worker_rows.worker_leases(queue, [9])[0].is_kill_requested
    assert worker_rows.worker_leases(queue, [8]) == []


def test_no_pass_waits_for_the_locked_row_of_a_worker(queue, other_queue, sql):
    worker_id = register(queue)
    sql("UPDATE pgqueue_workers SET lease_until = now() - interval '2 hours'")
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_workers FOR UPDATE", {})
        assert worker_rows.heartbeat(queue, {worker_id: 1}, lease_seconds=30) == (set(), None, {})
        assert forget_workers(queue) == 0
        assert worker_rows.deregister(queue, [worker_id]) == {worker_id}
        assert Worker.objects.get().pid == 0
    assert worker_rows.heartbeat(queue, {worker_id: 1}, lease_seconds=30) == ({worker_id}, None, {worker_id: None})


def test_heartbeat_tells_how_much_memory_each_process_has(queue):
    known, unknown = register(queue), register(queue)
    worker_rows.heartbeat(queue, {known: 11, unknown: 22}, lease_seconds=30, memory_bytes={known: 5_000_000_000})
    assert dict(Worker.objects.values_list("id", "memory_bytes")) == {known: 5_000_000_000, unknown: 0}


def test_stop_is_asked_of_all_processes_of_a_command_and_the_first_who_asks_stays(queue):
    one, two = register(queue, supervisor_id=7), register(queue, supervisor_id=7)
    other = register(queue, supervisor_id=8)
    assert workers.stop([two], by="ann") == [one, two]
    assert workers.stop([one], by="ben") == []
    assert workers.stop([other + 1000], by="ben") == []
    asked = dict(Worker.objects.exclude(stop_requested_at=None).values_list("id", "stop_requested_by"))
    assert asked == {one: "ann", two: "ann"}
    assert worker_rows.heartbeat(queue, {one: 1, two: 2}, lease_seconds=30)[:2] == ({one, two}, "ann")
    assert worker_rows.heartbeat(queue, {other: 3}, lease_seconds=30)[:2] == ({other}, None)


def test_stop_waits_for_no_lock_and_goes_with_the_callers_transaction(queue, other_queue):
    one, two = register(queue, supervisor_id=7), register(queue, supervisor_id=7)
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_workers WHERE id = %(id)s FOR UPDATE", {"id": one})
        with transaction.atomic():
            assert workers.stop([one], by="ann") == [two]
            transaction.set_rollback(True)
    assert worker_rows.heartbeat(queue, {one: 1, two: 2}, lease_seconds=30).stop_by is None


def test_process_taken_for_dead_is_registered_again_under_its_id(queue):
    worker_id = register(queue)
    assert register(queue, worker_id=worker_id) is None
    assert worker_rows.deregister(queue, [worker_id]) == set()
    assert register(queue, worker_id=worker_id) == worker_id
    assert register(queue) != worker_id


def test_id_that_is_in_use_is_not_given_to_a_new_process(queue, sql):
    """As after a failover to an asynchronous replica: its sequence is behind the row of one that registered again."""
    worker_id = register(queue)
    register(queue, worker_id=worker_id + 1)
    assert register(queue) == worker_id + 2


def test_quiet_is_asked_of_all_processes_of_a_command_until_they_are_to_resume(queue):
    one, two = register(queue, supervisor_id=7), register(queue, supervisor_id=7)
    other = register(queue, supervisor_id=8)
    assert workers.quiet([two], by="ann") == [one, two]
    assert workers.quiet([one], by="ben") == []
    assert set(Worker.objects.exclude(quiet_since=None).values_list("id", "quiet_by")) == {(one, "ann"), (two, "ann")}
    assert worker_rows.heartbeat(queue, {one: 1, other: 3}, lease_seconds=30).quiet_by == {one: "ann", other: None}
    assert workers.resume([one]) == [one, two]
    assert workers.resume([one, other]) == []
    assert set(Worker.objects.values_list("quiet_since", "quiet_by")) == {(None, "")}


def test_heartbeat_writes_down_that_its_command_is_quiet_or_goes_on(queue):
    one = register(queue)
    beat = functools.partial(worker_rows.heartbeat, queue, {one: 1}, lease_seconds=30)
    assert beat(tells_quiet=True, quiet_by="SIGUSR1").quiet_by == {one: "SIGUSR1"}
    since = Worker.objects.get().quiet_since
    assert beat(tells_quiet=True, quiet_by="SIGUSR1").quiet_by == beat().quiet_by == {one: "SIGUSR1"}
    assert Worker.objects.get().quiet_since == since
    assert beat(tells_quiet=True).quiet_by == {one: None}
    assert Worker.objects.filter(pk=register(queue, quiet_by="")).exclude(quiet_since=None).exists()
