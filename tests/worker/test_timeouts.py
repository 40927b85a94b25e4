"""Time limits and kills of jobs in slots of this process: repeated where swallowed, and no other job is hit."""

import random
import threading
import time

import pytest

import tests.app.tasks as app
from django_pgqueue import current_job, registry, tasks
from django_pgqueue.exceptions import JobTimeout
from django_pgqueue.jobs import kill
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.interrupts import ThreadInterrupts
from django_pgqueue.models import Job
from django_pgqueue.records import Fate
from django_pgqueue.states import DeathReason
from django_pgqueue.worker import timeouts
from tests.app.models import Mark
from tests.support.claimed import job as job_of
from tests.support.waiting import PATIENCE_SECONDS, eventually

LIMIT = f"{JobTimeout.__module__}.JobTimeout"


@pytest.fixture
def let_time_be_over(slots, monkeypatch):
    """Wait until a job with a time limit has begun to do what it does, and let its time be over."""
    monkeypatch.setattr(timeouts, "PATIENCE_SECONDS", PATIENCE_SECONDS)

    def run(job):
        eventually(lambda: Mark.objects.filter(job_id=job.id, label="start").exists())
        [current] = [current for one, current, _ in slots._running.values() if one.id == job.id]
        current.stop_at = time.monotonic()
        slots._limits.mind(current)

    return run


def test_swallowed_interruption_is_repeated(slots, give, let_time_be_over):
    job = give(app.swallow.using(timeout=600), args=[1])
    let_time_be_over(job)
    outcome = slots.mailbox.get(timeout=PATIENCE_SECONDS)[1]
    assert (outcome.job, outcome.fate, outcome.error["error"]) == (job, Fate.RETRIED, LIMIT)
    assert Mark.objects.filter(label="swallowed").count() == 2


def test_cancel_that_is_swallowed_is_repeated(slots, give, let_time_be_over):
    job = give(app.aswallow.using(timeout=600), args=[1])
    let_time_be_over(job)
    outcome = slots.mailbox.get(timeout=PATIENCE_SECONDS)[1]
    assert (outcome.job, outcome.fate, outcome.error["error"]) == (job, Fate.RETRIED, LIMIT)


def test_connection_that_was_in_use_in_an_interrupted_run_is_not_used_again(slots, give):
    slots.concurrency = 1
    give(app.backend_pid)
    before = slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].result
    give(app.spin.using(timeout=1), args=[60])
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].fate is Fate.RETRIED
    give(app.backend_pid)
    assert slots.mailbox.get(timeout=PATIENCE_SECONDS)[1].result not in (before, "null")


def test_killed_job_has_a_moment_to_see_it_for_itself(slots, give, monkeypatch):
    monkeypatch.setattr(ThreadInterrupts, "courtesy_seconds", PATIENCE_SECONDS)
    job = give(app.until_kill_requested, args=[60])
    eventually(lambda: Mark.objects.filter(label="start").exists())
    slots.kill(job.run_id)
    outcome = slots.mailbox.get(timeout=PATIENCE_SECONDS)[1]
    assert (outcome.reason, outcome.error["message"]) == (DeathReason.KILLED, "cancelled")


def test_job_that_is_killed_before_a_slot_begins_it_never_runs(slots, give):
    first, second = give(app.spin, cell=0, args=[60]), give(app.spin, cell=1, args=[60])
    eventually(lambda: Mark.objects.filter(label="start").count() == 2)
    third = give(app.record, cell=2, args=["third"])
    slots.kill(third.run_id)
    slots.kill(first.run_id)
    slots.kill(second.run_id)
    outcomes = [slots.mailbox.get(timeout=PATIENCE_SECONDS)[1] for _ in range(3)]
    assert {(outcome.job, outcome.reason) for outcome in outcomes} == {
        (job, DeathReason.KILLED) for job in (first, second, third)
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
    outcome = slots.mailbox.get(timeout=PATIENCE_SECONDS)[1]
    assert (outcome.fate, outcome.reason, Mark.objects.count()) == (Fate.DIED, DeathReason.KILLED, 0)


def test_jobs_over_their_time_by_a_hair_hit_no_other_job(slots):
    """Limits around the very duration of the jobs; beside them jobs without one, in the same slots."""
    registry._registry["tests.brief"] = tasks.make(brief, name="tests.brief")
    rng, total = random.Random(4), 1200
    jobs = [
        job_of(id=number + 1, task="tests.brief", timeout_seconds=rng.choice([0, *[rng.uniform(0.0005, 0.004)] * 3]))
        for number in range(total)
    ]
    try:
        for cell, job in enumerate(jobs):
            slots.accept(cell, job)
        outcomes = [slots.mailbox.get(timeout=PATIENCE_SECONDS)[1] for _ in jobs]
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
    except JobTimeout:
        assert current_job().id == mine
        assert current_job().is_timed_out
        raise
