"""Jobs of workers that are lost: retried or buried, each once, and paid for only by those that had started."""

import contextlib
import datetime as dt
import threading
from types import SimpleNamespace

import pytest
from django.db import OperationalError, ProgrammingError, transaction

import tests.app.tasks as app
from django_pgqueue.jobs import ack, kill
from django_pgqueue.jobs import leases as worker_rows
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.stats import StatsBuffer
from django_pgqueue.maintenance.reaper import Reaper, forget_workers, reap_gone, settle_dead_process
from django_pgqueue.models import DeadJob, Job, SucceededJob, Worker
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import NEVER
from django_pgqueue.worker.heartbeat import HeartbeatMonitor
from django_pgqueue.worker.shared_state import now
from tests.support.passes import run_service
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.worker_rows import reap_all, register, silence


def test_reaper_retries_jobs_of_a_silent_worker_and_says_who_it_was(queue, lost):
    [job_id] = lost()
    assert reap_all(queue)[:3] == (1, 0, {"default"})
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.attempts, job.lost, job.lease_token) == ("queued", 1, 1, 0)
    assert (job.errors[0]["kind"], job.errors[0]["worker"]) == ("lost", "web1 pid 4711")


def test_reaper_leaves_jobs_whose_own_lease_stands(queue, lost, sql):
    lost()
    sql("UPDATE pgqueue_jobs SET lease_until = now() + interval '1 min'")
    assert reap_all(queue)[:3] == (0, 0, frozenset())


def test_reaper_leaves_jobs_of_a_worker_that_is_alive(queue, lost, sql):
    lost()
    sql("UPDATE pgqueue_workers SET lease_until = now() + interval '1 min'")
    assert reap_all(queue)[:3] == (0, 0, frozenset())


def test_jobs_of_a_process_that_is_gone_are_settled_before_their_lease(queue, lost, sql):
    [job_id] = lost()
    silence(sql, 1)
    sql("UPDATE pgqueue_jobs SET lease_until = now() + interval '1 hour'")
    [(worker_id,)] = sql("SELECT id FROM pgqueue_workers")
    assert reap_all(queue)[:3] == (0, 0, frozenset())
    assert reap_gone(queue, [worker_id])[:3] == (1, 0, {"default"})
    assert Job.objects.get(pk=job_id).errors[0]["kind"] == "lost"


def test_job_whose_row_cannot_be_written_stays_and_the_others_go_back(queue, lost, bad_row, caplog):
    ids = lost(5)
    bad_row(ids[1], "P0001")
    for _ in range(2):
        reaped = reap_all(queue)
    assert reaped[:2] == (0, 0)
    assert set(Job.objects.filter(status="queued").values_list("id", flat=True)) == {*ids} - {ids[1]}
    told = f"Job {ids[1]} (tests.app.tasks.noop) of a dead worker cannot be taken back: as planned"
    assert caplog.text.count(told) == 1
    bad_row(ids[1], None)
    assert reap_all(queue)[0] == 1


def test_more_rows_that_cannot_be_written_than_may_stay_are_not_tried_one_by_one(queue, lost, bad_row, monkeypatch):
    monkeypatch.setattr("django_pgqueue.maintenance.reaper.MOST_BAD", 2)
    ids = lost(8)
    for job_id in ids:
        bad_row(job_id, "P0001")
    with pytest.raises(ProgrammingError, match="as planned"):
        reap_all(queue)
    assert Job.objects.filter(status="running").count() == 8
    for job_id in ids[4:]:
        bad_row(job_id, None)
    for _ in range(2):
        with contextlib.suppress(ProgrammingError):
            reap_all(queue)
    assert set(Job.objects.filter(status="queued").values_list("id", flat=True)) == set(ids[4:]), "known ones come last"


@pytest.mark.parametrize("way", ["unrun", "overdue", "dying"])
def test_job_of_a_dead_process_whose_row_cannot_be_written_stays_and_the_others_are_settled(queue, lost, bad_row, way):
    ids = lost(4)
    if way == "dying":
        Job.objects.update(lost=2)
    leases = worker_rows.worker_leases(queue, Worker.objects.values_list("id", flat=True))
    marks = {lease.run_id for lease in leases}
    started = {"started": () if way == "unrun" else marks, "overdue": marks if way == "overdue" else ()}
    bad_row(ids[3], "XX001")
    settled = settle_dead_process(queue, leases, was_stopped=False, **started)
    assert settled.returned + settled.dead == 3
    assert list(Job.objects.filter(status="running").values_list("id", flat=True)) == [ids[3]]


def test_jobs_of_a_process_that_is_gone_are_settled_in_slices(queue, lost, sql):
    lost(3)
    [(worker_id,)] = sql("SELECT id FROM pgqueue_workers")
    assert [reap_gone(queue, [worker_id], limit=2).returned for _ in range(3)] == [2, 1, 0]


def test_reaper_takes_jobs_whose_worker_has_no_row_at_all(queue, lost, sql):
    lost(3)
    sql("DELETE FROM pgqueue_workers")
    assert reap_all(queue)[0] == 3
    assert "worker " in Job.objects.first().errors[0]["worker"]


@pytest.mark.parametrize(
    ("column", "reason"),
    [("attempts = max_attempts", "lost"), ("lost = 2", "lost"), ("kill_requested_at = now()", "killed")],
)
def test_reaper_buries_what_may_not_run_again(queue, lost, sql, column, reason):
    [job_id] = lost()
    sql(f"UPDATE pgqueue_jobs SET {column}")
    assert reap_all(queue)[:3] == (0, 1, frozenset())
    dead = DeadJob.objects.get(pk=job_id)
    assert dead.reason == reason
    assert dead.errors[-1]["kind"] == ("lost" if reason == "lost" else "failed")
    assert dead.errors[-1]["worker"].endswith("pid 4711")


@pytest.mark.parametrize("column", ["attempts = max_attempts - 1", "lost = 1"])
def test_reaper_gives_a_last_chance(queue, lost, sql, column):
    lost()
    sql(f"UPDATE pgqueue_jobs SET {column}")
    assert reap_all(queue)[0] == 1


def test_late_ack_of_a_reaped_job_is_stale(queue, sql):
    app.noop.enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=5)
    sql("UPDATE pgqueue_jobs SET lease_until = now() - interval '1 s'")
    reap_all(queue)
    assert ack.write(queue, [Outcome(job, Fate.SUCCEEDED)]).stale == {job.id}
    assert Job.objects.get().status == "queued"


def test_two_reapers_at_once_settle_each_job_once(queue, other_queue, lost):
    lost(500)
    results = []
    threads = [threading.Thread(target=lambda c=c: results.append(reap_all(c))) for c in (queue, other_queue)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert sum(result.returned for result in results) == 500
    assert set(Job.objects.values_list("lost", flat=True)) == {1}


def test_ack_and_reaper_at_once_have_each_job_once(queue, other_queue, sql):
    app.noop.enqueue_many([()] * 500)
    jobs = claim(queue, "default", limit=500, worker_id=5)
    sql("UPDATE pgqueue_jobs SET lease_until = now() - interval '1 s'")
    reaped, receipts = [], []
    threads = [
        threading.Thread(target=lambda: reaped.append(reap_all(other_queue))),
        threading.Thread(
            target=lambda: receipts.append(ack.write(queue, [Outcome(job, Fate.SUCCEEDED) for job in jobs]))
        ),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    [receipt], [[returned, dead, *_]] = receipts, reaped
    assert (SucceededJob.objects.count(), Job.objects.filter(status="queued", lost=1).count()) == (
        500 - returned,
        returned,
    )
    assert (len(receipt.stale) + len(receipt.locked), dead) == (returned, 0)


def test_reaper_does_not_wait_for_a_locked_row(queue, lost):
    ids = lost(3)
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=ids[1])
        assert reap_all(queue).returned == 2
    assert reap_all(queue).returned == 1


def test_dead_process_pays_only_for_what_it_had_started(queue):
    worker_id = register(queue)
    app.noop.enqueue_many([()] * 3)
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
    app.noop.enqueue_many([()] * (number + 1))
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
    sql("UPDATE pgqueue_jobs SET kill_requested_at = now()")
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
        assert entry["error"] == "django_pgqueue.exceptions.JobTimeout"
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


def test_silent_workers_are_forgotten_after_an_hour_if_they_run_nothing(queue, sql):
    idle, busy, _fresh = register(queue), register(queue), register(queue)
    app.noop.enqueue()
    claim(queue, "default", limit=1, worker_id=busy)
    sql("UPDATE pgqueue_workers SET lease_until = now() - interval '61 min' WHERE id IN (%s, %s)", idle, busy)
    assert forget_workers(queue) == 1
    assert Worker.objects.filter(pk=busy).exists()


# Workers of others


def test_maintenance_that_has_lost_its_server_judges_no_worker_by_sessions_for_a_while(
    queue, lost, sql, monkeypatch, maintenance_runner
):
    """The heartbeat may not know yet that there is another server, which has no sessions of the living."""
    monkeypatch.setattr("django_pgqueue.maintenance.reaper.GONE_SECONDS", 0.0)
    lost()
    sql("UPDATE pgqueue_jobs SET lease_until = now() + interval '1 hour'")
    silence(sql, 1)
    monitor = HeartbeatMonitor(30, first=now() - 20)
    monitor.beat(now())
    maintenance = maintenance_runner(monitor=monitor)
    sql("SELECT pg_terminate_backend(%s)", maintenance.database.autocommit().info.backend_pid)
    with pytest.raises(OperationalError):
        maintenance.pass_once()
    maintenance.pass_once()
    assert Job.objects.get().status == "running"
    maintenance.services.reschedule("reap_disconnected", 0.0)
    maintenance.pass_once()
    assert Job.objects.get().status == "queued"


def test_maintenance_reaps_only_when_its_own_heartbeats_have_been_steady(queue, lost, maintenance_runner):
    """After an outage the leases of the living have passed, too, and they need time to say that they live."""
    lost()
    monitor = HeartbeatMonitor(30)
    maintenance = maintenance_runner(monitor=monitor)
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


@pytest.fixture
def reaper(queue, monkeypatch):
    """A reaper that may judge, and its clock: ``look(seconds)`` moves that on, a second after the other, and reaps."""
    clock = [1000.0]
    monkeypatch.setattr("django_pgqueue.maintenance.reaper.time", SimpleNamespace(monotonic=lambda: clock[0]))
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
            monkeypatch.setattr(
                "django_pgqueue.maintenance.reaper.silent_workers", lambda *_, absent=absent, **__: absent
            )
            found.append(reaper._gone())
        return found

    assert looks((0, [7]), (1.9, [7]), (2, [7, 8]), (3, [7, 8])) == [[], [], [7], [7]]
    assert looks((6, []), (7, [7]), (8, [7]), (9, [7])) == [[], [], [], [7]]
    monkeypatch.setattr("django_pgqueue.maintenance.reaper.silent_workers", lambda *_, **__: {}["the database is away"])
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
