"""Callers wait for many jobs at once; what a worker does is done step by step."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction

import tests.app.tasks as app
from django_pgqueue import jobs
from django_pgqueue.db.notify import notify_waiters
from django_pgqueue.exceptions import ConfigurationError, InvalidOption, JobDoesNotExist, JobNotCommitted, JobWasKilled
from django_pgqueue.jobs import ack, completion, waiter
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.testing import run_jobs
from tests.support.results import end, end_soon, said_too_late
from tests.support.waiting import PATIENCE_SECONDS, eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_caller_waits_in_the_end")]

NEVER = {"POLL_SECONDS": 3600}
"""A caller that has noted that it waits looks no more: only an announcement helps."""


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as made:
        yield made


def in_thread(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    finally:
        connection.close()


def awaited(number) -> bool:
    return Job.objects.filter(has_waiters=True).count() == number


def succeed(queue, handle) -> None:
    """Claim up to the job of a handle, and end it alone; the result is its id. A waiter may just hold its row."""
    [claimed] = eventually(lambda: claim(queue, handle.queue, limit=1, worker_id=1))
    outcome = Outcome(claimed, Fate.SUCCEEDED, result=str(handle.id))
    receipt = eventually(lambda: None if (done := ack.write(queue, [outcome])).locked else done)
    assert claimed.id == handle.id
    notify_waiters(queue, receipt.awaited)


def several(number):
    """Return jobs on a queue each, so that any of them can end first."""
    return [app.noop.using(queue=f"q{place}").enqueue() for place in range(number)]


def test_results_come_in_the_order_of_the_handles(queue, settings, pool):
    settings.PGQUEUE = NEVER
    handles = several(3)
    waiting = pool.submit(in_thread, jobs.wait_all, handles, PATIENCE_SECONDS)
    eventually(lambda: awaited(3))
    for handle in (handles[2], handles[0], handles[1]):
        succeed(queue, handle)
    assert waiting.result(PATIENCE_SECONDS) == [handle.id for handle in handles]


def test_jobs_come_in_the_order_in_which_they_end(queue, settings, pool):
    settings.PGQUEUE = NEVER
    handles, seen = several(3), []

    def loop():
        for job in jobs.as_completed(handles, PATIENCE_SECONDS):
            seen.append((job.handle, job.result()))  # noqa: PERF401 - seen while it loops

    waiting = pool.submit(in_thread, loop)
    eventually(lambda: awaited(3))
    for number, place in enumerate((1, 2, 0), 1):
        succeed(queue, handles[place])
        eventually(lambda number=number: len(seen) == number)
    waiting.result(PATIENCE_SECONDS)
    assert seen == [(handles[place], handles[place].id) for place in (1, 2, 0)]


def test_async_code_waits_for_many(queue, settings, pool):
    settings.PGQUEUE = NEVER
    handles = several(3)

    async def both():
        seen = []

        async def loop():
            async for job in jobs.as_completed(handles, PATIENCE_SECONDS):
                seen.append(job.handle)  # noqa: PERF401 - the same

        results, _ = await asyncio.gather(jobs.await_all(handles, PATIENCE_SECONDS), loop())
        return results, seen

    waiting = pool.submit(in_thread, asyncio.run, both())
    eventually(lambda: awaited(3))
    for handle in reversed(handles):
        succeed(queue, handle)
    results, seen = waiting.result(PATIENCE_SECONDS)
    assert results == [handle.id for handle in handles]
    assert set(seen) == set(handles)


def test_jobs_that_have_ended_already_need_no_worker(queue):
    handles = app.noop.enqueue_many([()] * 700)
    end(queue, result="5")
    assert jobs.wait_all(handles, PATIENCE_SECONDS) == [5] * 700
    assert jobs.wait_all([handles[0], handles[0]], PATIENCE_SECONDS) == [5, 5]
    assert jobs.wait_all([], 1) == []
    assert [*jobs.as_completed([], 1)] == []


def test_death_is_raised_once_all_have_ended_or_put_in_its_place(queue):
    dead, alive = app.noop.enqueue(), app.noop.enqueue()
    dead.kill()
    message = f"1 of 2 jobs have not ended within 0.2 s. The first, job {alive.id},"
    eventually(lambda: message in said_too_late(lambda: jobs.wait_all([dead, alive], 0.2)))
    end_soon(queue, result="5")
    with pytest.raises(JobWasKilled):
        jobs.wait_all([dead, alive], PATIENCE_SECONDS)
    for results in (
        jobs.wait_all([dead, alive], PATIENCE_SECONDS, return_exceptions=True),
        async_to_sync(jobs.await_all)([dead, alive], PATIENCE_SECONDS, return_exceptions=True),
    ):
        assert isinstance(results[0], JobWasKilled)
        assert results[1] == 5


@pytest.mark.parametrize("wait", [jobs.wait_all, async_to_sync(jobs.await_all)], ids=["wait_all", "await_all"])
def test_job_of_which_nothing_is_kept_is_told_once_all_have_ended(queue, wait):
    unkept, alive = app.unkept.using(queue="b").enqueue(), app.noop.enqueue()
    succeed(queue, unkept)
    with pytest.raises(TimeoutError):
        wait([unkept, alive], 0.2)
    end_soon(queue, result="5")
    with pytest.raises(JobDoesNotExist, match="keep_result=False"):
        wait([unkept, alive], PATIENCE_SECONDS)
    missing, result = wait([unkept, alive], PATIENCE_SECONDS, return_exceptions=True)
    assert (type(missing), result) == (JobDoesNotExist, 5)


def test_timeout_is_for_the_whole_loop(queue):
    ended, waits = several(2)
    succeed(queue, ended)
    seen = []

    def loop():
        seen.clear()
        for job in jobs.as_completed([waits, ended], 0.2):
            seen.append(job.handle)  # noqa: PERF401 - the loop raises

    eventually(lambda: "was queued when last looked at" in said_too_late(loop) and seen == [ended])
    eventually(lambda: "1 of 2 jobs" in said_too_late(lambda: async_to_sync(jobs.await_all)([ended, waits], 0.2)))


@pytest.fixture
def waited_for(monkeypatch):
    """The waits of the loops of this test, to be looked at."""
    made = []

    def noted(*place):
        made.append(waiter.waiter_for(*place))
        return made[-1]

    monkeypatch.setattr(completion, "waiter_for", noted)
    return made


@pytest.mark.parametrize("is_async", [False, True])
def test_jobs_that_end_while_the_loop_is_busy_are_returned_after_the_deadline_too(
    queue, monkeypatch, waited_for, is_async
):
    handles, clock, seen = several(3), [0.0], []
    for handle in handles:
        succeed(queue, handle)
    monkeypatch.setattr(completion, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def be_busy(job):
        seen.append(job.handle)
        eventually(lambda: all(one.done() for one in waited_for))
        waiter.stop_all()  # whose thread has told the loop of all then
        clock[0] += PATIENCE_SECONDS

    async def loop():
        async for job in jobs.as_completed(handles, PATIENCE_SECONDS):
            be_busy(job)

    if is_async:
        async_to_sync(loop)()
    else:
        for job in jobs.as_completed(handles, PATIENCE_SECONDS):
            be_busy(job)
    assert set(seen) == set(handles)


def test_no_wait_is_left_behind_if_one_cannot_begin(waited_for):
    handles = [app.noop.enqueue(), jobs.get(1, database="nowhere")]
    with pytest.raises(ConfigurationError, match="nowhere"):
        jobs.wait_all(handles, PATIENCE_SECONDS)
    with pytest.raises(ConfigurationError, match="nowhere"):
        async_to_sync(jobs.await_all)(handles, PATIENCE_SECONDS)
    assert [one.cancelled() for one in waited_for] == [True, True]


def test_loop_that_is_left_waits_no_more(queue):
    ended, waits = several(2)
    succeed(queue, ended)
    for job in jobs.as_completed([waits, ended], PATIENCE_SECONDS):
        assert job.handle == ended
        break
    succeed(queue, waits)
    assert jobs.wait_all([waits], PATIENCE_SECONDS) == [waits.id]


def test_job_of_the_callers_transaction_is_not_waited_for():
    with transaction.atomic():
        handle = app.noop.enqueue()
        with pytest.raises(JobNotCommitted):
            jobs.wait_all([handle], PATIENCE_SECONDS)
        run_jobs()
        assert jobs.wait_all([handle], PATIENCE_SECONDS) == [None]


def test_job_that_never_was_is_named():
    with pytest.raises(JobDoesNotExist, match="There is no job 1000000"):
        jobs.wait_all([jobs.get(1_000_000)], PATIENCE_SECONDS)
    with pytest.raises(JobDoesNotExist, match="There is no job 1000000"):
        async_to_sync(jobs.await_all)([jobs.get(1_000_000)], PATIENCE_SECONDS)


def test_plain_loop_does_not_block_an_event_loop():
    async def wrong():
        return [*jobs.as_completed([jobs.get(1)], 1)]

    with pytest.raises(SynchronousOnlyOperation, match="async for"):
        asyncio.run(wrong())


@pytest.mark.parametrize("timeout", [0, -1, None, True, "5"])
def test_timeout_is_a_number_above_0(timeout):
    with pytest.raises((InvalidOption, TypeError)):
        jobs.wait_all([], timeout)
