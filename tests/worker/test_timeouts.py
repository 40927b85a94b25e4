"""Time limits and kills, in slots of this process: what is interrupted, and that nothing else is."""

import contextlib
import logging
import random
import sys
import threading
import time
from types import SimpleNamespace

import pytest

import tests.app.tasks as app
from django_pgqueue import current_job, registry, tasks
from django_pgqueue.exceptions import JobInterrupted, JobKilled, TimeLimitExceeded
from django_pgqueue.jobs import interrupts as border_module
from django_pgqueue.jobs.actions import kill
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.interrupts import ThreadInterrupts
from django_pgqueue.models import Job
from django_pgqueue.records import Fate
from django_pgqueue.states import Reason
from django_pgqueue.worker import worker_process as process_module
from django_pgqueue.worker.child import ChildConfig
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.shared_state import now
from tests.app.models import Mark
from tests.support.claimed import job as job_of
from tests.support.waiting import PATIENCE_SECONDS, beside, eventually

LIMIT = f"{TimeLimitExceeded.__module__}.TimeLimitExceeded"


class Visit:
    """A thread that goes into user code and comes back when it is told to, or is interrupted."""

    def __init__(self, user_code):
        self.current = CurrentJob(job_of())
        self.border, self.raised = None, None
        self.is_inside = threading.Event()
        self._user_code = user_code

    def __call__(self):
        self.border = ThreadInterrupts()
        try:
            self.border.call(self.current, self._enter, [], {})
        except BaseException as error:
            self.border.leave()
            self.raised = error

    def _enter(self):
        self.is_inside.set()
        self._user_code()


def spin_until(event):
    """Wait in Python code."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not event.is_set() and time.monotonic() < deadline:
        time.sleep(0.001)


def test_interruption_reaches_the_run_it_is_meant_for_and_no_other():
    done = threading.Event()
    visit = Visit(lambda: spin_until(done))
    with beside(visit):
        assert visit.is_inside.wait(PATIENCE_SECONDS)
        other = CurrentJob(job_of(id=2))
        assert not visit.border.interrupt(other, JobKilled)
        done.set()
    assert (visit.raised, visit.border.was_hit) == (None, False)
    visit = Visit(lambda: spin_until(threading.Event()))
    with beside(visit):
        assert visit.is_inside.wait(PATIENCE_SECONDS)
        assert visit.border.interrupt(visit.current, JobKilled)
    assert isinstance(visit.raised, JobKilled)
    assert visit.border.was_hit


def test_run_that_has_come_back_is_not_interrupted():
    visit = Visit(lambda: None)
    with beside(visit):
        pass
    assert not visit.border.interrupt(visit.current, JobKilled)


def test_connection_of_the_next_run_is_left_alone(monkeypatch):
    """The run may be over, and the next one at work with a new connection, before its queries are broken off."""
    wrapper, broken_off = SimpleNamespace(connection="of this run"), []
    monkeypatch.setattr(border_module, "_raise_in", lambda *_: vars(wrapper).update(connection="of the next"))
    monkeypatch.setattr(border_module, "_break_off", broken_off.append)
    border, current = ThreadInterrupts([wrapper]), CurrentJob(job_of())
    border.call(current, lambda: border.interrupt(current, JobKilled), [], {})
    assert broken_off == ["of this run"]


def test_run_that_comes_back_while_an_interrupt_aims_at_it_goes_on_unhurt():
    """The thread that aims has looked, and is about to raise: the run waits for that. Nothing that follows is hit."""
    survived, has_shot = [], threading.Event()

    def visit():
        border, current = ThreadInterrupts(), CurrentJob(job_of())
        border._is_being_aimed_at = border._is_aimed_at = True
        threading.Timer(0.1, shoot, [border]).start()
        with contextlib.suppress(JobInterrupted):
            border.call(current, lambda: None, [], {})
        border.leave()
        spin_until(has_shot)
        survived.append("what comes after")

    def shoot(border):
        border_module._raise_in(border._thread_id, JobKilled)
        border._is_being_aimed_at = False
        has_shot.set()

    with beside(visit):
        pass
    assert survived == ["what comes after"]


def test_thread_that_cleans_up_after_an_interruption_is_not_interrupted_again():
    cleaning, cleaned = threading.Event(), threading.Event()

    def user_code():
        try:
            spin_until(threading.Event())
        finally:
            cleaning.set()
            spin_until(cleaned)
            cleaned.clear()

    visit = Visit(user_code)
    with beside(visit):
        assert visit.is_inside.wait(PATIENCE_SECONDS)
        assert visit.border.interrupt(visit.current, TimeLimitExceeded)
        assert cleaning.wait(PATIENCE_SECONDS)
        assert visit.border.interrupt(visit.current, TimeLimitExceeded)
        cleaned.set()
    assert isinstance(visit.raised, TimeLimitExceeded)
    assert not cleaned.is_set(), "it was cleaned up to the end"


@pytest.fixture
def handler():
    """A logging handler that takes its lock for each record, as every one does, and has nothing to say."""
    logger, handler = logging.getLogger("alone"), Silent()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    handler.createLock()  # if a thread has kept the old one, the end of logging would wait for it


def test_lock_of_logging_is_not_left_taken(handler):
    """A thread that waits for a handler's lock would be interrupted when it has it, and has not yet seen to its end."""
    visit = Visit(lambda: (logging.getLogger("alone").warning("x"), spin_until(threading.Event())))
    handler.acquire()
    with beside(visit):
        try:
            assert visit.is_inside.wait(PATIENCE_SECONDS)
            eventually(lambda: in_logging(visit.border._thread_id))
            assert not visit.border.interrupt(visit.current, JobKilled)
        finally:
            handler.release()
        eventually(lambda: visit.border.interrupt(visit.current, JobKilled))
    assert isinstance(visit.raised, JobKilled)
    assert handler.lock.acquire(timeout=1), "a thread has kept it"
    handler.release()


def in_logging(thread_id):
    return sys._current_frames()[thread_id].f_code.co_filename == logging.__file__


class Silent(logging.Handler):
    def emit(self, record):
        pass


@pytest.fixture
def let_time_be_over(slots):
    """Wait until a job with a time limit has begun to do what it does, and let its time be over."""

    def run(job):
        eventually(lambda: Mark.objects.filter(job_id=job.id, label="start").exists())
        [current] = [current for one, current, _ in slots._running.values() if one.id == job.id]
        current.stop_at = time.monotonic()
        slots._limits.mind(current)

    return run


def test_swallowed_interruption_is_repeated(slots, give, let_time_be_over):
    job = give(app.swallow.using(timeout=600), args=[1])
    let_time_be_over(job)
    outcome = slots.outbox.get(timeout=PATIENCE_SECONDS)[1]
    assert (outcome.job, outcome.fate, outcome.error["error"]) == (job, Fate.RETRIED, LIMIT)
    assert Mark.objects.filter(label="swallowed").count() == 2


def test_cancel_that_is_swallowed_is_repeated(slots, give, let_time_be_over):
    job = give(app.aswallow.using(timeout=600), args=[1])
    let_time_be_over(job)
    outcome = slots.outbox.get(timeout=PATIENCE_SECONDS)[1]
    assert (outcome.job, outcome.fate, outcome.error["error"]) == (job, Fate.RETRIED, LIMIT)


def test_connection_that_was_in_use_in_an_interrupted_run_is_not_used_again(slots, give):
    slots.concurrency = 1
    give(app.backend_pid)
    before = slots.outbox.get(timeout=PATIENCE_SECONDS)[1].result
    give(app.spin.using(timeout=1), args=[60])
    assert slots.outbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.RETRIED
    give(app.backend_pid)
    assert slots.outbox.get(timeout=PATIENCE_SECONDS)[1].result not in (before, "null")


def test_killed_job_has_a_moment_to_see_it_for_itself(slots, give):
    job = give(app.until_cancelled, args=[60])
    eventually(lambda: Mark.objects.filter(label="start").exists())
    slots.cancel(job.run_id)
    outcome = slots.outbox.get(timeout=PATIENCE_SECONDS)[1]
    assert (outcome.reason, outcome.error["message"]) == (Reason.KILLED, "cancelled")


def test_job_that_is_killed_before_a_slot_begins_it_never_runs(slots, give):
    first, second = give(app.spin, cell=0, args=[60]), give(app.spin, cell=1, args=[60])
    eventually(lambda: Mark.objects.filter(label="start").count() == 2)
    third = give(app.record, cell=2, args=["third"])
    slots.cancel(third.run_id)
    slots.cancel(first.run_id)
    slots.cancel(second.run_id)
    outcomes = [slots.outbox.get(timeout=PATIENCE_SECONDS)[1] for _ in range(3)]
    assert {(outcome.job, outcome.reason) for outcome in outcomes} == {
        (job, Reason.KILLED) for job in (first, second, third)
    }
    assert not Mark.objects.filter(label="third").exists()


def test_job_that_fails_while_it_is_being_killed_is_claimed_to_die(queue, slots, give):
    """Its worker has not heard of it: the failure is written, and a retry is due."""
    job_id = app.record.using(timeout=7).enqueue("x").id
    claim(queue, "default", limit=1, worker_id=1)
    assert kill([job_id], by="eve").requested == [job_id]
    Job.objects.update(status="queued", lease_token=0, worker_id=0)
    [job] = claim(queue, "default", limit=1, worker_id=1)
    assert job.was_killed
    slots.accept(0, job)
    outcome = slots.outbox.get(timeout=PATIENCE_SECONDS)[1]
    assert (outcome.fate, outcome.reason, Mark.objects.count()) == (Fate.DIED, Reason.KILLED, 0)


def test_jobs_over_their_time_by_a_hair_hit_no_other_job(slots):
    """Limits around the very duration of the jobs; beside them jobs without one, in the same slots."""
    registry._registry["tests.brief"] = tasks.Task(brief, name="tests.brief", options=tasks.Options())
    rng, total = random.Random(4), 1200
    jobs = [
        job_of(id=number + 1, task="tests.brief", timeout_seconds=rng.choice([0, *[rng.uniform(0.0005, 0.004)] * 3]))
        for number in range(total)
    ]
    try:
        for cell, job in enumerate(jobs):
            slots.accept(cell, job)
        outcomes = [slots.outbox.get(timeout=PATIENCE_SECONDS)[1] for _ in jobs]
    finally:
        del registry._registry["tests.brief"]
    assert sorted(outcome.job.id for outcome in outcomes) == list(range(1, total + 1))
    interrupted = [outcome for outcome in outcomes if outcome.fate is Fate.RETRIED]
    assert all(outcome.fate in (Fate.SUCCEEDED, Fate.RETRIED) for outcome in outcomes)
    assert {outcome.error["error"] for outcome in interrupted} == {LIMIT}
    assert all(outcome.job.timeout_seconds for outcome in interrupted)
    assert 0 < len(interrupted) < total
    assert slots._running == {}
    assert sum(thread.name.startswith("pgqueue-slot") and thread.is_alive() for thread in threading.enumerate()) >= 2


def brief() -> None:
    """Two milliseconds of Python; it must be interrupted for the job that runs."""
    mine = current_job().id
    deadline = time.monotonic() + 0.002
    try:
        while time.monotonic() < deadline:
            sum(range(20))
    except TimeLimitExceeded:
        assert current_job().id == mine
        assert current_job().is_overdue
        raise


@pytest.fixture
def process(monkeypatch):
    """A process that is not started, whose shared state the test writes; its supervisor has no patience with it."""
    monkeypatch.setattr(process_module, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(process_module, "MOMENT_SECONDS", 0.0)
    process = process_module.WorkerProcess(ChildConfig(7, (), 2, 1), WorkerConfig())
    process.shared.extend_lease(now() + 600)
    yield process
    process._orders_read.close()
    process._orders.close()


def test_outcome_that_waits_to_be_written_is_no_job_that_does_not_stop(process):
    """As while the database is away: the process must live to write it."""
    late, killed = job_of(id=1, lease_token=8), job_of(id=2, lease_token=8)
    process.shared.hold([0, 1], [late, killed])
    process.killed = frozenset({killed.run_id})
    process.shared.limit(0, late.run_id, time.monotonic() - 1)
    assert process.ignoring_stop() == set(), "not begun"
    process.shared.start(0)
    process.shared.start(1)
    assert process.ignoring_stop() == {late.run_id, killed.run_id}
    process.shared.end(0)
    process.shared.end(1)
    assert process.ignoring_stop() == set()
    assert process.shared.started() == {late.run_id, killed.run_id}


def test_time_limit_of_the_last_job_in_a_cell_is_not_that_of_the_next(process):
    first, second = job_of(id=1, lease_token=8), job_of(id=2, lease_token=8)
    process.shared.hold([0], [first])
    process.shared.limit(0, first.run_id, time.monotonic() - 1)
    process.shared.hold([0], [second])
    process.shared.start(0)
    assert process.overdue() == set()


def test_process_is_ended_when_only_deaf_jobs_are_left_or_others_have_had_the_grace(process):
    deaf, other = job_of(id=1, lease_token=8), job_of(id=2, lease_token=8)
    process.shared.hold([0, 1], [deaf, other])
    process.shared.start(0)
    process.shared.start(1)
    assert not process.is_beyond_stopping({deaf.run_id}, 0.0), "it was not told to leave"
    assert process.request_stop()
    assert not process.request_stop(), "known already"
    assert process.is_leaving
    assert not process.is_beyond_stopping({deaf.run_id}, 600.0)
    assert process.is_beyond_stopping({deaf.run_id}, 0.0)
    process.shared.end(1)
    assert not process.is_beyond_stopping({deaf.run_id}, 600.0), "its outcome is to be written"
    process.shared.free([1])
    assert process.is_beyond_stopping({deaf.run_id}, 600.0)


def test_grace_of_a_process_to_be_ended_does_not_run_out_while_the_database_is_away(process):
    other = job_of(id=2, lease_token=8)
    process.shared.hold([0], [other])
    process.shared.start(0)
    process.request_stop()
    process._given_up_at -= 1000
    assert process.is_beyond_stopping({5}, 600.0)
    process.shared.extend_lease(0.0)
    process.request_stop()
    assert not process.is_beyond_stopping({5}, 600.0)
