"""Of a job that waits is told all that stands before it."""

import re

import pytest
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.jobs import kill
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job, Queue
from tests.support.stories import HOUR, MINUTE, told

pytestmark = pytest.mark.django_db


def test_queued_job_says_that_no_worker_is_alive(worker):
    job_id = app.noop.enqueue().id
    worker(lease_until=timezone.now() - MINUTE)
    assert "No worker is alive, so nothing starts. Start one: manage.py pgqueue_worker" in told(job_id)


def test_queued_job_says_that_no_worker_serves_its_queue_and_what_is_served(worker):
    job_id = app.noop.enqueue().id
    worker("mail", "-default")
    worker("x*")
    assert "No worker that is alive serves the queue 'default'. Queues that are served: mail,-default; x*." in told(
        job_id
    )
    assert "Start one: manage.py pgqueue_worker --queue=default" in told(job_id)
    spaced = app.noop.using(queue="a b").enqueue().id
    assert "Start one: manage.py pgqueue_worker '--queue=a b'" in told(spaced)
    listed = app.noop.using(queue='a,"b').enqueue().id
    assert """Start one: manage.py pgqueue_worker '--queue="a,""b"'""" in told(listed)


def test_queued_job_says_that_the_workers_of_its_queue_are_quiet(worker):
    quiet = worker("default", quiet_since=timezone.now())
    job_id = app.noop.enqueue().id
    assert "The workers that serve the queue 'default' are quiet, as they have been asked: web-7 7." in told(job_id)
    assert f"Let them claim jobs again: manage.py pgqueue_workers resume {quiet.pk}" in told(job_id)
    worker("*")
    assert "quiet" not in told(job_id)


def test_queued_job_says_that_the_workers_of_its_queue_are_leaving(worker):
    job_id = app.noop.enqueue().id
    worker("de*", stop_requested_at=timezone.now())
    assert "The workers that serve the queue 'default' have been asked to stop: web-7 7." in told(job_id)


def test_queued_job_counts_those_before_it_and_the_slots_that_are_taken(worker, queue):
    serving = worker("de*", concurrency=3)
    app.noop.using(priority=5).enqueue_many([()] * 4)
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
    app.noop.using(priority=5).enqueue_many([()] * 1002)
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
    app.noop.enqueue_many([()] * 3)
    Queue.objects.create(name="default", max_running=2)
    job_id = app.noop.enqueue().id
    assert "is limited, which does not hold it up now: 2 at once." in told(job_id)
    Job.objects.filter(pk__lt=job_id).update(status="running", lease_token=1, worker_id=serving.pk)
    assert "Its queue 'default' is limited to 2 running jobs, and 3 run: it waits until one ends." in told(job_id)
    Queue.objects.update(
        max_running=None, rate_limit=1, rate_period_seconds=3600, rate_burst=1, tokens=0, tokens_at=timezone.now()
    )
    assert re.search(
        r"The rate of its queue 'default' is used up \(1/h, burst 1\): the next job may start in \d", told(job_id)
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


def test_waiting_job_names_those_that_have_the_slots_of_its_key():
    key = {"task": "x", "concurrency_key": "k", "concurrency_limit": 2}
    first = Job.objects.create(**key, concurrency_slot=1).pk
    waiting = Job.objects.create(**key, status="limited").pk
    assert "A slot of its concurrency key 'k' is free" in told(waiting)
    second = Job.objects.create(**key, concurrency_slot=2).pk
    assert f"All 2 slots of its concurrency key 'k' are taken, by the jobs {first}, {second}." in told(waiting)
    behind = Job.objects.create(**key, status="limited").pk
    assert "1 job waits before it for that key." in told(behind)
    assert "before it" not in told(waiting)


def test_waiting_job_of_a_key_for_one_names_the_one():
    key = {"task": "x", "concurrency_key": "k", "concurrency_limit": 1}
    holder = Job.objects.create(**key, concurrency_slot=1).pk
    waiting = Job.objects.create(**key, status="limited").pk
    assert f"Only one job with the concurrency key 'k' may run at a time: job {holder} has the slot." in told(waiting)
