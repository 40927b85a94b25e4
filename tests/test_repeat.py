"""A job that has succeeded lets another one like it follow, in the statement that writes the success down."""

import asyncio
import datetime as dt

import pytest
from django.db import transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import current_job
from django_pgqueue.exceptions import InvalidJob
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.actions import kill
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.executor import arun, run
from django_pgqueue.jobs.interrupts import LaneInterrupts, ThreadInterrupts
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.models import FinishedJob, Job
from django_pgqueue.records import Fate, Outcome, Receipt
from tests.app.models import Mark
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = dt.timedelta(hours=1)


def claimed(queue):
    [job] = claim(queue, "default", limit=1, worker_id=1)
    return job


def repeat(queue, job, delay=0.0, **values) -> Receipt:
    return ack.write(queue, [Outcome(job, Fate.REPEATED, delay_seconds=delay, **values)])


def test_next_job_has_all_of_the_first_but_its_id_and_its_past(queue, sql):
    task = app.record.using(
        priority=7, max_attempts=4, timeout=60, lease=90, metadata={"a": 1}, expires=600, unique_key="u", unique_for=5,
        concurrency_key="c", concurrency_limit=3, concurrency_strict=True, fair_key="f", keep=HOUR,
    )  # fmt: skip
    first = task.enqueue("x").id
    sql("UPDATE pgqueue_jobs SET status = 'queued', concurrency_slot = 1")
    assert repeat(queue, claimed(queue), 60, result='"done"', run_seconds=2.5) == Receipt()
    job, finished = Job.objects.get(), FinishedJob.objects.get()
    assert (finished.id, finished.result, finished.run_seconds) == (first, "done", 2.5)
    assert job.id != first
    assert (job.parent_id, job.schedule_id, job.status, job.attempts) == (first, None, "scheduled", 0)
    assert (job.lease_token, job.worker_id, job.errors, job.concurrency_slot) == (0, 0, [], None)
    assert (job.task, job.args, job.queue, job.priority, job.max_attempts) == (app.record.name, ["x"], "default", 7, 4)
    assert (job.timeout_seconds, job.lease_seconds, job.metadata, job.keep) == (60, 90, {"a": 1}, True)
    assert (job.keep_seconds, finished.prune_at - finished.finished_at) == (3600, HOUR)
    assert (job.unique_key, job.unique_scope, job.unique_for_seconds) == ("u", "live", 5)
    assert (job.concurrency_key, job.concurrency_limit, job.concurrency_strict, job.fair_key) == ("c", 3, True, "f")
    assert 59 <= (job.run_at - finished.finished_at).total_seconds() <= 61
    assert job.expires_at - job.run_at == dt.timedelta(seconds=600)


def test_retries_take_nothing_from_the_time_in_which_the_next_job_may_start(queue, sql):
    app.record.using(expires=600).enqueue("x")
    failed = Outcome(claimed(queue), Fate.RETRIED, delay_seconds=500, error={"error": "ValueError"})
    assert ack.write(queue, [failed]) == Receipt()
    sql("UPDATE pgqueue_jobs SET status = 'queued', attempts = 1, run_at = first_started_at + interval '500 seconds'")
    sql(
        "UPDATE pgqueue_jobs SET run_at = run_at - passed.by, expires_at = expires_at - passed.by, "
        "first_started_at = first_started_at - passed.by, enqueued_at = enqueued_at - passed.by "
        "FROM (SELECT interval '501 seconds' AS by) AS passed"
    )
    assert repeat(queue, claimed(queue), 60) == Receipt()
    job = Job.objects.get()
    assert dt.timedelta(seconds=540) < job.expires_at - job.run_at <= dt.timedelta(seconds=600)


def test_next_job_that_is_due_at_once_is_promoted(queue):
    app.record.enqueue("x")
    repeat(queue, claimed(queue))
    assert promote(queue).queues == {"default": 1}
    assert claimed(queue).args == '["x"]'


def test_next_job_runs_at_the_time_it_was_given(queue):
    app.record.enqueue("x")
    at = timezone.now() + HOUR
    repeat(queue, claimed(queue), next_at=at)
    assert Job.objects.get().run_at == at


@pytest.mark.parametrize("scope", ["live", "start"])
def test_unique_key_goes_on_to_the_next_job(queue, scope):
    task = app.record.using(unique_key="u", unique_scope=scope)
    task.enqueue("x")
    job = claimed(queue)
    repeat(queue, job)
    held = Job.objects.get()
    assert held.unique_scope == {"live": "live", "start": "started"}[scope]  # one given up is taken back, as by a retry
    assert task.enqueue("y").created == (scope == "start")


def test_unkept_job_is_not_kept_and_history_may_be_off(queue, settings):
    app.record.using(keep=False).enqueue()
    repeat(queue, claimed(queue), 60)
    assert (FinishedJob.objects.count(), Job.objects.get().keep) == (0, False)
    Job.objects.all().delete()
    settings.PGQUEUE = {"RETENTION_DAYS": 0}
    app.record.enqueue()
    repeat(queue, claimed(queue), 60)
    assert (FinishedJob.objects.count(), Job.objects.count()) == (0, 1)


def test_stale_run_has_no_next_job(queue, sql):
    app.record.enqueue()
    job = claimed(queue)
    sql("UPDATE pgqueue_jobs SET lease_token = 5")
    assert repeat(queue, job) == Receipt(stale=frozenset([job.id]))
    assert (Job.objects.count(), FinishedJob.objects.count()) == (1, 0)


def test_locked_row_is_not_waited_for(queue, other_queue):
    app.record.enqueue()
    job = claimed(queue)
    with transaction.atomic():
        Job.objects.select_for_update().get()
        assert repeat(queue, job) == Receipt(locked=frozenset([job.id]))
    assert repeat(queue, job) == Receipt()
    assert Job.objects.get().parent_id == job.id


def test_job_that_was_asked_to_stop_has_no_next_one(queue):
    app.record.enqueue()
    job = claimed(queue)
    assert kill([job.id], by="eve").requested == [job.id]
    assert repeat(queue, job) == Receipt()
    assert (Job.objects.count(), FinishedJob.objects.count()) == (0, 1)


# In the task


def again(when, fails=False):
    def func(label):
        current_job().run_again(HOUR)
        current_job().run_again(*when)  # the last call counts
        if fails:
            raise ValueError(label)

    return func


@pytest.mark.parametrize(("when", "delay"), [((), 0), ((90,), 90), ((1.5,), 1.5), ((dt.timedelta(minutes=2),), 120)])
def test_task_asks_for_the_next_job(queue, monkeypatch, when, delay):
    app.record.enqueue("x")
    job = claimed(queue)
    monkeypatch.setattr(app.record, "func", again(when))
    outcome = run(app.record, job, CurrentJob(job), ThreadInterrupts())
    assert (outcome.fate, outcome.delay_seconds, outcome.next_at) == (Fate.REPEATED, delay, None)


def test_coroutine_asks_for_the_next_job_at_a_time(queue, monkeypatch):
    app.arecord.enqueue("x")
    job, at = claimed(queue), timezone.now() + HOUR

    async def func(label):
        current_job().run_again(at)

    async def awaited():
        border = LaneInterrupts(asyncio.get_running_loop())
        return await arun(app.arecord, job, CurrentJob(job), border)

    monkeypatch.setattr(app.arecord, "func", func)
    outcome = asyncio.run(awaited())
    assert (outcome.fate, outcome.next_at) == (Fate.REPEATED, at)


def test_failure_has_no_next_job(queue, monkeypatch):
    app.record.enqueue("x")
    job = claimed(queue)
    monkeypatch.setattr(app.record, "func", again((), fails=True))
    assert run(app.record, job, CurrentJob(job), ThreadInterrupts()).fate is Fate.RETRIED


def test_run_that_was_asked_to_stop_and_succeeds_has_no_next_job(queue, monkeypatch):
    app.record.enqueue("x")
    job = claimed(queue)

    def func(label):
        current_job().run_again()
        current_job().is_cancelled = True

    monkeypatch.setattr(app.record, "func", func)
    assert run(app.record, job, CurrentJob(job), ThreadInterrupts()).fate is Fate.SUCCEEDED


def test_atomic_task_writes_its_effects_and_the_next_job_together(queue, monkeypatch):
    app.record_atomic.enqueue("x")
    job = claimed(queue)
    monkeypatch.setattr(app.record_atomic, "func", lambda label: (app.mark(label), current_job().run_again(60)))
    assert run(app.record_atomic, job, CurrentJob(job), ThreadInterrupts()).fate is Fate.RECORDED
    assert (Mark.objects.count(), Job.objects.get().parent_id, FinishedJob.objects.get().id) == (1, job.id, job.id)


def test_atomic_task_that_lost_its_lease_leaves_no_next_job(queue, monkeypatch, sql):
    app.record_atomic.enqueue("x")
    job = claimed(queue)
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    monkeypatch.setattr(app.record_atomic, "func", lambda label: (app.mark(label), current_job().run_again(60)))
    assert run(app.record_atomic, job, CurrentJob(job), ThreadInterrupts()).fate is Fate.RETRIED
    assert (Mark.objects.count(), Job.objects.get().id) == (0, job.id)


@pytest.mark.parametrize(
    "when", [-1, -HOUR, float("nan"), float("inf"), 1e300, True, "soon", None, dt.timedelta(36501)]
)
def test_time_that_cannot_be_is_refused(when):
    with pytest.raises(InvalidJob):
        CurrentJob(None).run_again(when)


def test_naive_time_is_refused():
    with pytest.raises(InvalidJob, match="naive"):
        CurrentJob(None).run_again(dt.datetime(2026, 1, 1))


def test_job_goes_on_by_itself_in_a_real_worker(start_worker):
    """Five runs that succeed; the second fails once before, and has no job for that."""
    first = app.go_on.enqueue(6).id
    start_worker()
    eventually(lambda: FinishedJob.objects.count() == 5 and not Job.objects.exists())
    jobs = FinishedJob.objects.order_by("id")
    assert [job.parent_id for job in jobs] == [None, *[job.id for job in jobs][:-1]]
    assert jobs[0].id == first
    assert sum(job.attempts for job in jobs) == Mark.objects.count() == 6
