"""The handle of a job tells its result, and waits for it."""

import asyncio
import datetime as dt

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue import Unique, enqueue_many, jobs
from django_pgqueue.exceptions import (
    InvalidOption,
    JobDied,
    JobDoesNotExist,
    JobExpired,
    JobFailed,
    JobLost,
    JobNotCommitted,
    JobNotFinished,
    JobSuperseded,
    JobWasKilled,
    ResultNotKept,
)
from django_pgqueue.jobs import handle as module
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.handle import ended_for_the_caller
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.records import Fate
from django_pgqueue.states import DeathReason
from django_pgqueue.testing import run_jobs
from tests.app import helped
from tests.support.results import end, end_soon, said_too_late, ways
from tests.support.waiting import PATIENCE_SECONDS, eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_caller_waits_in_the_end")]


@pytest.mark.parametrize(("result", "returned"), [('{"a": [1, 2]}', {"a": [1, 2]}), ("null", None)])
def test_result_of_a_job_that_has_finished_is_there_at_once(queue, result, returned):
    handle = app.noop.enqueue()
    end(queue, result=result)
    assert (
        handle.result()
        == handle.result(timeout=PATIENCE_SECONDS)
        == jobs.get(handle.id).result(timeout=PATIENCE_SECONDS)
        == returned
    )
    assert async_to_sync(jobs.get(handle.id).aresult)() == async_to_sync(handle.aresult)(PATIENCE_SECONDS) == returned


@pytest.mark.parametrize("wrong", ["x", "", None, [], float("inf"), 1.9, True], ids=repr)
def test_id_of_a_job_is_a_whole_number(wrong):
    assert jobs.get("7") == jobs.get(7)
    with pytest.raises(InvalidOption, match="The id of a job is a whole number, not "):
        jobs.get(wrong)


def test_job_that_has_not_ended_has_no_result_yet(queue):
    handle = app.noop.enqueue()
    with pytest.raises(JobNotFinished, match=rf"Job {handle.id} \(.*noop\) has not ended yet: it is queued.") as told:
        handle.result()
    assert told.value.status == "queued"
    claim(queue, "default", limit=1, worker_id=1)
    with pytest.raises(JobNotFinished, match="is running"):
        async_to_sync(handle.aresult)()


def test_job_that_is_dead_tells_why_and_no_secrets(queue):
    handle = app.log_in.enqueue("me", "hunter22")
    error = {"error": "ValueError", "message": "hunter22 is wrong", "traceback": "hunter22"}
    end(queue, Fate.DIED, reason=DeathReason.EXHAUSTED, error=error)
    for way in ways(handle):
        with pytest.raises(JobFailed, match=r"is dead, exhausted after attempt 1: ValueError: .* is wrong") as told:
            way()
        assert (told.value.reason, told.value.error["error"]) == ("exhausted", "ValueError")
        assert "hunter22" not in f"{told.value} {told.value.error}"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (DeathReason.EXHAUSTED, JobFailed),
        (DeathReason.DISCARDED, JobFailed),
        (DeathReason.KILLED, JobWasKilled),
        (DeathReason.EXPIRED, JobExpired),
        (DeathReason.LOST, JobLost),
        (DeathReason.SUPERSEDED, JobSuperseded),
        (DeathReason.UNKNOWN_TASK, JobDied),
    ],
)
def test_error_of_a_dead_job_is_of_the_kind_of_its_death(queue, reason, kind):
    handle = app.noop.enqueue()
    end(queue, Fate.DIED, reason=reason, error={"error": "why"})
    for way in ways(handle):
        with pytest.raises(JobDied, match=f"is dead, {reason} after") as told:
            way()
        assert (type(told.value), told.value.reason) == (kind, reason)


@pytest.mark.parametrize(("task", "result"), [(app.unkept, "5"), (app.noop, None)], ids=["unkept", "left out"])
def test_job_that_has_finished_without_a_result_says_so(queue, task, result):
    handle = task.using(unique_key="u", unique=Unique(hold=600)).enqueue()
    end(queue, result=result)
    for way in ways(handle):
        with pytest.raises(ResultNotKept, match="has succeeded, and its result is not kept"):
            way()


def test_waiting_in_the_transaction_that_enqueued_the_job_is_refused_at_once():
    with transaction.atomic():
        handle = app.noop.enqueue()
        for way in ways(handle)[1::2]:
            with pytest.raises(JobNotCommitted, match=r"still open on 'default'.* Wait after the transaction"):
                way()
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.05)


@pytest.mark.parametrize("way", [1, 3], ids=["result", "aresult"])
def test_job_that_is_committed_between_the_two_looks_is_waited_for(queue, sql, settings, monkeypatch, way):
    settings.PGQUEUE = settings.PGQUEUE | {"POLL_SECONDS": 0.01}
    app.noop.enqueue()
    handle = jobs.get(1_000_000)

    def look_after_the_commit(one):
        sql("UPDATE pgqueue_jobs SET id = %s", handle.id)
        state = ended_for_the_caller(one)
        end(queue, result="5")
        return state

    monkeypatch.setattr(module, "ended_for_the_caller", look_after_the_commit)
    assert ways(handle)[way]() == 5


def test_job_that_has_ended_in_the_transaction_that_enqueued_it_has_its_result():
    """As in a TestCase, whose transaction no other session sees."""
    with transaction.atomic():
        handle, broken = helped.note.enqueue("a"), helped.fail.using(max_attempts=1).enqueue()
        run_jobs(errors="collect")
        assert [way() for way in ways(handle)] == ["a"] * 4
        for way in ways(broken):
            with pytest.raises(JobFailed):
                way()


def test_waiting_in_another_transaction_is_not_refused(queue):
    handle = app.noop.enqueue()
    with transaction.atomic():
        Job.objects.get()
        end(queue, result="1")
        assert handle.result(timeout=PATIENCE_SECONDS) == 1


@pytest.mark.parametrize("timeout", [0, -1, True, "5", dt.timedelta(), float("nan")])
def test_timeout_is_above_zero(timeout):
    with pytest.raises(InvalidOption, match="The timeout is a number of seconds above 0, or a timedelta, not"):
        jobs.get(1).result(timeout=timeout)


def test_waiting_for_a_result_refuses_to_block_an_event_loop():
    async def call():
        jobs.get(1).result(timeout=PATIENCE_SECONDS)

    with pytest.raises(SynchronousOnlyOperation, match="Use aresult"):
        asyncio.run(call())


def test_timeout_says_where_the_job_is_and_leaves_it_alone(queue):
    handle = app.noop.enqueue()
    message = f"Job {handle.id} has not ended within 0.1 s. When last looked at it was queued."
    for way in (
        lambda: handle.result(timeout=0.1),
        lambda: asyncio.run(handle.aresult(timeout=dt.timedelta(seconds=0.1))),
    ):
        eventually(lambda way=way: said_too_late(way) == message)
    assert end_soon(queue, result="1") == [handle.id]
    assert handle.result() == 1


def test_status_is_told_alone(queue):
    handle = app.noop.enqueue()
    assert (handle.status(), async_to_sync(handle.astatus)()) == ("queued", "queued")
    end(queue, Fate.DIED, reason=DeathReason.EXHAUSTED, error={})
    assert handle.status() == "dead"


def test_handles_are_equal_by_id_and_database():
    handle = app.noop.enqueue()
    assert handle == jobs.get(handle.id) != jobs.get(handle.id, database="other")
    assert {handle: 1}[jobs.get(handle.id)] == 1
    assert handle != jobs.get(handle.id + 1)


def test_job_is_killed_and_retried_by_its_handle(queue):
    handle = app.noop.enqueue()
    assert not handle.retry()
    assert handle.kill(by="ann")
    assert (handle.status(), DeadJob.objects.get().reason) == ("dead", "killed")
    assert "ann" in str(handle.state().errors)
    assert not handle.kill()
    assert handle.retry(by="bob")
    assert (handle.status(), Job.objects.get().attempts) == ("queued", 0)
    claim(queue, "default", limit=1, worker_id=1)
    assert handle.kill()
    assert handle.status() == "running"


def test_job_of_which_nothing_is_there_is_unknown(queue):
    handle = app.unkept.enqueue()
    end(queue)
    for way in [*ways(handle), *ways(jobs.get(1_000_000)), *ways(jobs.get(2**70))]:
        with pytest.raises(JobDoesNotExist, match="There is no job"):
            way()


def test_handles_of_a_bulk_are_a_sequence(queue):
    mail = app.record.using(queue="mail")
    handles = enqueue_many([mail.bind("a"), app.noop.bind(), mail.bind("c")])
    ids = sorted(Job.objects.values_list("id", flat=True))
    assert [handle.id for handle in handles] == ids
    assert [(handle.task, handle.queue) for handle in handles] == [
        ("tests.app.tasks.record", "mail"),
        ("tests.app.tasks.noop", "default"),
        ("tests.app.tasks.record", "mail"),
    ]
    assert (len(handles), handles[-1], handles[1:]) == (3, jobs.get(ids[2]), [jobs.get(one) for one in ids[1:]])
    assert handles == [jobs.get(one) for one in ids] != handles[1:]
    assert repr(handles) == repr(list(handles))
    with pytest.raises(IndexError):
        _ = handles[3]


def test_handles_of_a_bulk_say_which_jobs_are_new(queue):
    mail = app.record.using(unique_key="a")
    assert [handle.created for handle in mail.enqueue_many([("a",), ("b",)])] == [True, False]


def test_job_is_found_by_the_unique_key_that_it_holds(queue):
    handle = app.record.using(unique_key="k", queue="mail").enqueue("x")
    found = jobs.get(unique_key="k")
    assert (found, found.task, found.queue, found.created) == (handle, app.record.name, "mail", False)
    assert async_to_sync(jobs.aget)(unique_key="k") == handle
    assert found.kill()
    with pytest.raises(JobDoesNotExist, match="No live job holds the unique key 'k'"):
        jobs.get(unique_key="k")


def test_job_that_has_given_its_key_away_is_not_found_by_it(queue):
    app.noop.using(unique_key="k", unique=Unique(until="start")).enqueue()
    assert jobs.get(unique_key="k")
    claim(queue, "default", limit=1, worker_id=1)
    with pytest.raises(JobDoesNotExist):
        jobs.get(unique_key="k")


def test_job_that_holds_its_key_after_success_is_found(queue):
    handle = app.noop.using(unique_key="k", unique=Unique(hold=60)).enqueue()
    end(queue)
    assert jobs.get(unique_key="k") == handle
    assert handle.status() == "succeeded"


@pytest.mark.parametrize("given", [{"job_id": 1, "unique_key": "k"}, {"unique_key": ""}, {"unique_key": "x" * 501}])
def test_job_is_found_by_an_id_or_a_key(given):
    with pytest.raises(InvalidOption):
        jobs.get(**given)
