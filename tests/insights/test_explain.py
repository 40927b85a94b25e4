"""Explanation and timeline of a job, in words, for every status."""

import datetime as dt
import re

import pytest
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import enqueue_many, kill, retry
from django_pgqueue.insights.explain import find, why
from django_pgqueue.insights.formatting import text_of
from django_pgqueue.insights.history import entries_of
from django_pgqueue.insights.timeline import lines, timeline
from django_pgqueue.jobs.ack import write
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import DeadJob, FinishedJob, Job, Queue, Worker
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import Reason

pytestmark = pytest.mark.django_db

HOUR = dt.timedelta(hours=1)
MINUTE = dt.timedelta(minutes=1)


def told(job_id: int) -> str:
    return "\n".join(text_of(sentence) for sentence in why(find(job_id, "default"), "default"))


def kinds(job_id: int) -> list[str]:
    return [step.kind for step in timeline(find(job_id, "default"))]


def events(job_id: int) -> list[str]:
    """Leave out the waits between: some of them are too short to be told of."""
    return [kind for kind in kinds(job_id) if kind not in {"wait", "backoff"}]


def steps(job_id: int) -> str:
    return "\n".join(lines(timeline(find(job_id, "default"))))


@pytest.fixture
def worker():
    def start(*queues, **values) -> Worker:
        values = {"lease_until": timezone.now() + HOUR, "concurrency": 2, "pid": 7, "host": "web-7", **values}
        return Worker.objects.create(supervisor_id=1, version="1", queues=list(queues), **values)

    return start


def fails(queue, job_id: int, *, fate=Fate.RETRIED, **values) -> None:
    """Let the next attempt of a job fail, after three seconds, as its worker tells it."""
    [job] = [job for job in claim(queue, "default", limit=100, worker_id=7) if job.id == job_id]
    error = {"kind": "failed", "error": "ValueError", "message": "no luck", "traceback": "Traceback"}
    [written] = [write(queue, [Outcome(job, fate, run_seconds=3.0, delay_seconds=60.0, error=error, **values)])]
    assert not written.stale


# Why


def test_queued_job_says_that_no_worker_is_alive(worker):
    job_id = app.noop.enqueue().id
    worker(lease_until=timezone.now() - MINUTE)
    assert "No worker is alive, so nothing starts. Start one: manage.py pgqueue_worker" in told(job_id)


def test_queued_job_says_that_no_worker_serves_its_queue_and_what_is_served(worker):
    job_id = app.noop.enqueue().id
    worker("mail", "-default")
    worker("x*")
    assert "No worker that is alive serves the queue 'default'. What is served: mail,-default; x*." in told(job_id)
    assert "Start one: manage.py pgqueue_worker --queues=default" in told(job_id)
    spaced = app.noop.using(queue="a b").enqueue().id
    assert "Start one: manage.py pgqueue_worker '--queues=a b'" in told(spaced)


def test_queued_job_says_that_the_workers_of_its_queue_are_leaving(worker):
    job_id = app.noop.enqueue().id
    worker("de*", stop_requested_at=timezone.now())
    assert "The workers that serve the queue 'default' have been asked to stop: web-7 7." in told(job_id)


def test_queued_job_counts_those_before_it_and_the_slots_that_are_taken(worker, queue):
    serving = worker("de*", concurrency=3)
    enqueue_many(app.noop.using(priority=5), [()] * 4)
    job_id = app.noop.enqueue().id
    claim(queue, "default", limit=2, worker_id=serving.pk)
    assert told(job_id).splitlines() == [
        "It may run, and waits for its turn.",
        "2 jobs of its queue come before it, by priority or time.",
        "1 worker process serves its queue; 2 of its 3 slots are taken.",
    ]
    claim(queue, "default", limit=1, worker_id=serving.pk)
    assert "All 3 slots of the worker process that serves its queue are taken." in told(job_id)


def test_queued_job_says_that_the_only_slot_is_taken(worker, queue):
    serving = worker(concurrency=1)
    app.noop.enqueue()
    claim(queue, "default", limit=1, worker_id=serving.pk)
    assert "The only slot of the worker process that serves its queue is taken." in told(app.noop.enqueue().id)


def test_queued_job_with_nothing_in_its_way_says_so(worker):
    worker()
    assert "Nothing holds it up" in told(app.noop.enqueue().id)


@pytest.mark.parametrize(
    "limits", [{"paused_by": "ann"}, {"max_running": 1}, {"rate_limit": 1, "rate_period_seconds": 60, "rate_burst": 1}]
)
def test_queued_job_that_its_queue_holds_up_does_not_say_that_nothing_does(worker, queue, limits):
    app.noop.enqueue()
    claim(queue, "default", limit=1, worker_id=worker().pk)
    now = timezone.now()
    Queue.objects.create(name="default", paused_at=now if "paused_by" in limits else None, tokens_at=now, **limits)
    assert "Nothing holds it up" not in told(app.noop.enqueue().id)


def test_queued_job_counts_no_further_than_the_cap(worker):
    worker()
    enqueue_many(app.noop.using(priority=5), [()] * 1002)
    assert "1,000+ jobs of its queue come before it" in told(app.noop.enqueue().id)


def test_queued_job_says_which_queues_its_workers_serve_first(worker):
    worker("mail", "bulk", "default")
    assert "They serve other queues first: bulk, mail." in told(app.noop.enqueue().id)
    worker("default")
    job_id = app.noop.enqueue().id
    assert "first" not in told(job_id)


def test_paused_queue_is_named_with_who_since_when_until_when_and_why(worker):
    worker()
    job_id = app.noop.enqueue().id
    Queue.objects.create(name="default", paused_at=timezone.now(), paused_by="ann", pause_reason="upgrade {x} %s")
    assert re.search(r"Its queue 'default' is paused by ann since \S+ \S+: upgrade \{x\} %s\.", told(job_id))
    Queue.objects.update(resume_at=timezone.now() + HOUR)
    assert re.search(r"since \S+ \S+, until \S+ \S+: upgrade", told(job_id))
    Queue.objects.update(resume_at=timezone.now() - HOUR)
    assert "paused" not in told(job_id)


def test_limits_of_the_queue_are_told_of_when_reached_and_when_not(worker, queue):
    serving = worker(concurrency=10)
    enqueue_many(app.noop, [()] * 3)
    Queue.objects.create(name="default", max_running=2)
    job_id = app.noop.enqueue().id
    assert "is limited, which does not hold it up now: 2 at once." in told(job_id)
    Job.objects.filter(pk__lt=job_id).update(status="running", lease_token=1, worker_id=serving.pk)
    assert "Its queue 'default' is limited to 2 running jobs, and 3 run: it waits until one ends." in told(job_id)
    Queue.objects.update(
        max_running=None, rate_limit=6, rate_period_seconds=60, rate_burst=1, tokens=0, tokens_at=timezone.now()
    )
    assert re.search(
        r"The rate of its queue 'default' is used up \(6/m, burst 1\): the next job may start in \d", told(job_id)
    )


def test_fair_key_says_that_keys_take_turns(worker):
    worker()
    first = app.noop.using(fair_key="ann").enqueue().id
    second = app.noop.using(fair_key="ann").enqueue().id
    assert "take turns: 0 with its key 'ann' come before it." in told(first)
    assert "take turns: 1 with its key 'ann' comes before it." in told(second)


def test_unknown_task_is_told_of_wherever_the_job_is(worker):
    worker()
    job_id = Job.objects.create(task="gone.tasks.x").pk
    assert "does not know the task 'gone.tasks.x'" in told(job_id)
    assert "Workers load the tasks.py of the apps in INSTALLED_APPS" in told(job_id)
    kill([job_id], by="eve")
    assert "does not know the task 'gone.tasks.x'" in told(job_id)


def test_scheduled_job_says_when_and_why_then(queue):
    later = app.noop.using(run_at=HOUR).enqueue().id
    assert re.search(r"It is due at \S+ \S+, as it was enqueued for\.", told(later))
    job_id = app.fail.enqueue().id
    fails(queue, job_id)
    assert "Attempt 1 of 3 has failed with ValueError. It backs off; the next is due at" in told(job_id)
    Job.objects.filter(pk=job_id).update(run_at=timezone.now() - MINUTE)
    assert "a worker will queue it within a second" in told(job_id)


def test_scheduled_job_that_asked_to_go_on_later_says_so():
    job_id = app.noop.using(run_at=HOUR).enqueue().id
    Job.objects.filter(pk=job_id).update(started_at=timezone.now())
    assert "and asked to go on later" in told(job_id)
    Job.objects.filter(pk=job_id).update(task="gone")
    assert "by a worker that has no task of that name" in told(job_id)


def test_deadline_and_a_kill_that_came_too_late_are_told_of():
    job_id = app.noop.using(expires=3600).enqueue().id
    Job.objects.filter(pk=job_id).update(cancel_requested_at=timezone.now(), cancelled_by="eve")
    assert "it dies as expired" in told(job_id)
    assert "eve has asked it to stop while it ran" in told(job_id)


def test_waiting_job_names_those_that_have_the_slots_of_its_key():
    key = {"task": "x", "concurrency_key": "k", "concurrency_limit": 2}
    first = Job.objects.create(**key, concurrency_slot=1).pk
    waiting = Job.objects.create(**key, status="waiting").pk
    assert "A slot of its concurrency key 'k' is free" in told(waiting)
    second = Job.objects.create(**key, concurrency_slot=2).pk
    assert f"All 2 slots of its concurrency key 'k' are taken, by the jobs {first}, {second}." in told(waiting)
    behind = Job.objects.create(**key, status="waiting").pk
    assert "1 job waits before it for that key." in told(behind)
    assert "before it" not in told(waiting)


def test_waiting_job_of_a_key_for_one_names_the_one():
    key = {"task": "x", "concurrency_key": "k", "concurrency_limit": 1}
    holder = Job.objects.create(**key, concurrency_slot=1).pk
    waiting = Job.objects.create(**key, status="waiting").pk
    assert f"Only one job with the concurrency key 'k' may run at a time: job {holder} has the slot." in told(waiting)


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
    reserved = Job.objects.create(task="x", status="reserved", unique_key="k", unique_scope="live").pk
    assert "Only its unique key 'k' is held, until" in told(reserved)
    assert kinds(reserved) == ["enqueued", "finished"]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason.EXHAUSTED, "Attempt 3, its last one, has failed with ValueError."),
        (Reason.DISCARDED, "It ended with ValueError"),
        (Reason.LOST, "Look for crashes and memory limits"),
        (Reason.KILLED, "It was killed by eve."),
        (Reason.EXPIRED, "It was not started before its deadline."),
        (Reason.UNKNOWN_TASK, "No worker knew its task for a day."),
        (Reason.SUPERSEDED, "job 4711 had its unique key"),
    ],
)
def test_dead_job_says_why_it_died_and_what_to_do(reason, words):
    job_id = app.noop.using(unique_key="k").enqueue().id
    kill([job_id], by="eve")
    errors = [{"kind": "failed", "error": "ValueError", "attempt": 3, "conflict": 4711}]
    DeadJob.objects.filter(pk=job_id).update(reason=reason, errors=errors, attempts=3)
    assert words in told(job_id)
    assert told(job_id).endswith(f"manage.py pgqueue_jobs retry {job_id}")
    holder = app.noop.using(unique_key="k").enqueue().id
    assert f"The live job {holder} has its unique key 'k'" in told(job_id)


# Timeline


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


@pytest.mark.parametrize(
    "errors", [[], [{}], ["text"], {"error": "x"}, [None], [{"at": "9999-99-99", "attempt": "x"}], [{"at": 3}]], ids=str
)
def test_odd_histories_do_not_break_the_story(errors):
    job_id = app.noop.enqueue().id
    kill([job_id], by="eve")
    DeadJob.objects.filter(pk=job_id).update(errors=errors)
    assert kinds(job_id)[-1] == "died"
    assert told(job_id)


def test_story_is_told_without_time_zones_too(settings):
    at = "2026-01-02T03:00:00+00:00"
    job_id = app.noop.enqueue().id
    Job.objects.filter(pk=job_id).update(errors=[{"kind": "failed", "error": "ValueError", "attempt": 1, "at": at}])
    settings.USE_TZ = False
    assert "failed" in kinds(job_id)
    assert "It may run" in told(job_id) or "No worker" in told(job_id)
