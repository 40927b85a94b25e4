"""A result of the framework is read from the row of its job, wherever that is."""

import datetime as dt

import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.utils import timezone

import tests.app.contract as app
from django_pgqueue import Unique
from django_pgqueue.exceptions import JobExpired, JobFailed, JobKilled, JobLost, JobNotCommitted, TaskDoesNotExist
from django_pgqueue.framework import TaskResultStatus, task_backends
from django_pgqueue.jobs import ack, kill, retry, waiter
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.dead_letter import expired_entry
from django_pgqueue.maintenance.reaper import settle
from django_pgqueue.models import Job, SucceededJob
from django_pgqueue.records import Fate, Lease, Outcome
from django_pgqueue.states import DeathReason
from django_pgqueue.testing import run_jobs
from tests.support.contract import WORKER, work
from tests.support.waiting import PATIENCE_SECONDS


def lease_of(job_id) -> Lease:
    job = Job.objects.get(pk=job_id)
    return Lease(
        job.id,
        job.lease_token,
        job.worker_id,
        job.queue,
        job.attempts,
        job.max_attempts,
        job.lost,
        False,
        "web1 pid 4711",
        job.task,
        0,
    )


def test_row_that_is_nested_too_deeply_has_a_result_to_look_at(sql):
    """Later Pythons read more levels than the framework's own functions can walk."""
    deep = "[" * 3000 + "]" * 3000
    [(job_id,)] = sql("INSERT INTO pgqueue_jobs (task, args) VALUES ('tests.app.contract.add', %s) RETURNING id", deep)
    assert "nested too deeply" in str(task_backends["default"].get_result(str(job_id)).args)


@pytest.fixture
def no_caller_waits_in_the_end(transactional_db):
    yield
    waiter.stop_all()


def test_result_can_be_waited_for(start_worker, no_caller_waits_in_the_end):
    start_worker("--processes", "1")
    good, bad, slow = app.add.enqueue(1, 2), app.fail.enqueue(), app.asleep.enqueue(600)
    assert (good.result(timeout=PATIENCE_SECONDS), good.return_value, good.status) == (
        3,
        3,
        TaskResultStatus.SUCCESSFUL,
    )
    with pytest.raises(JobFailed, match="ValueError: no luck"):
        bad.result(timeout=dt.timedelta(seconds=PATIENCE_SECONDS))
    assert [error.exception_class for error in bad.errors] == [ValueError]
    with pytest.raises(TimeoutError):
        slow.result(timeout=0.01)
    assert async_to_sync(app.add.enqueue(5).aresult)(PATIENCE_SECONDS) == 5


def test_result_in_the_transaction_that_enqueued_is_not_waited_for(no_caller_waits_in_the_end):
    with transaction.atomic():
        result = app.add.enqueue(1)
        with pytest.raises(JobNotCommitted):
            result.result(timeout=PATIENCE_SECONDS)


def test_result_of_a_task_that_was_run_in_the_transaction_is_there(no_caller_waits_in_the_end):
    """As in a TestCase, whose transaction no other session sees."""
    with transaction.atomic():
        result, broken = app.add.enqueue(1, 2), app.fail.enqueue()
        run_jobs(errors="collect")
        assert (result.result(timeout=PATIENCE_SECONDS), result.status) == (3, TaskResultStatus.SUCCESSFUL)
        assert async_to_sync(result.aresult)(PATIENCE_SECONDS) == 3
        with pytest.raises(JobFailed, match="no luck"):
            broken.result(timeout=PATIENCE_SECONDS)
        assert broken.status == TaskResultStatus.FAILED


def test_result_has_the_handle_of_its_job(db):
    result = app.add.using(metadata={"tenant": 5}).enqueue(1)
    assert result.job.state().metadata == {"tenant": 5}


def test_lost_attempts_count_and_are_told(queue, backend):
    result = app.echo.using(max_attempts=2, queue_name="default").enqueue(5)
    claim(queue, "default", limit=1, worker_id=11)
    settle(queue, [lease_of(result.id)])
    result.refresh()
    assert (result.status, result.worker_ids) == (TaskResultStatus.READY, ["11"])
    assert [error.exception_class for error in result.errors] == [JobLost]
    assert "web1 pid 4711" in result.errors[0].traceback
    work(queue, worker_id=12)
    result.refresh()
    assert (result.status, result.worker_ids, result.return_value) == (TaskResultStatus.SUCCESSFUL, ["11", "12"], 5)
    assert result.started_at < result.last_attempted_at


def test_workers_of_attempts_that_history_has_dropped_are_unknown(queue, backend):
    result = app.echo.using(max_attempts=40, queue_name="default").enqueue(5)
    errors = [
        {"kind": "failed", "error": "ValueError", "attempt": number, "worker_id": 100 + number} for number in (1, 2, 9)
    ]
    Job.objects.update(attempts=9, errors=errors)
    work(queue)
    result.refresh()
    assert result.worker_ids == ["101", "102", *["unknown"] * 6, "109", str(WORKER)]


def test_retried_job_begins_to_count_again(queue, backend):
    result = app.fail.enqueue()
    work(queue)
    retry([int(result.id)], by="ann")
    result.refresh()
    assert (result.status, result.attempts, len(result.errors)) == (TaskResultStatus.READY, 0, 1)
    work(queue, worker_id=8)
    result.refresh()
    assert (result.status, result.worker_ids, len(result.errors)) == (TaskResultStatus.FAILED, ["8"], 2)


def test_worker_that_finds_a_retry_expired_has_made_no_attempt(queue, backend):
    result = app.fail_until.using(expires=3600).enqueue(9)
    work(queue, worker_id=7)
    Job.objects.update(status="queued", run_at=timezone.now(), expires_at=timezone.now() - dt.timedelta(seconds=1))
    [job] = claim(queue, "default", limit=1, worker_id=8)
    ack.write(queue, [Outcome(job, Fate.DIED, reason=DeathReason.EXPIRED, error=expired_entry())])
    result.refresh()
    assert (result.worker_ids, result.errors[-1].exception_class) == (["7"], JobExpired)


def test_killed_and_expired_jobs_have_failed(queue, backend):
    killed, expired = app.add.enqueue(), app.add.using(expires=60).enqueue()
    kill([int(killed.id)], by="eve")
    Job.objects.update(expires_at=timezone.now() - dt.timedelta(hours=1))
    claimed = claim(queue, "default", limit=1, worker_id=9)
    from django_pgqueue.jobs import ack
    from django_pgqueue.records import Outcome
    from django_pgqueue.states import DeathReason

    ack.write(queue, [Outcome(claimed[0], Fate.DIED, reason=DeathReason.EXPIRED, error=expired_entry())])
    for result, kind in ((killed, JobKilled), (expired, JobExpired)):
        result.refresh()
        assert (result.status, result.worker_ids) == (TaskResultStatus.FAILED, [])
        assert [error.exception_class for error in result.errors] == [kind]


def test_reserved_without_history_is_a_success(queue, backend):
    result = app.once.using(unique=Unique(hold=600), keep_result=False).enqueue("a")
    work(queue)
    assert (Job.objects.get().status, SucceededJob.objects.count()) == ("reserved", 0)
    result.refresh()
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, None)


def test_result_of_a_function_that_is_gone_has_its_name(queue, backend, heard):
    result = app.add.enqueue(1)
    Job.objects.update(task="tests.app.contract.gone_since")
    found = backend.get_result(result.id)
    assert (found.task.name, found.task.module_path) == ("gone_since", "tests.app.contract.gone_since")
    assert found == backend.get_result(result.id)
    with pytest.raises(TaskDoesNotExist, match=r"'tests\.app\.contract\.gone_since' is no task any more"):
        found.task.call(1)
    assert work(queue).fate is Fate.RELEASED
    assert [name for name, _, _ in heard] == ["enqueued"]
