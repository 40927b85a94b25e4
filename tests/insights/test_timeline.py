"""The timeline of a job, in words, for every status."""

import datetime as dt
import re

import pytest
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import kill, retry
from django_pgqueue.insights.explain import find
from django_pgqueue.insights.history import entries_of
from django_pgqueue.insights.timeline import timeline
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import FinishedJob, Job
from django_pgqueue.records import Fate
from django_pgqueue.states import Reason
from tests.support.stories import HOUR, MINUTE, events, fails, kinds, steps, told

pytestmark = pytest.mark.django_db


def test_timeline_of_a_job_that_fails_backs_off_and_dies(queue):
    job_id = app.fail.enqueue().id
    fails(queue, job_id)
    assert events(job_id) == ["enqueued", "failed"]
    assert kinds(job_id)[-1] == "backoff"
    assert "Attempt 1 failed with ValueError" in steps(job_id)
    assert re.search(r"Backs off; due again at \S+ \S+ \(1 min\)$", steps(job_id))
    [entry] = entries_of(Job.objects.get(pk=job_id).errors)
    assert entry.run_seconds == 3.0
    assert entry.begun_at is not None
    Job.objects.filter(pk=job_id).update(status="queued", run_at=timezone.now())
    fails(queue, job_id, fate=Fate.DIED, reason=Reason.DISCARDED)
    assert events(job_id) == ["enqueued", "failed", "failed", "died"]
    assert "Died (discarded), " in steps(job_id)


def test_timeline_tells_what_staff_did_in_between(queue):
    job_id = app.fail.enqueue().id
    fails(queue, job_id, fate=Fate.DIED, reason=Reason.DISCARDED)
    retry([job_id], by="ann")
    assert events(job_id) == ["enqueued", "failed", "note"]
    assert kinds(job_id)[-1] == "wait"
    assert "died (discarded), retried by ann" in steps(job_id)
    assert re.search(r"Waits for its turn \([\d.]+ m?s\)$", steps(job_id))


@pytest.mark.parametrize("fate", [Fate.RETRIED, Fate.DIED])
def test_timeline_tells_for_how_long_a_job_was_dead(queue, fate, monkeypatch):
    monkeypatch.setattr("django_pgqueue.insights.timeline.SHORTEST", 0.0)
    job_id = app.fail.using(max_attempts=9).enqueue().id
    fails(queue, job_id, fate=fate, **({"reason": Reason.DISCARDED} if fate is Fate.DIED else {}))
    if fate is Fate.RETRIED:
        kill([job_id], by="eve")
    retry([job_id], by="ann")
    before = steps(job_id).split(", retried by ann")[0].splitlines()
    assert "Was dead (" in before[-2]
    assert sum("Backed off" in line for line in before) == (fate is Fate.RETRIED)


def test_timeline_tells_after_the_death_what_was_done_to_the_dead():
    job_id = app.noop.using(unique_key="k").enqueue().id
    kill([job_id], by="eve")
    holder = app.noop.using(unique_key="k").enqueue().id
    retry([job_id], by="ann")
    assert events(job_id) == ["enqueued", "died", "note"]
    assert f"not retried by ann: job {holder} has its unique key" in steps(job_id).splitlines()[-1]


def test_timeline_of_a_lost_worker_and_of_attempts_that_are_not_kept():
    at = "2026-01-02T03:0{}:00+00:00"
    errors = [
        {"kind": "lost", "worker": "web-7 7", "attempt": 1, "worker_id": 1, "at": at.format(1)},
        {"kind": "failed", "error": "ValueError", "attempt": 14, "at": at.format(5), "started_at": at.format(2)},
    ]
    enqueued = dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)
    times = {"enqueued_at": enqueued, "first_started_at": enqueued + MINUTE / 2}
    job_id = Job.objects.create(task="x", errors=errors, attempts=14, max_attempts=20, **times).pk
    assert kinds(job_id)[:5] == ["enqueued", "wait", "lost", "gap", "failed"]
    assert "Attempt 1: its worker died (30 s)" in steps(job_id)
    assert "Attempts 2 to 13 are not kept in the history" in steps(job_id)
    assert "Attempt 14 failed with ValueError (3 min)" in steps(job_id)


def test_timeline_of_a_finished_job_splits_the_delay_from_the_wait(sql):
    at = dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)
    now = timezone.now()
    values = {"attempts": 1, "priority": 0, "lost": 0, "backend": "", "args": [], "kwargs": {}, "metadata": {}}
    job_id = FinishedJob.objects.create(
        id=4711, task="x", queue="q", enqueued_at=at, run_at=at + HOUR, first_started_at=at + HOUR + MINUTE,
        started_at=at + HOUR + MINUTE, finished_at=now, worker_id=1, run_seconds=0.25, errors=[], **values,
    ).pk  # fmt: skip
    assert kinds(job_id) == ["enqueued", "wait", "wait", "succeeded", "finished"]
    assert "Put off until it was due (1 h)" in steps(job_id)
    assert "Waited for its turn (1 min)" in steps(job_id)
    assert "Attempt 1 succeeded (250 ms)" in steps(job_id)
    assert "Attempt 1 succeeded after 250 ms." in told(job_id)


def test_timeline_of_a_running_job_goes_on(queue, worker):
    job_id = app.noop.enqueue().id
    claim(queue, "default", limit=1, worker_id=worker().pk)
    assert events(job_id) == ["enqueued", "running"]
    assert timeline(find(job_id, "default"))[-1].is_now


def test_timeline_of_a_job_that_is_due_later():
    job_id = app.noop.using(run_at=HOUR).enqueue().id
    assert kinds(job_id) == ["enqueued", "wait"]
    assert re.search(r"Due later, at \S+ \S+ \(1 h\)", steps(job_id))
