"""Explanation of a job, in words, for every status."""

import re

import pytest
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.insights.explain import explanation_of, find, text_of
from django_pgqueue.jobs import kill
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import DeadJob, Job, Worker
from django_pgqueue.states import DeathReason
from tests.support.stories import HOUR, MINUTE, fails, kinds, told

pytestmark = pytest.mark.django_db


def test_scheduled_job_says_when_and_why_then(queue):
    later = app.noop.using(delay=HOUR).enqueue().id
    assert re.search(r"It is due at \S+ \S+, as it was enqueued for\.", told(later))
    job_id = app.fail.enqueue().id
    fails(queue, job_id)
    assert "Attempt 1 of 3 has failed with ValueError. It backs off; the next is due at" in told(job_id)
    Job.objects.filter(pk=job_id).update(run_at=timezone.now() - MINUTE)
    assert "a worker will queue it within a second" in told(job_id)


def test_scheduled_job_that_snoozed_says_so(queue):
    job_id = app.fail.enqueue().id
    fails(queue, job_id)
    Job.objects.filter(pk=job_id).update(started_at=timezone.now() + MINUTE, snoozes=1)
    assert re.search(r"It ran at \S+ \S+ and snoozed, as it has done 1 time\. Due again at", told(job_id))
    Job.objects.filter(pk=job_id).update(snoozes=7)
    assert "and snoozed, as it has done 7 times. Due again at" in told(job_id)


def test_scheduled_job_that_was_put_back_says_so():
    job_id = app.noop.using(delay=HOUR).enqueue().id
    Job.objects.filter(pk=job_id).update(started_at=timezone.now())
    assert "and put it back; that is no attempt" in told(job_id)
    Job.objects.filter(pk=job_id).update(task="gone")
    assert "by a worker that has no task of that name" in told(job_id)


def test_deadline_and_a_kill_that_came_too_late_are_told_of():
    job_id = app.noop.using(expires=3600).enqueue().id
    Job.objects.filter(pk=job_id).update(kill_requested_at=timezone.now(), killed_by="eve")
    assert "it dies as expired" in told(job_id)
    assert "eve has asked it to stop while it ran" in told(job_id)


def test_running_job_tells_of_its_worker_and_its_lease(worker, queue):
    serving = worker()
    job_id = app.noop.using(timeout=60).enqueue().id
    claim(queue, "default", limit=1, worker_id=serving.pk)
    assert re.search(r"Attempt 1 of 10 runs since \S+ \S+, for [\d.]+ m?s, on worker web-7 7\.", told(job_id))
    assert "The worker is alive: its last heartbeat was" in told(job_id)
    assert "It may take 1 min, and is interrupted at" in told(job_id)
    kill([job_id], by="eve")
    assert "eve has asked it to stop at" in told(job_id)
    Worker.objects.update(lease_until=timezone.now() - MINUTE, heartbeat_at=timezone.now() - MINUTE)
    assert re.search(r"The worker has been silent for 1 min( \d+ s)?, and its lease has ended at", told(job_id))
    Worker.objects.all().delete()
    assert "That worker is not registered any more." in told(job_id)
    Job.objects.update(lost=2)
    assert "Its worker has died 2 times; with 3 it goes to the dead jobs." in told(job_id)


def test_held_job_says_what_it_holds_until_when():
    reserved = Job.objects.create(task="x", status="reserved", unique_key="k", unique_until="end").pk
    assert "Only its unique key 'k' is held, until" in told(reserved)
    assert kinds(reserved) == ["enqueued", "ended"]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (DeathReason.EXHAUSTED, "Attempt 3, its last one, has failed with ValueError."),
        (DeathReason.DISCARDED, "It ended with ValueError"),
        (DeathReason.LOST, "Look for crashes and memory limits"),
        (DeathReason.KILLED, "It was killed by eve."),
        (DeathReason.EXPIRED, "It was not started before its deadline."),
        (DeathReason.UNKNOWN_TASK, "No worker knew its task for a day."),
        (DeathReason.SUPERSEDED, "job 4711 had its unique key"),
    ],
)
def test_dead_job_says_why_it_died_and_what_to_do(reason, words):
    job_id = app.noop.using(unique_key="k").enqueue().id
    kill([job_id], by="eve")
    errors = [{"kind": "failed", "error": "ValueError", "attempt": 3, "conflict": 4711}]
    DeadJob.objects.filter(pk=job_id).update(reason=reason, errors=errors, attempts=3)
    assert words in told(job_id)
    assert told(job_id).endswith(f"manage.py pgqueue_jobs retry {job_id}")
    assert (f"pgqueue_jobs try {job_id}" in told(job_id)) is (reason in {"exhausted", "discarded"})
    holder = app.noop.using(unique_key="k").enqueue().id
    assert f"The live job {holder} has its unique key 'k'" in told(job_id)


@pytest.mark.parametrize(
    "errors", [[], [{}], ["text"], {"error": "x"}, [None], [{"at": "9999-99-99", "attempt": "x"}], [{"at": 3}]], ids=str
)
def test_odd_histories_do_not_break_the_story(errors):
    job_id = app.noop.enqueue().id
    kill([job_id], by="eve")
    DeadJob.objects.filter(pk=job_id).update(errors=errors)
    assert kinds(job_id)[-1] == "died"
    assert told(job_id)


def test_log_lines_are_part_of_the_story():
    job_id = app.noop.enqueue().id
    Job.objects.filter(pk=job_id).update(progress={"log": "one\ntwo", "attempt": 1})
    story = explanation_of(find(job_id, "default"), "default")
    assert (story["progress"], story["log"]) == (None, "one\ntwo")
    assert "log:\n    one\n    two" in "\n".join(text_of(story))


def test_story_is_told_without_time_zones_too(settings):
    at = "2026-01-02T03:00:00+00:00"
    job_id = app.noop.enqueue().id
    Job.objects.filter(pk=job_id).update(errors=[{"kind": "failed", "error": "ValueError", "attempt": 1, "at": at}])
    settings.USE_TZ = False
    assert "failed" in kinds(job_id)
    assert "It may run" in told(job_id) or "No worker" in told(job_id)
    assert list(explanation_of(find(job_id, "default"), "default")["times"]) == ["enqueued_at", "run_at"]


def test_times_stand_in_their_order_and_what_workers_alone_need_is_left_out(queue, worker):
    job_id = app.noop.using(timeout=60, unique_key="k", expires=2 * HOUR).enqueue().id
    claim(queue, "default", limit=1, worker_id=worker().pk)
    kill([job_id], by="eve")
    story = explanation_of(find(job_id, "default"), "default")
    started = ["first_started_at", "started_at"]
    assert list(story["times"]) == ["enqueued_at", "run_at", *started, "lease_until", "expires_at"]
    assert story["options"] == {
        "killed_by": "eve",
        "concurrency_strict": False,
        "keep": True,
        "lease_seconds": 30,
        "lost": 0,
        "snoozes": 0,
        "timeout_seconds": 60,
        "unique_hold_seconds": 0,
        "unique_key": "k",
        "unique_until": "end",
    }
