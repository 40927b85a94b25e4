"""Slots, run in this process: whatever happens around a job, its cell comes back."""

import asyncio
import contextvars
import gc
import queue as stdlib_queue
import threading

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError, connection

import tests.app.tasks as app
from django_pgqueue.framework import task_finished, task_started
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.signals import attempt_ended, attempt_started
from django_pgqueue.states import DeathReason
from django_pgqueue.worker import slots as slots_module
from django_pgqueue.worker.shared_state import SharedState, now
from django_pgqueue.worker.slots import Slots
from tests.app import contract
from tests.app.models import Mark
from tests.support.slots import ended
from tests.support.waiting import PATIENCE_SECONDS, eventually


@pytest.mark.parametrize("task", [app.cancel_itself, app.leave_a_cancel_behind])
def test_job_that_leaves_a_cancel_behind_ends_all_the_same(slots, give, task):
    job = give(task)
    cell, outcome = slots.mailbox.get(timeout=PATIENCE_SECONDS)
    assert (cell, outcome.job, slots._running) == (0, job, {})
    assert Mark.objects.filter(job_id=job.id).exists(), "it was in user code, and in the lane's thread"
    give(app.noop_async, cell=0)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED, "the lane goes on"


def test_job_that_cancels_all_tasks_of_the_loop_leaves_the_lanes_as_they_were(slots, give):
    """Those included that have not run yet, as libraries do when they shut down."""
    slots.concurrency, gate = 3, threading.Event()
    give(app.noop_async, cell=0)
    slots.mailbox.get(timeout=PATIENCE_SECONDS)
    slots._lanes._loop.call_soon_threadsafe(gate.wait)  # so that all lanes are opened in one turn of the loop
    jobs = [give(app.cancel_all_tasks, cell=cell) for cell in range(3)]
    gate.set()
    outcomes = [slots.mailbox.get(timeout=PATIENCE_SECONDS)[1] for _ in jobs]
    assert {outcome.job.id for outcome in outcomes} == {job.id for job in jobs}
    eventually(lambda: (slots._lanes._opening, len(slots._lanes._free)) == (0, len(slots._lanes._lanes)))
    give(app.noop_async, cell=0)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED


def test_job_waits_for_a_thread_while_the_system_allows_no_more(slots, give, monkeypatch, caplog):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        first = give(app.noop, cell=0)
    assert slots.waiting() == 1
    second = give(app.noop, cell=1)
    ended = {slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].job.id for _ in range(2)}
    assert ended == {first.id, second.id}
    assert "A slot has no thread; the next job tries again" in caplog.text


@pytest.fixture(params=["plain", "async"])
def heard(request):
    """Connect a receiver, plain or async, which may raise; it notes what it has heard before."""
    connected, told = [], []

    def listen(signal, error=None):
        def receiver(event=None, task_result=None, **_):
            told.append(event.id if event else int(task_result.id))
            if error:
                raise error

        async def areceiver(**named):
            await asyncio.sleep(0)
            receiver(**named)

        connected.append((signal, receiver if request.param == "plain" else areceiver))
        signal.connect(connected[-1][1])
        return told

    yield listen
    for signal, receiver in connected:
        signal.disconnect(receiver)


@pytest.mark.parametrize("signal", [attempt_ended, task_finished], ids=["native", "framework"])
def test_cancel_left_behind_makes_no_failure_of_a_success(give, slots, heard, signal):
    told = heard(signal)
    job = give(contract.leave_a_cancel_behind)
    assert (slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate, told) == (Fate.SUCCEEDED, [job.id])


@pytest.mark.parametrize("task", [contract.add, contract.aadd], ids=["plain task", "async task"])
@pytest.mark.parametrize("signal", [attempt_started, attempt_ended, task_started, task_finished])
def test_receiver_that_exits_has_no_say_in_the_outcome(give, slots, heard, task, signal):
    told = heard(signal, SystemExit("enough"))
    job = give(task, args=(1, 2))
    outcome = slots.mailbox.get(timeout=PATIENCE_SECONDS)[1]
    assert (outcome.fate, outcome.result, told) == (Fate.SUCCEEDED, "3", [job.id])


def test_kill_that_comes_before_user_code_is_not_lost(slots, give, monkeypatch):
    """While the connections of a lane that was idle are being checked, as with a server that does not answer."""
    checking, checked = threading.Event(), threading.Event()
    give(app.arecord)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
    monkeypatch.setattr(slots_module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(slots_module, "check_connections", lambda: checking.set() or checked.wait(PATIENCE_SECONDS))
    job = give(app.sleep_for_ever)
    assert checking.wait(PATIENCE_SECONDS)
    slots.kill(job.run_id)
    checked.set()
    outcome = slots.mailbox.get(timeout=PATIENCE_SECONDS)[1]
    assert (outcome.fate, outcome.reason) == (Fate.DIED, DeathReason.KILLED)


def test_lane_asks_its_thread_only_once_whether_it_is_tidy(slots, give, monkeypatch):
    """Going to another thread and back takes longer than most jobs."""
    calls = []
    call = slots_module.Lane.call
    monkeypatch.setattr(slots_module.Lane, "call", lambda lane, what: calls.append(what.__name__) or call(lane, what))
    monkeypatch.setattr(slots_module, "IDLE_SECONDS", 3600.0)
    slots.concurrency = 1
    for _ in range(3):
        give(app.arecord)
        assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
    assert calls == ["opened"]


@pytest.fixture
def consumer(consumer_of, slots):
    return consumer_of(slots)


def test_job_that_a_slot_had_taken_before_a_lapse_is_not_begun(slots, consumer, monkeypatch):
    """The process was frozen between two lines."""
    taken, thawed, begin = threading.Event(), threading.Event(), slots.begin

    def freeze(*given):
        taken.set()
        assert thawed.wait(PATIENCE_SECONDS)
        return begin(*given)

    monkeypatch.setattr(slots, "begin", freeze)
    job = claim_one(consumer.database, app.noop)
    consumer._prefetch.accept([job])
    assert taken.wait(PATIENCE_SECONDS)
    slots._shared.extend_lease(now() - 1)
    slots._shared.renew_lease(now() + 600)
    consumer._cycle()
    assert slots._shared.is_lease_valid()
    thawed.set()
    [(_, outcome)] = [slots.mailbox.get(timeout=PATIENCE_SECONDS)]
    assert outcome == Outcome(job, Fate.RELEASED)
    consumer._prefetch.accept([job._replace(lease_token=job.lease_token + 1)])
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED


def claim_one(queue, task):
    task.enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=1)
    return job


@pytest.fixture
def check(monkeypatch, give, slots):
    """Let the next check of idle connections wait for the test; yield what says that it has begun, and what ends it."""
    checking, checked = threading.Event(), threading.Event()

    def wait():
        if not checking.is_set():
            checking.set()
            assert checked.wait(PATIENCE_SECONDS)

    slots.concurrency = 1
    give(app.record)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
    give(app.arecord)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
    monkeypatch.setattr(slots_module, "check_connections", wait)
    monkeypatch.setattr(slots_module, "IDLE_SECONDS", -1.0)
    yield checking, checked
    checked.set()


@pytest.mark.parametrize("task", [app.noop, app.noop_async])
def test_job_can_be_taken_back_while_its_slot_checks_connections(slots, give, check, task):
    checking, checked = check
    job = give(task, cell=3)
    assert checking.wait(PATIENCE_SECONDS)
    assert slots.waiting() == 1
    assert slots.withdraw() == [(3, job)]
    checked.set()
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS) is None, "the consumer may claim for this slot again"
    again = give(task, cell=4)
    cell, outcome = slots.mailbox.get(timeout=PATIENCE_SECONDS)
    assert (cell, outcome.job, outcome.fate) == (4, again, Fate.SUCCEEDED)


def test_job_is_given_to_others_when_its_slot_waits_for_a_silent_server(slots, consumer, monkeypatch, check):
    monkeypatch.setattr("django_pgqueue.worker.prefetch.STALLED_SECONDS", 0.0)
    checking, checked = check
    job = claim_one(consumer.database, app.noop)
    consumer._prefetch.accept([job])
    assert checking.wait(PATIENCE_SECONDS)
    slots.concurrency = 0  # it claims nothing again
    eventually(lambda: consumer._cycle() or Job.objects.filter(pk=job.id, status="queued", attempts=0).exists())
    checked.set()


@pytest.mark.parametrize("task", [app.noop, app.noop_async])
def test_job_that_its_slot_cannot_begin_is_left_to_others(consumer, monkeypatch, check, task):
    """The consumer does not claim it again while the only slot waits for a silent server, and does so afterwards."""
    monkeypatch.setattr("django_pgqueue.worker.prefetch.STALLED_SECONDS", 0.0)
    checking, checked = check
    job = claim_one(consumer.database, task)
    consumer._prefetch.accept([job])
    assert checking.wait(PATIENCE_SECONDS)
    eventually(lambda: consumer._cycle() or Job.objects.filter(pk=job.id, status="queued", attempts=0).exists())
    assert consumer._prefetch.demand() == 0
    checked.set()
    eventually(lambda: consumer._collect(0.01) or consumer._cycle() or not Job.objects.filter(pk=job.id).exists())


@pytest.mark.parametrize("idle_seconds", [-1.0, 3600.0], ids=["idle", "busy"])
def test_lane_whose_thread_still_runs_what_a_job_left_gets_another(slots, give, monkeypatch, caplog, idle_seconds):
    released, left = threading.Event(), []

    async def leave_behind():
        left.append(asyncio.ensure_future(sync_to_async(released.wait)(PATIENCE_SECONDS)))
        await asyncio.sleep(0)  # it begins

    monkeypatch.setattr(slots_module, "IDLE_SECONDS", idle_seconds)
    monkeypatch.setattr(slots_module, "ANSWER_SECONDS", 0.1)
    slots.concurrency = 1
    give(app.arecord)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
    with monkeypatch.context() as patch:
        patch.setattr(app.noop_async, "func", leave_behind)
        give(app.noop_async)
        assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
    give(app.arecord)
    try:
        assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
    finally:
        released.set()
    assert "does not answer" in caplog.text


def test_query_of_a_lane_whose_thread_does_not_answer_is_cancelled(slots, give, monkeypatch, sql, caplog):
    """As after a time limit, which ends the coroutine, and not the thread in which it waits for the server."""
    running = "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'"
    left, counted, begun, note = [], [], threading.Event(), slots.note_abandoned_threads
    monkeypatch.setattr(slots, "note_abandoned_threads", lambda number: counted.append(number) or note(number))

    def wait():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(600)")

    async def leave_behind():
        left.append(asyncio.ensure_future(sync_to_async(wait)()))
        await asyncio.to_thread(begun.wait, PATIENCE_SECONDS)

    monkeypatch.setattr(slots_module, "ANSWER_SECONDS", 0.1)
    slots.concurrency = 1
    monkeypatch.setattr(app.noop_async, "func", leave_behind)
    give(app.noop_async)
    eventually(lambda: sql(f"{running} AND state = 'active'"))
    begun.set()
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.SUCCEEDED
    eventually(lambda: not sql(running))
    eventually(lambda: len(counted) == 2 and counted[-1] == 0)
    assert "does not answer" in caplog.text
    assert slots._shared.abandoned_threads() == 0
    assert isinstance(left[0].exception(), OperationalError)


def test_what_a_job_awaits_ends_in_its_own_context_when_a_test_ends_its_slots(queue, transactional_db, registry_of):
    """The coroutines that asgiref's sync_to_async returns set context variables when they are closed."""
    awaits, told = threading.Event(), contextvars.ContextVar("told", default="nothing")

    async def wait():
        try:
            awaits.set()
            await asyncio.get_running_loop().create_future()
        finally:
            told.set("by a job")

    shared = SharedState()
    shared.extend_lease(now() + 600)
    registry_of(wait).enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=1)
    with ended():
        slots = Slots(1, shared, stdlib_queue.SimpleQueue())
        shared.hold([0], [job])
        slots.accept(0, job)
        assert awaits.wait(PATIENCE_SECONDS)
    del slots
    gc.collect()
    assert told.get() == "nothing"
