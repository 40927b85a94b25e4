"""Kill, requeue: what staff do to jobs."""

import datetime as dt

import pytest
from django.db import transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.base.states import Reason
from django_pgqueue.lifecycle.claim import claim
from django_pgqueue.lifecycle.dead_letter import DeadLetter, dead_letter, requeue
from django_pgqueue.lifecycle.kill import kill
from django_pgqueue.lifecycle.run_now import run_now
from django_pgqueue.models import DeadJob, Job


@pytest.fixture
def dead(queue):
    def make(number=1):
        ids = enqueue_many(app.record.using(priority=3, max_attempts=4), [("x",)] * number)
        dead_letter(queue, [DeadLetter(job_id, 0, Reason.EXHAUSTED, {"error": "ValueError"}) for job_id in ids])
        return ids

    return make


def test_kill_buries_what_waits_and_asks_what_runs(queue):
    running, queued = enqueue_many(app.noop, [(), ()])
    claim(queue, "default", limit=1, worker_id=1)
    scheduled = app.noop.using(run_at=dt.timedelta(hours=1)).enqueue().id
    result = kill([running, queued, scheduled, 999_999], by="eve")
    assert (sorted(result.dead), result.requested) == ([queued, scheduled], [running])
    for job in DeadJob.objects.all():
        assert (job.reason, job.cancelled_by, job.errors[-1]["error"]) == ("killed", "eve", "killed by eve")
    row = Job.objects.get()
    assert (row.status, row.cancelled_by) == ("running", "eve")
    assert row.cancel_requested_at


def test_kill_does_not_wait_for_a_locked_row(queue, other_queue):
    running, queued = enqueue_many(app.noop, [(), ()])
    claim(other_queue, "default", limit=1, worker_id=1)
    with queue.transaction():
        queue.rows("SELECT id FROM pgqueue_jobs FOR UPDATE", {})
        assert kill([running, queued], by="eve") == ([], [])
    assert kill([running, queued], by="eve") == ([queued], [running])


def test_kill_leaves_tombstones_alone(sql):
    job_id = app.noop.enqueue().id
    sql("UPDATE pgqueue_jobs SET status = 'held'")
    assert kill([job_id], by="eve") == ([], [])


def test_kill_rolls_back_with_its_transaction(queue):
    job_id = app.noop.enqueue().id
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        kill([job_id], by="eve")
        1 / 0  # noqa: B018
    assert (Job.objects.count(), DeadJob.objects.count()) == (1, 0)


def test_requeued_job_keeps_id_arguments_options_and_history(dead):
    [job_id] = dead()
    assert requeue([job_id], by="eve").ids == [job_id]
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.attempts, job.max_attempts, job.priority, job.args) == ("queued", 0, 4, 3, ["x"])
    assert [entry["error"] for entry in job.errors] == ["ValueError", "died (exhausted), requeued by eve"]
    assert DeadJob.objects.count() == 0


def test_requeue_leaves_a_job_dead_whose_unique_key_is_taken(dead, sql):
    first, second = dead(2)
    sql("UPDATE pgqueue_dead_jobs SET unique_key = 'k', unique_scope = 'live'")
    sql("INSERT INTO pgqueue_jobs (task, unique_key, unique_scope) VALUES ('x', 'k', 'live')")
    assert requeue([first, second], by="eve").ids == []
    sql("DELETE FROM pgqueue_jobs")
    assert len(requeue([first, second], by="eve").ids) == 1
    assert DeadJob.objects.count() == 1


def test_requeue_says_who_has_the_key_and_the_history_who_wanted_it(dead, sql):
    ids = dead(3)
    for job_id, key in zip(ids, ["a", "b", "b"], strict=True):
        sql("UPDATE pgqueue_dead_jobs SET unique_key = %s, unique_scope = 'live' WHERE id = %s", key, job_id)
    holder = app.record.using(unique_key="a").enqueue("new").id
    assert requeue(ids, by="eve") == ([ids[1]], {ids[0]: holder, ids[2]: ids[1]})
    entry = DeadJob.objects.get(pk=ids[0]).errors[-1]
    assert entry["error"] == f"not requeued by eve: job {holder} has its unique key"
    assert (entry["holder"], entry["by"], entry["attempt"]) == (holder, "eve", 0)


def test_run_now_makes_scheduled_jobs_due_and_leaves_others(queue):
    later, backing_off, queued = (app.noop.enqueue().id for _ in range(3))
    Job.objects.filter(pk__in=[later, backing_off]).update(
        status="scheduled", run_at=timezone.now() + dt.timedelta(hours=1)
    )
    Job.objects.filter(pk=backing_off).update(attempts=2)
    assert sorted(run_now([later, backing_off, queued, 999_999], by="eve")) == [later, backing_off]
    assert set(Job.objects.values_list("status", flat=True)) == {"queued"}
    assert Job.objects.get(pk=backing_off).attempts == 2
    assert len(claim(queue, "default", limit=3, worker_id=1)) == 3


def test_requeue_does_not_wait_for_a_locked_row(queue, dead):
    locked, free = dead(2)
    with queue.transaction():
        queue.rows("SELECT id FROM pgqueue_dead_jobs WHERE id = %(id)s FOR UPDATE", {"id": locked})
        assert requeue([locked, free], by="eve").ids == [free]
    assert requeue([locked], by="eve").ids == [locked]


def test_run_now_does_not_wait_for_a_locked_row(queue):
    job_id = app.noop.using(run_at=dt.timedelta(hours=1)).enqueue().id
    with queue.transaction():
        queue.rows("SELECT id FROM pgqueue_jobs FOR UPDATE", {})
        assert run_now([job_id], by="eve") == []


def test_requeue_of_what_is_not_dead_does_nothing(dead):
    [job_id] = dead()
    assert requeue([job_id, 999_999], by="eve").ids == [job_id]
    assert requeue([job_id], by="eve").ids == []
