"""Counts of real workers are complete when they have ended."""

import signal

import pytest
from django.db.models import Sum

import tests.app.tasks as app
from django_pgqueue.models import DeadJob, Job, Stat
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def counted(**of) -> dict[str, int]:
    """Return what stands in the counts of a task, without zeros."""
    names = ("succeeded", "failed", "retried", "died", "lost")
    sums = Stat.objects.filter(**of).aggregate(**{name: Sum(name) for name in names})
    return {name: total for name, total in sums.items() if total}


def test_what_two_commands_have_done_is_counted_when_they_have_drained_the_queue(start_worker):
    """Four processes add to the same rows at about the same time."""
    app.noop.enqueue_many([()] * 2000)
    app.record_atomic.enqueue_many([()] * 20)
    app.fail.using(max_attempts=1).enqueue_many([()] * 30)
    workers = [start_worker("--processes", "2", "--drain") for _ in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert counted(task=app.noop.name) == {"succeeded": 2000}
    assert counted(task=app.record_atomic.name) == {"succeeded": 20}
    assert counted(task=app.fail.name) == {"failed": 30, "died": 30}
    assert DeadJob.objects.count() == 30
    assert Stat.objects.filter(run_seconds__gt=0, wait_seconds__gt=0, task=app.noop.name).exists()


def test_attempts_of_a_process_that_was_killed_are_counted_as_lost(start_worker):
    job_id = app.kill_the_process.using(max_attempts=2).enqueue().id
    worker = start_worker("--concurrency", "2")
    eventually(DeadJob.objects.filter(pk=job_id).exists)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert counted() == {"lost": 2, "died": 1}
    assert not Job.objects.exists()


def test_worker_that_goes_on_adds_what_it_has_counted(start_worker):
    app.noop.enqueue_many([()] * 5)
    worker = start_worker(DJANGO_SETTINGS_MODULE="tests.processes.counting_settings")
    eventually(lambda: counted() == {"succeeded": 5})
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
