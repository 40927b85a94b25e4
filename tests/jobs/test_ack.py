"""Outcomes are written, each by one statement, and let another job follow where that is wanted."""

import datetime as dt
import threading
from dataclasses import replace

import pytest
from django.db import transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import Limit, Unique
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.flow import concurrency
from django_pgqueue.jobs import ack, kill
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.dead_letter import retry
from django_pgqueue.jobs.leases import worker_leases
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.maintenance.reaper import reap_lost, settle
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.records import Fate, Outcome, Receipt
from django_pgqueue.states import NEVER, DeathReason
from tests.support.claimed import claim_one
from tests.support.waiting import PATIENCE_SECONDS

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def claimed(queue):
    def make(number=1, task=app.noop):
        task.enqueue_many([()] * number)
        return claim(queue, "default", limit=1000, worker_id=1)[:number]

    return make


def write(queue, *outcomes) -> Receipt:
    return ack.write(queue, outcomes)


def test_success_moves_the_job_to_succeeded_jobs_with_its_result(queue, claimed):
    [job] = claimed()
    receipt = write(queue, Outcome(job, Fate.SUCCEEDED, run_seconds=1.5, result='{"a": 1}'))
    assert receipt == Receipt()
    assert Job.objects.count() == 0
    succeeded = SucceededJob.objects.get(pk=job.id)
    assert (succeeded.result, succeeded.run_seconds, succeeded.attempts, succeeded.worker_id) == ({"a": 1}, 1.5, 1, 1)


def test_success_is_deleted_where_history_is_off(queue, claimed, settings):
    settings.PGQUEUE = {"RETENTION_DAYS": 0}
    [job] = claimed()
    assert write(queue, Outcome(job, Fate.SUCCEEDED)) == Receipt()
    assert (Job.objects.count(), SucceededJob.objects.count()) == (0, 0)


def test_success_of_an_unkept_task_is_deleted(queue, claimed):
    [job] = claimed(task=app.unkept)
    assert write(queue, Outcome(job, Fate.SUCCEEDED)) == Receipt()
    assert (Job.objects.count(), SucceededJob.objects.count()) == (0, 0)


def test_failure_is_scheduled_again_with_its_history(queue, claimed):
    [job] = claimed()
    write(queue, Outcome(job, Fate.RETRIED, delay_seconds=60, error={"error": "ValueError", "message": "no"}))
    row = Job.objects.get(pk=job.id)
    assert (row.status, row.attempts, row.lease_token, row.worker_id) == ("scheduled", 1, 0, 0)
    assert 60 <= (row.run_at - row.started_at).total_seconds() < 60 + PATIENCE_SECONDS
    assert row.errors[0]["attempt"] == 1
    assert row.errors[0]["message"] == "no"
    assert row.errors[0]["at"]


def test_history_keeps_the_first_and_the_last_ten_attempts(queue, sql):
    app.noop.using(max_attempts=100).enqueue()
    for _ in range(30):
        sql("UPDATE pgqueue_jobs SET status = 'queued', run_at = now()")
        [job] = claim(queue, "default", limit=1, worker_id=1)
        write(queue, Outcome(job, Fate.RETRIED, error={"error": "x"}))
    attempts = [entry["attempt"] for entry in Job.objects.get().errors]
    assert attempts == [*range(1, 11), *range(21, 31)]


def test_used_up_job_is_buried_with_reason_and_history(queue, claimed):
    [job] = claimed()
    outcome = Outcome(job, Fate.DIED, reason=DeathReason.EXHAUSTED, error={"error": "ValueError"})
    assert write(queue, outcome) == Receipt()
    dead = DeadJob.objects.get(pk=job.id)
    assert (dead.reason, dead.attempts, dead.task) == ("exhausted", 1, "tests.app.tasks.noop")
    assert dead.errors[0]["error"] == "ValueError"
    assert Job.objects.count() == 0


def test_released_job_has_its_attempt_back(queue, claimed):
    now, later = claimed(2)
    write(queue, Outcome(now, Fate.RELEASED), Outcome(later, Fate.RELEASED, delay_seconds=30))
    rows = Job.objects.in_bulk()
    assert (rows[now.id].status, rows[now.id].attempts, rows[now.id].first_started_at) == ("queued", 0, NEVER)
    assert (rows[later.id].status, rows[later.id].attempts) == ("scheduled", 0)


def test_snoozed_job_has_its_attempt_back_and_the_snooze_is_counted(queue, claimed, sql):
    begun = timezone.now()
    [job] = claimed()
    for number in (1, 2):
        write(queue, Outcome(job, Fate.SNOOZED, delay_seconds=3600))
        row = Job.objects.get()
        assert (row.status, row.attempts, row.snoozes) == ("scheduled", 0, number)
        assert (row.lease_token, row.worker_id, row.errors) == (0, 0, [])
        assert begun + HOUR <= row.run_at <= timezone.now() + HOUR
        assert row.first_started_at != NEVER  # it has run
        sql("UPDATE pgqueue_jobs SET status = 'queued', run_at = now()")
        job = claim_one(queue)
        assert (job.attempt, job.snoozes) == (1, number)


@pytest.mark.parametrize("end", ["released", "its process ended", "expired"])
def test_job_that_snoozed_keeps_when_it_was_first_started_though_it_is_given_back_unbegun(queue, claimed, sql, end):
    [job] = claimed()
    write(queue, Outcome(job, Fate.SNOOZED))
    started = Job.objects.get().first_started_at
    sql("UPDATE pgqueue_jobs SET status = 'queued'")
    again = claim_one(queue)
    if end == "released":
        write(queue, Outcome(again, Fate.RELEASED))
    elif end == "expired":
        sql("UPDATE pgqueue_jobs SET expires_at = now() - interval '1 second'")
        write(queue, Outcome(again, Fate.DIED, reason=DeathReason.EXPIRED, error={"error": "expired"}))
    else:
        settle(queue, worker_leases(queue, [1]), unbegun={again.id ^ again.lease_token})
    row = DeadJob.objects.get() if end == "expired" else Job.objects.get()
    assert (row.attempts, row.first_started_at) == (0, started)


def test_snooze_without_a_delay_is_due_at_once(queue, claimed):
    [job] = claimed()
    write(queue, Outcome(job, Fate.SNOOZED))
    promote(queue)
    assert claim_one(queue).snoozes == 1


def test_snoozes_are_counted_as_far_as_the_column_goes(queue, claimed, sql):
    [job] = claimed()
    sql("UPDATE pgqueue_jobs SET snoozes = 32767")
    write(queue, Outcome(job, Fate.SNOOZED))
    assert Job.objects.get().snoozes == 32767


@pytest.mark.parametrize("is_strict", [False, True])
def test_snoozed_job_gives_its_slot_back_unless_the_order_is_strict(queue, is_strict):
    app.noop.using(limit_key="a", limit=Limit(strict=is_strict)).enqueue()
    concurrency.admit(queue, ["a"])
    write(queue, Outcome(claim_one(queue), Fate.SNOOZED, delay_seconds=60))
    assert Job.objects.get().concurrency_slot == (1 if is_strict else None)


def test_dead_job_keeps_the_number_of_its_snoozes_and_begins_anew_when_it_is_retried(queue, claimed, sql):
    [job] = claimed()
    write(queue, Outcome(job, Fate.SNOOZED))
    promote(queue)
    write(queue, Outcome(claim_one(queue), Fate.DIED, reason=DeathReason.EXHAUSTED, error={"error": "x"}))
    assert DeadJob.objects.get().snoozes == 1
    retry([job.id], by="eve")
    assert Job.objects.get().snoozes == 0


def test_snooze_of_a_worker_that_died_before_it_was_written_is_none_and_the_attempt_counts(queue, claimed):
    [job] = claimed()
    Job.objects.update(lease_until=NEVER)
    assert reap_lost(queue, [1]).returned == 1
    assert write(queue, Outcome(job, Fate.SNOOZED, delay_seconds=60)) == Receipt(stale=frozenset([job.id]))
    row = Job.objects.get()
    assert (row.status, row.attempts, row.lost, row.snoozes) == ("queued", 1, 1, 0)


def snoozed(queue, claimed) -> Outcome:
    [job] = claimed()
    outcome = Outcome(job, Fate.SNOOZED)
    write(queue, outcome)
    return outcome


def test_snooze_whose_commit_was_not_answered_is_known(queue, claimed):
    outcome = snoozed(queue, claimed)
    assert ack.recorded(queue, [outcome], worker_id=1) == {outcome.job.id}
    promote(queue)
    assert claim_one(queue).attempt == 1
    assert ack.recorded(queue, [outcome], worker_id=1) == {outcome.job.id}


def test_snooze_that_another_worker_has_written_is_not_taken_for_ones_own(queue, claimed):
    [job] = claimed()
    Job.objects.update(lease_until=NEVER)
    assert reap_lost(queue, [1]).returned == 1
    outcome = Outcome(job, Fate.SNOOZED)
    assert ack.recorded(queue, [outcome], worker_id=1) == frozenset()
    write(queue, Outcome(claim_one(queue), Fate.SNOOZED))
    assert ack.recorded(queue, [outcome], worker_id=1) == frozenset()


def test_stale_ack_of_each_kind_changes_nothing(queue, other_queue, sql):
    """Two workers, interleaved by hand: the first loses its lease, the second has the job, the first comes back."""
    for fate, details in {
        Fate.SUCCEEDED: {},
        Fate.RETRIED: {"error": {"error": "x"}},
        Fate.SNOOZED: {},
        Fate.RELEASED: {},
        Fate.DIED: {"reason": DeathReason.EXHAUSTED, "error": {"error": "x"}},
    }.items():
        app.noop.enqueue()
        [stale] = claim(queue, "default", limit=1, worker_id=1)
        sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
        [fresh] = claim(other_queue, "default", limit=1, worker_id=2)
        before = Job.objects.filter(pk=stale.id).values().get()
        assert write(queue, Outcome(stale, fate, **details)) == Receipt(stale=frozenset([stale.id]))
        assert Job.objects.filter(pk=stale.id).values().get() == before
        assert write(other_queue, Outcome(fresh, Fate.SUCCEEDED)) == Receipt()
    assert DeadJob.objects.count() == 0
    assert SucceededJob.objects.count() == 5


def test_stale_success_of_an_unkept_task_removes_nothing(queue, other_queue, claimed, sql):
    [stale] = claimed(task=app.unkept)
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    [fresh] = claim(other_queue, "default", limit=1, worker_id=2)
    assert write(queue, Outcome(stale, Fate.SUCCEEDED)) == Receipt(stale=frozenset([stale.id]))
    assert Job.objects.get().lease_token == fresh.lease_token


def test_second_ack_of_the_same_run_is_stale(queue, claimed):
    [job] = claimed()
    assert write(queue, Outcome(job, Fate.SUCCEEDED)) == Receipt()
    assert write(queue, Outcome(job, Fate.SUCCEEDED)).stale == {job.id}


def test_ack_does_not_wait_for_a_locked_row_and_writes_the_others(queue, claimed):
    jobs = claimed(500)
    outcomes = [Outcome(job, Fate.SUCCEEDED) for job in jobs]
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=jobs[250].id)
        receipt = write(queue, *outcomes)
        assert receipt == Receipt(locked=frozenset([jobs[250].id]))
        assert SucceededJob.objects.count() == 499
    assert write(queue, outcomes[250]) == Receipt()


@pytest.mark.parametrize(
    ("fate", "task"),
    [
        (Fate.SUCCEEDED, app.noop),
        (Fate.SUCCEEDED, app.unkept),
        (Fate.REPEATED, app.noop),
        (Fate.RETRIED, app.noop),
        (Fate.SNOOZED, app.noop),
        (Fate.RELEASED, app.noop),
        (Fate.DIED, app.noop),
    ],
)
def test_no_kind_of_outcome_waits_for_a_locked_row(queue, claimed, settings, fate, task):
    settings.PGQUEUE = {"STATEMENT_TIMEOUT_SECONDS": 60}
    [job] = claimed(task=task)
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=job.id)
        receipt = write(queue, Outcome(job, fate, reason=DeathReason.EXHAUSTED, error={"error": "x"}))
    assert receipt.locked == {job.id}


def test_recorded_outcome_needs_no_statement(queue, claimed):
    [job] = claimed()
    assert write(queue, Outcome(job, Fate.RECORDED)) == Receipt()
    assert Job.objects.filter(pk=job.id, status="running").exists()


def test_two_flushes_of_the_same_jobs_in_clashing_order_do_not_deadlock(queue, other_queue, claimed):
    jobs = claimed(300)
    outcomes = [Outcome(job, Fate.SUCCEEDED) for job in jobs]
    receipts = []
    threads = [
        threading.Thread(target=lambda c=connection, o=order: receipts.append(write(c, *o)))
        for connection, order in ((queue, outcomes), (other_queue, outcomes[::-1]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert len(receipts) == 2
    assert sum(300 - len(receipt.locked) - len(receipt.stale) for receipt in receipts) == 300


ENDS = {
    "succeeded": Outcome(None, Fate.SUCCEEDED),
    "repeated": Outcome(None, Fate.REPEATED),
    "dead": Outcome(None, Fate.DIED, reason=DeathReason.EXHAUSTED, error={"error": "x"}),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("task", [app.noop, app.unkept], ids=["kept", "unkept"])
@pytest.mark.parametrize("hold", [None, 60], ids=["", "reserved"])
def test_receipt_names_the_awaited_jobs(queue, sql, end, task, hold):
    for key in "abc":
        task.using(unique_key=key, unique=Unique(hold=hold)).enqueue()
    jobs = claim(queue, "default", limit=3, worker_id=1)
    sql("UPDATE pgqueue_jobs SET has_waiters = true WHERE id = %s", jobs[1].id)
    receipt = write(queue, *(replace(ENDS[end], job=job) for job in jobs))
    assert receipt == Receipt(awaited=frozenset([jobs[1].id]))


def test_job_that_is_not_over_is_announced_when_it_is(queue, sql, claimed):
    jobs = claimed(2)
    sql("UPDATE pgqueue_jobs SET has_waiters = true")
    failed, released = Outcome(jobs[0], Fate.RETRIED, error={"error": "x"}), Outcome(jobs[1], Fate.RELEASED)
    assert write(queue, failed, released) == Receipt()
    sql("UPDATE pgqueue_jobs SET status = 'queued', run_at = now()")
    again = claim(queue, "default", limit=2, worker_id=1)
    receipt = write(queue, *(Outcome(job, Fate.SUCCEEDED) for job in again))
    assert receipt == Receipt(awaited=frozenset(job.id for job in jobs))


def test_job_that_its_own_transaction_has_removed_is_announced_too(queue, sql, claimed):
    first, second = (Outcome(job, Fate.SUCCEEDED) for job in claimed(2))
    sql("UPDATE pgqueue_jobs SET has_waiters = true WHERE id = %s", first.job.id)
    for outcome in (first, second):
        with transaction.atomic():
            assert ack.finish_alone(CallerConnection(), outcome)
        outcome.fate = Fate.RECORDED
    assert write(queue, first, second) == Receipt(awaited=frozenset([first.job.id]))


@pytest.mark.parametrize("fate", [Fate.SUCCEEDED, Fate.REPEATED])
@pytest.mark.parametrize("hold", [None, 60], ids=["", "reserved"])
def test_result_that_was_left_out_is_another_thing_than_none(queue, sql, fate, hold):
    for key in "abc":
        app.noop.using(unique_key=key, unique=Unique(hold=hold)).enqueue()
    jobs = claim(queue, "default", limit=3, worker_id=1)
    write(queue, *(Outcome(job, fate, result=result) for job, result in zip(jobs, (None, "null", "5"), strict=True)))
    kept = sql("SELECT result::text FROM pgqueue_succeeded_jobs ORDER BY id")
    assert kept == [(None,), ("null",), ("5",)]


def repeat(queue, job, delay=0.0, **values) -> Receipt:
    return ack.write(queue, [Outcome(job, Fate.REPEATED, delay_seconds=delay, **values)])


def test_next_job_has_all_of_the_first_but_its_id_and_its_past(queue, sql):
    task = app.record.using(
        priority=7, max_attempts=4, timeout=60, lease=90, metadata={"a": 1}, expires=600,
        unique_key="u", unique=Unique(hold=5), limit_key="c", limit=Limit(running=3, strict=True),
        fair_key="f", keep_for=HOUR,
    )  # fmt: skip
    first = task.enqueue("x").id
    sql("UPDATE pgqueue_jobs SET status = 'queued', concurrency_slot = 1")
    assert repeat(queue, claim_one(queue), 60, result='"done"', run_seconds=2.5) == Receipt()
    job, succeeded = Job.objects.get(), SucceededJob.objects.get()
    assert (succeeded.id, succeeded.result, succeeded.run_seconds) == (first, "done", 2.5)
    assert job.id != first
    assert (job.parent_id, job.schedule_id, job.status, job.attempts) == (first, None, "scheduled", 0)
    assert (job.lease_token, job.worker_id, job.errors, job.concurrency_slot) == (0, 0, [], None)
    assert (job.task, job.args, job.queue, job.priority, job.max_attempts) == (app.record.name, ["x"], "default", 7, 4)
    assert (job.timeout_seconds, job.lease_seconds, job.metadata, job.keep) == (60, 90, {"a": 1}, True)
    assert (job.keep_seconds, succeeded.prune_at - succeeded.succeeded_at) == (3600, HOUR)
    assert (job.unique_key, job.unique_until, job.unique_hold_seconds) == ("u", "end", 5)
    assert (job.concurrency_key, job.concurrency_limit, job.concurrency_strict, job.fair_key) == ("c", 3, True, "f")
    assert 59 <= (job.run_at - succeeded.succeeded_at).total_seconds() <= 61
    assert job.expires_at - job.run_at == dt.timedelta(seconds=600)


def test_retries_take_nothing_from_the_time_in_which_the_next_job_may_start(queue, sql):
    app.record.using(expires=600).enqueue("x")
    failed = Outcome(claim_one(queue), Fate.RETRIED, delay_seconds=500, error={"error": "ValueError"})
    assert ack.write(queue, [failed]) == Receipt()
    sql("UPDATE pgqueue_jobs SET status = 'queued', attempts = 1, run_at = first_started_at + interval '500 seconds'")
    sql(
        "UPDATE pgqueue_jobs SET run_at = run_at - passed.by, expires_at = expires_at - passed.by, "
        "first_started_at = first_started_at - passed.by, enqueued_at = enqueued_at - passed.by "
        "FROM (SELECT interval '501 seconds' AS by) AS passed"
    )
    assert repeat(queue, claim_one(queue), 60) == Receipt()
    job = Job.objects.get()
    assert dt.timedelta(seconds=540) < job.expires_at - job.run_at <= dt.timedelta(seconds=600)


def test_next_job_that_is_due_at_once_is_promoted(queue):
    app.record.enqueue("x")
    repeat(queue, claim_one(queue))
    assert promote(queue).queues == {"default": 1}
    assert claim_one(queue).args == '["x"]'


def test_next_job_runs_at_the_time_it_was_given(queue):
    app.record.enqueue("x")
    at = timezone.now() + HOUR
    repeat(queue, claim_one(queue), next_at=at)
    assert Job.objects.get().run_at == at


@pytest.mark.parametrize("scope", ["end", "start"])
def test_unique_key_goes_on_to_the_next_job(queue, scope):
    task = app.record.using(unique_key="u", unique=Unique(until=scope))
    task.enqueue("x")
    job = claim_one(queue)
    repeat(queue, job)
    held = Job.objects.get()
    assert held.unique_until == {"end": "end", "start": "started"}[scope]  # one given up is taken back, as by a retry
    assert task.enqueue("y").created == (scope == "start")


def test_unkept_job_is_not_kept_and_history_may_be_off(queue, settings):
    app.record.using(keep_result=False).enqueue()
    repeat(queue, claim_one(queue), 60)
    assert (SucceededJob.objects.count(), Job.objects.get().keep) == (0, False)
    Job.objects.all().delete()
    settings.PGQUEUE = {"RETENTION_DAYS": 0}
    app.record.enqueue()
    repeat(queue, claim_one(queue), 60)
    assert (SucceededJob.objects.count(), Job.objects.count()) == (0, 1)


def test_stale_run_has_no_next_job(queue, sql):
    app.record.enqueue()
    job = claim_one(queue)
    sql("UPDATE pgqueue_jobs SET lease_token = 5")
    assert repeat(queue, job) == Receipt(stale=frozenset([job.id]))
    assert (Job.objects.count(), SucceededJob.objects.count()) == (1, 0)


def test_locked_row_is_not_waited_for(queue, other_queue):
    app.record.enqueue()
    job = claim_one(queue)
    with transaction.atomic():
        Job.objects.select_for_update().get()
        assert repeat(queue, job) == Receipt(locked=frozenset([job.id]))
    assert repeat(queue, job) == Receipt()
    assert Job.objects.get().parent_id == job.id


def test_job_that_was_asked_to_stop_has_no_next_one(queue):
    app.record.enqueue()
    job = claim_one(queue)
    assert kill([job.id], by="eve").requested == [job.id]
    assert repeat(queue, job) == Receipt()
    assert (Job.objects.count(), SucceededJob.objects.count()) == (0, 1)
