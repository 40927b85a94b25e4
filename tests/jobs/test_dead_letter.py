"""Jobs that will not run again are moved to the dead jobs, each by its fence, with a last entry in their history."""

import pytest
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.notify import ENDS, Notification
from django_pgqueue.insights.history import title_of
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.dead_letter import DeadLetter, dead_letter, retry
from django_pgqueue.jobs.failure import unknown_task
from django_pgqueue.models import DeadJob, Job
from django_pgqueue.records import Fate
from django_pgqueue.states import NEVER, DeathReason
from tests.support.died import died, titles
from tests.support.many import enqueued_ids


def letter(job_id, token=0, reason=DeathReason.EXHAUSTED, **error) -> DeadLetter:
    return DeadLetter(job_id, token, reason, {"kind": "failed", "error": "ValueError", **error})


def test_running_job_is_moved_by_its_lease_token_alone(queue):
    app.noop.enqueue()
    [job] = claim(queue, "default", limit=1, worker_id=7)
    assert dead_letter(queue, [letter(job.id, job.lease_token + 1), letter(job.id)]).keys == {}
    assert Job.objects.get().status == "running"
    assert dead_letter(queue, [letter(job.id, job.lease_token)]).keys == {job.id: None}
    assert not Job.objects.exists()
    dead = DeadJob.objects.get()
    assert (dead.pk, dead.reason, dead.attempts, dead.worker_id) == (job.id, "exhausted", 1, 7)
    [entry] = dead.errors
    assert (entry["error"], entry["attempt"], entry["worker_id"]) == ("ValueError", 1, 7)


def test_concurrency_keys_of_the_dead_are_told_and_locked_rows_left_alone(queue, other_queue):
    with_key = app.noop.using(limit_key="k").enqueue().id
    without, locked = enqueued_ids(app.noop, [(), ()])
    letters = [letter(job_id) for job_id in (locked, without, with_key, 10**9)]
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_jobs WHERE id = %(id)s FOR UPDATE", {"id": locked})
        assert dead_letter(queue, letters).keys == {with_key: "k", without: None}
    assert dead_letter(queue, letters).keys == {locked: None}


def test_reserved_is_no_job_that_could_die(queue, sql):
    job_id = app.noop.enqueue().id
    sql("UPDATE pgqueue_jobs SET status = 'reserved'")
    assert dead_letter(queue, [letter(job_id)]).keys == {}


def test_callers_that_wait_are_told_after_the_commit(db, sql, django_capture_on_commit_callbacks):
    awaited, other = enqueued_ids(app.noop, [(), ()])
    sql("UPDATE pgqueue_jobs SET has_waiters = true WHERE id = %s", awaited)
    with django_capture_on_commit_callbacks() as hooks:
        dead_letter(CallerConnection(), [letter(awaited), letter(other)])
    assert hooks == [Notification("default", (str(awaited),), ENDS)]


@pytest.mark.parametrize(("asked_before", "by"), [("", "eve"), ("ann", "ann")])
def test_killed_job_says_by_whom_and_the_first_who_asked_stands(queue, asked_before, by):
    job_id = app.noop.enqueue().id
    if asked_before:
        Job.objects.update(killed_by=asked_before, kill_requested_at=timezone.now())
    dead_letter(queue, [letter(job_id, reason=DeathReason.KILLED)], by="eve")
    dead = DeadJob.objects.get()
    assert (dead.reason, dead.killed_by, dead.errors[-1]["by"]) == ("killed", by, by)


@pytest.mark.parametrize(("kept", "left"), [(19, list(range(19))), (20, [*range(10), *range(11, 20)])])
def test_history_that_is_full_makes_room_for_the_death(queue, kept, left):
    job_id = app.noop.enqueue().id
    Job.objects.update(errors=[{"kind": "failed", "error": "x", "attempt": number} for number in range(kept)])
    dead_letter(queue, [letter(job_id, error="last")])
    errors = DeadJob.objects.get().errors
    assert [entry["attempt"] for entry in errors[:-1]] == left
    assert errors[-1]["error"] == "last"


def test_retried_job_keeps_id_arguments_options_and_history(queue):
    [job_id] = died(queue)
    assert retry([job_id], by="eve").ids == [job_id]
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.attempts, job.max_attempts, job.priority, job.args) == ("queued", 0, 4, 3, ["x"])
    assert titles(job) == ["ValueError", "died (exhausted), retried by eve"]
    assert DeadJob.objects.count() == 0


def test_retried_job_has_not_started_yet_and_waits_a_day_for_a_worker_that_knows_its_task(queue, sql):
    [job_id] = died(queue)
    sql("UPDATE pgqueue_dead_jobs SET first_started_at = now() - interval '2 days', task = 'gone'")
    assert retry([job_id], by="eve").ids == [job_id]
    assert Job.objects.get().first_started_at == NEVER
    [job] = claim(queue, "default", limit=1, worker_id=7)
    assert unknown_task(job).fate is Fate.RELEASED


def test_retry_leaves_a_job_dead_whose_unique_key_is_taken(queue, sql):
    first, second = died(queue, 2)
    sql("UPDATE pgqueue_dead_jobs SET unique_key = 'k', unique_until = 'end'")
    sql("INSERT INTO pgqueue_jobs (task, unique_key, unique_until) VALUES ('x', 'k', 'end')")
    assert retry([first, second], by="eve").ids == []
    sql("DELETE FROM pgqueue_jobs")
    assert len(retry([first, second], by="eve").ids) == 1
    assert DeadJob.objects.count() == 1


def test_retry_says_who_has_the_key_and_the_history_who_wanted_it(queue, sql):
    ids = died(queue, 3)
    for job_id, key in zip(ids, ["a", "b", "b"], strict=True):
        sql("UPDATE pgqueue_dead_jobs SET unique_key = %s, unique_until = 'end' WHERE id = %s", key, job_id)
    holder = app.record.using(unique_key="a").enqueue("new").id
    cause = DeadJob.objects.get(pk=ids[0]).cause
    assert retry(ids, by="eve") == ([ids[1]], {ids[0]: holder, ids[2]: ids[1]})
    entry, last = DeadJob.objects.get(pk=ids[0]).errors
    assert (last["error"], DeadJob.objects.get(pk=ids[0]).cause) == ("ValueError", cause)
    assert title_of(entry) == f"not retried by eve: job {holder} has its unique key"
    assert (entry["holder"], entry["by"], entry["attempt"]) == (holder, "eve", 0)


def test_retry_does_not_wait_for_a_locked_row(queue):
    locked, free = died(queue, 2)
    with queue.transaction():
        queue.rows("SELECT id FROM pgqueue_dead_jobs WHERE id = %(id)s FOR UPDATE", {"id": locked})
        assert retry([locked, free], by="eve").ids == [free]
    assert retry([locked], by="eve").ids == [locked]


def test_retry_of_what_is_not_dead_does_nothing(queue):
    [job_id] = died(queue)
    assert retry([job_id, 999_999], by="eve").ids == [job_id]
    assert retry([job_id], by="eve").ids == []
