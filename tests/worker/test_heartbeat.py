"""Heartbeats of a command: leases, kills, sessions, claims that were lost on their way."""

import os
from types import SimpleNamespace

import pytest
from django.db import OperationalError
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import workers
from django_pgqueue.jobs import kill, leases
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job, Worker
from django_pgqueue.worker import heartbeat as heartbeat_module
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.heartbeat import Heartbeat, HeartbeatMonitor, Liveness
from django_pgqueue.worker.processes import ProcessPool, can_read_memory
from django_pgqueue.worker.shared_state import SharedState, now
from tests.support import needs
from tests.support.stuck import LEASE_SECONDS, watch
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.worker_rows import register


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


def test_heart_measures_its_own_processes(queue, heartbeat):
    if not can_read_memory():
        pytest.skip(needs.LINUX)
    heartbeat[1].pid = os.getpid()
    heartbeat[0].pass_once()
    assert Worker.objects.get().memory_bytes > 10_000_000
    heartbeat[1].pid = 2**22 + 1  # of no process
    heartbeat[0].pass_once()
    assert Worker.objects.get().memory_bytes == 0


def test_heart_passes_the_wish_to_stop_on(queue, heartbeat):
    told = []
    heartbeat[0]._told_to_stop = told.append
    heartbeat[0].pass_once()
    assert told == []
    workers.stop([heartbeat[1].worker_id], by="ann")
    heartbeat[0].pass_once()
    assert told == ["ann"]


def test_heart_passes_on_who_asks_it_to_be_quiet_and_writes_down_what_a_signal_asked(queue, heartbeat):
    beat, process = heartbeat
    pool = beat._pool
    beat.pass_once()
    assert not process.shared.is_quiet()
    workers.quiet([process.worker_id], by="ann")
    beat.pass_once()
    assert (pool.quiet_by, process.shared.is_quiet()) == ("ann", True)
    workers.resume([process.worker_id])
    pool.is_quiet_written = True
    beat.pass_once()
    assert (pool.quiet_by, process.shared.is_quiet()) == (None, False)
    pool.set_quiet("SIGUSR1")
    beat.pass_once()
    assert Worker.objects.get().quiet_by == "SIGUSR1"
    beat.pass_once()
    assert pool.quiet_by == "SIGUSR1"
    assert pool.is_quiet_written


def test_row_that_was_locked_while_its_command_became_quiet_is_no_request_to_go_on(queue, other_queue, heartbeat):
    beat, process = heartbeat
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_workers FOR UPDATE", {})
        beat._pool.set_quiet("SIGUSR1")
        beat.pass_once()
    assert Worker.objects.get().quiet_since is None
    beat.pass_once()
    assert process.shared.is_quiet()
    assert Worker.objects.get().quiet_by == "SIGUSR1"


def test_row_that_was_locked_when_a_user_asked_its_command_to_be_quiet_is_no_request_to_go_on(
    queue, other_queue, heartbeat
):
    beat, process = heartbeat
    other = a_process(register(queue))
    beat._pool.living.append(other)
    beat.pass_once()
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_workers WHERE id = %(id)s FOR UPDATE", {"id": other.worker_id})
        workers.quiet([process.worker_id], by="ann")
        beat.pass_once()
    beat.pass_once()
    beat.pass_once()
    assert beat._pool.quiet_by == "ann"
    assert [*Worker.objects.values_list("quiet_by", flat=True)] == ["ann", "ann"]


def test_process_that_was_being_made_when_a_user_asked_its_command_to_be_quiet_is_quiet_too(
    queue, heartbeat, monkeypatch
):
    beat, process = heartbeat
    pool = beat._pool
    write_down = pool._write_down

    def written_down_before_the_request(database):
        worker_id = write_down(database)
        Worker.objects.filter(pk=process.worker_id).update(quiet_since=timezone.now(), quiet_by="ann")
        beat.pass_once()
        return worker_id

    monkeypatch.setattr(pool, "_write_down", written_down_before_the_request)
    pool._make_process = lambda **_: SimpleNamespace(start=lambda: None, pid=1)
    pool.spawn_missing(queue)
    made = pool.living[1]
    assert made.shared.is_quiet()
    beat.pass_once()
    beat.pass_once()
    assert (pool.quiet_by, made.shared.is_quiet()) == ("ann", True)
    assert [*Worker.objects.values_list("quiet_by", flat=True)] == ["ann", "ann"]
    made.discard()


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


def a_process(worker_id):
    return SimpleNamespace(
        worker_id=worker_id, pid=1, shared=SharedState(), order=lambda *line: None, stalled_seconds=0.0
    )


@pytest.fixture
def heartbeat(queue):
    """The heartbeat of one process that holds nothing of its own."""
    process = a_process(register(queue))
    pool = ProcessPool(WorkerConfig(), supervisor_id=1, lease_seconds=30)
    pool.living.append(process)
    made = Heartbeat(
        *("default", pool, Liveness(changed=lambda: None)), told_to_stop=lambda by: None, told_quiet=pool.set_quiet
    )
    yield made, process
    made.database.close()


@pytest.fixture
def seen(heartbeat, monkeypatch):
    """The session of the command of that process, which has begun, and when others will take it for silent."""
    made, process = heartbeat
    session = made._session
    monkeypatch.setattr(heartbeat_module, "SILENT_SECONDS", 1000.0)
    made._pool.lease_seconds = made.monitor.lease_seconds = 3000.0
    monkeypatch.setattr(session, "_changed", made.mind_session)
    process.shared.extend_lease(now() + 3000)
    session.begin(pid=1)
    made.pass_once()
    yield session, lambda: made.monitor.last + 1000
    assert process.shared.is_lease_valid()


def test_process_starts_nothing_when_its_command_is_silent_to_others_though_a_heartbeat_hangs(heartbeat, seen):
    """The session ends, and the heartbeat that is under way does not come back."""
    (session, silent_at), shared = seen, heartbeat[1].shared
    assert shared._deadline[0] > silent_at() + 1000
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
    assert shared._deadline[0] > silent_at() + 1000


def test_claim_that_never_reached_its_process_is_released_once_its_consumer_has_finished_a_cycle(queue, heartbeat):
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


def test_process_that_stands_still_begins_nothing_and_what_it_has_fetched_goes_back(
    queue, pool, clock, heartbeat_of_pool, caplog
):
    [process] = pool.living
    jobs = [app.noop.enqueue().id for _ in range(2)]
    once = app.noop.using(max_attempts=1).enqueue().id
    running, fetched, only_once = claim(queue, "default", limit=3, worker_id=process.worker_id)
    assert [job.id for job in (running, fetched, only_once)] == [*jobs, once]
    process.shared.hold([0, 1, 2], [running, fetched, only_once])
    process.shared.start(0)
    process.shared.count_cycle()
    heartbeat_of_pool.pass_once()
    watch(pool, clock, LEASE_SECONDS)
    heartbeat_of_pool.pass_once()
    assert process.shared.is_lease_valid(), "it has finished a cycle within a lease"
    assert set(Job.objects.values_list("status", flat=True)) == {"running"}
    watch(pool, clock, 2)
    heartbeat_of_pool.pass_once()
    heartbeat_of_pool.pass_once()
    assert not process.shared.is_lease_valid()
    rows = {row.id: (row.status, row.attempts, row.lost) for row in Job.objects.all()}
    assert rows == {running.id: ("running", 1, 0), fetched.id: ("queued", 0, 0), once: ("running", 1, 0)}
    assert caplog.text.count("Process 4711 has not finished a cycle") == 1
    assert f"while it runs job {running.id} (tests.app.tasks.noop)" in caplog.text
    assert leases.worker_leases(queue, [process.worker_id])
    # It goes on: it has to give back what it believes to have, before it begins anything.
    process.shared.count_cycle()
    watch(pool, clock, 1)
    heartbeat_of_pool.pass_once()
    assert (process.shared.has_lease_lapsed(), process.shared.is_lease_valid()) == (True, False)
    process.shared.accept_lapse()
    assert process.shared.is_lease_valid()
