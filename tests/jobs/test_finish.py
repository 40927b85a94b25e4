"""finish_job() ends the job in the transaction of a block: both take effect, or neither."""

import asyncio

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction

import tests.app.tasks as app
from django_pgqueue import current_job, finish_job
from django_pgqueue.exceptions import JobTimeout, LeaseLost, NoCurrentJob
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.context import CurrentJob, entered
from django_pgqueue.jobs.executor import run
from django_pgqueue.jobs.interrupts import ThreadInterrupts
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.records import Fate
from django_pgqueue.testing import run_job, run_jobs
from tests.app.models import Mark
from tests.support.claimed import awaited, claim_one
from tests.support.waiting import eventually


@pytest.fixture
def outcome_of(queue, monkeypatch):
    """Run a function as the task of a claimed job, and write the outcome as a consumer does."""

    def perform(func):
        task = app.arecord if asyncio.iscoroutinefunction(func) else app.record
        task.enqueue(1)
        monkeypatch.setattr(task, "func", func)
        job = claim_one(queue)
        current = CurrentJob(job)
        if task.is_async:
            outcome = asyncio.run(awaited(task, job, current))
        else:
            outcome = run(task, job, current, ThreadInterrupts())
        ack.write(queue, [outcome])
        return outcome

    return perform


pytestmark = pytest.mark.django_db(transaction=True)


def test_block_and_end_of_the_job_are_one_transaction(outcome_of):
    seen = []

    def func(_):
        assert not transaction.get_connection().in_atomic_block
        with finish_job() as end:
            app.mark("x")
            end.result = 7
            seen.append(Job.objects.get().status)
        seen.append((Job.objects.count(), Mark.objects.count()))
        return 8

    assert outcome_of(func).fate is Fate.RECORDED
    assert seen == ["running", (0, 1)]
    done = SucceededJob.objects.get()
    assert (done.result, done.run_seconds > 0) == (7, True)


def test_error_in_the_block_rolls_both_back_and_the_job_is_tried_again(outcome_of):
    def func(_):
        with finish_job():
            app.mark("x")
            raise LookupError("no luck")

    outcome = outcome_of(func)
    assert (outcome.fate, outcome.error["message"]) == (Fate.RETRIED, "no luck")
    assert (Job.objects.get().status, Mark.objects.count()) == ("scheduled", 0)


def test_error_after_the_block_is_logged_and_changes_nothing(outcome_of, caplog):
    def func(_):
        with finish_job():
            app.mark("x")
        raise LookupError("too late")

    assert outcome_of(func).fate is Fate.RECORDED
    assert (SucceededJob.objects.count(), Job.objects.count(), Mark.objects.count()) == (1, 0, 1)
    assert "has succeeded, but its task failed after finish_job()" in caplog.text
    assert "too late" in caplog.text


@pytest.mark.parametrize("name", ["hush", "hush_atomic"])
def test_sensitive_arguments_of_a_job_that_has_ended_are_not_logged(queue, registry_of, caplog, name):
    def hush(password):
        with finish_job():
            app.mark("x")
        raise LookupError(f"{password} is wrong")

    def hush_atomic(password):
        def fail():
            raise LookupError(f"{password} is wrong")

        transaction.on_commit(fail)

    functions = {"hush": hush, "hush_atomic": hush_atomic}
    task = registry_of(functions[name], atomic=name == "hush_atomic")
    task.enqueue("open-sesame")
    job = claim_one(queue)
    assert run(task, job, CurrentJob(job), ThreadInterrupts()).fate is Fate.RECORDED
    assert "LookupError: [redacted] is wrong" in caplog.text
    assert "open-sesame" not in caplog.text


def test_error_of_an_on_commit_hook_changes_nothing(outcome_of, caplog):
    def func(_):
        with finish_job():
            app.mark("x")
            transaction.on_commit(lambda: 1 / 0)

    assert outcome_of(func).fate is Fate.RECORDED
    assert (SucceededJob.objects.count(), Mark.objects.count()) == (1, 1)
    assert "ZeroDivisionError" in caplog.text


def test_block_of_a_job_whose_lease_is_gone_is_rolled_back(outcome_of, sql):
    def func(_):
        with finish_job():
            app.mark("x")
            sql("UPDATE pgqueue_jobs SET lease_token = lease_token + 1")

    outcome = outcome_of(func)
    assert outcome.error["error"] == "django_pgqueue.exceptions.LeaseLost"
    assert not Mark.objects.exists()


def test_job_ends_once(outcome_of, caplog):
    def func(_):
        with finish_job():
            app.mark("x")
        with finish_job():
            app.mark("y")

    assert outcome_of(func).fate is Fate.RECORDED
    assert Mark.objects.count() == 1
    assert "finish_job() ends it once" in caplog.text


def test_killed_job_does_not_succeed(outcome_of):
    def func(_):
        with finish_job():
            app.mark("x")
            current_job().is_kill_requested = True

    assert outcome_of(func).fate is Fate.DIED
    assert (Mark.objects.count(), DeadJob.objects.get().reason) == (0, "killed")


def test_next_job_and_progress_are_written_with_the_end(outcome_of):
    def func(_):
        current_job().set_progress(1, 2)
        current_job().repeat(delay=60)
        with finish_job():
            app.mark("x")

    assert outcome_of(func).fate is Fate.RECORDED
    assert SucceededJob.objects.get().progress["done"] == 1
    assert Job.objects.get().status == "scheduled"


def test_nothing_interrupts_between_the_block_and_its_commit(queue):
    """An exception on its way is raised before the end is written, or is taken back."""
    interrupts, seen = ThreadInterrupts(), []
    app.record.enqueue(1)
    current = CurrentJob(claim_one(queue))

    def func():
        with finish_job():
            seen.append(interrupts._inside is current)
            transaction.on_commit(lambda: seen.append(interrupts._inside))
        seen.append(interrupts._inside is current)

    with entered(current):
        interrupts.call(current, func, (), {})
    assert seen == [True, None, True]
    assert not interrupts.interrupt(current, JobTimeout)


def test_block_in_a_thread_that_a_job_has_left_behind_does_not_shield_the_next_one(queue):
    interrupts = ThreadInterrupts()
    app.noop.enqueue_many([(), ()])
    left, current = CurrentJob(claim_one(queue)), CurrentJob(claim_one(queue))
    left.interrupts = interrupts

    def func():
        with pytest.raises(LeaseLost), entered(left), finish_job():
            Job.objects.filter(pk=left.id).delete()
            assert interrupts._inside is current
        return interrupts._inside

    assert interrupts.call(current, func, (), {}) is current


def test_async_task_ends_its_job_in_a_sync_function(outcome_of):
    def save():
        with finish_job() as end:
            app.mark("x")
            end.result = 7
        connections.close_all()  # of the thread, which ends with the event loop

    async def func(_):
        await sync_to_async(save)()
        return 8

    assert outcome_of(func).fate is Fate.RECORDED
    assert (SucceededJob.objects.get().result, Mark.objects.count()) == (7, 1)


def test_block_in_a_coroutine_is_refused_and_nothing_is_written(outcome_of):
    async def func(_):
        with finish_job():
            pass

    outcome = outcome_of(func)
    assert outcome.error["error"].endswith(SynchronousOnlyOperation.__name__)
    assert Job.objects.get().status == "scheduled"


def test_atomic_task_cannot_finish_within_its_own_transaction(queue, monkeypatch):
    def func(_):
        with finish_job():
            pass

    app.record_atomic.enqueue("x")
    monkeypatch.setattr(app.record_atomic, "func", func)
    job = claim_one(queue)
    outcome = run(app.record_atomic, job, CurrentJob(job), ThreadInterrupts())
    assert "durable" in outcome.error["message"]


def test_outside_of_a_job_there_is_nothing_to_finish():
    with pytest.raises(NoCurrentJob), finish_job():
        pass


def test_in_tests_of_users_it_is_a_transaction(monkeypatch):
    def func(_):
        with finish_job():
            app.mark("x")

    monkeypatch.setattr(app.record, "func", func)
    run_job(app.record.bind(1))
    app.record.enqueue(1)
    assert run_jobs().succeeded
    assert (Mark.objects.count(), SucceededJob.objects.count()) == (2, 1)


def test_task_in_a_real_worker(start_worker):
    app.finish_in_part.enqueue()
    worker = start_worker().wait_until_ready()
    eventually(SucceededJob.objects.exists)
    eventually(lambda: "its task failed after finish_job()" in worker.text())
    assert (Mark.objects.count(), Job.objects.count(), DeadJob.objects.count()) == (1, 0, 0)
