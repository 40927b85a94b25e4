"""Unique keys while workers die."""

import pytest

import tests.app.tasks as app
from django_pgqueue import Unique
from django_pgqueue.models import DeadJob, Job, SucceededJob
from tests.app.models import Mark
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def test_job_whose_process_is_killed_after_it_gave_its_key_up_leaves_nothing_stuck(start_worker):
    """Whether it runs again before it would take the key back, or not: it ends, and so does its conflicting job."""
    worker = start_worker("--concurrency", "1").wait_until_ready()
    dies = app.kill_the_process.using(unique_key="k", unique=Unique(until="start"), max_attempts=2)
    old = dies.enqueue().id
    eventually(Mark.objects.filter(job_id=old).exists)
    conflict = app.record.using(unique_key="k", unique=Unique(until="start")).enqueue("new")
    assert conflict.created or conflict.id == old, "between two of its runs it may have the key again"
    eventually(lambda: not Job.objects.exists())
    assert DeadJob.objects.get(pk=old).reason in {"lost", "superseded"}
    assert SucceededJob.objects.filter(pk=conflict.id).exists() == conflict.created
    assert app.record.using(unique_key="k").enqueue("after").created
    assert worker.process.poll() is None


def test_worker_takes_keys_back_and_lets_them_go_in_the_end(start_worker):
    start_worker("--concurrency", "1").wait_until_ready()
    back = app.snooze.using(unique_key="back", unique=Unique(until="start")).enqueue(3600.0).id
    held = app.record.using(unique_key="reserved", unique=Unique(hold=1)).enqueue("first").id
    eventually(lambda: Job.objects.filter(pk=back, status="scheduled", unique_until="start").exists())
    assert app.noop.using(unique_key="back").enqueue().id == back
    eventually(lambda: SucceededJob.objects.filter(pk=held).exists() and not Job.objects.filter(pk=held).exists())
    assert app.noop.using(unique_key="reserved").enqueue().created
