"""Jobs of workers that are lost: retried or buried, each once, and paid for only by those that had started."""

import datetime as dt
import threading

import pytest
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue.jobs import ack, kill
from django_pgqueue.jobs import leases as worker_rows
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.reaper import forget_workers, reap_gone, settle_dead_process
from django_pgqueue.models import DeadJob, Job, SucceededJob, Worker
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import NEVER
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
    sql("UPDATE pgqueue_jobs SET lease_until = now() + interval '20 s'")
    [(worker_id,)] = sql("SELECT id FROM pgqueue_workers")
    assert reap_all(queue)[:3] == (0, 0, frozenset())
    assert reap_gone(queue, [worker_id])[:3] == (1, 0, {"default"})
    assert Job.objects.get(pk=job_id).errors[0]["kind"] == "lost"


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
