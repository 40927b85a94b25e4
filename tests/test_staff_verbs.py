"""Kill, retry: what staff do to jobs."""

import datetime as dt
import logging

import pytest
from django.db import transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import enqueue_many, move_jobs, set_priority
from django_pgqueue.backend.results import errors_of
from django_pgqueue.db.connections import MaintenanceConnection
from django_pgqueue.db.notify import CHANNEL
from django_pgqueue.exceptions import InvalidBulkAction, InvalidJob
from django_pgqueue.insights.history import title_of
from django_pgqueue.jobs.actions import VERBS, JobChange, SkipReason, action_named, kill, run_now
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.dead_letter import retry
from django_pgqueue.models import DeadJob, Job
from tests.support.admin_jobs import scheduled
from tests.support.died import died, titles


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


def test_kill_leaves_reserved_alone(sql):
    job_id = app.noop.enqueue().id
    sql("UPDATE pgqueue_jobs SET status = 'reserved'")
    assert kill([job_id], by="eve") == ([], [])


def test_kill_rolls_back_with_its_transaction(queue):
    job_id = app.noop.enqueue().id
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        kill([job_id], by="eve")
        1 / 0  # noqa: B018
    assert (Job.objects.count(), DeadJob.objects.count()) == (1, 0)


def test_retried_job_keeps_id_arguments_options_and_history(queue):
    [job_id] = died(queue)
    assert retry([job_id], by="eve").ids == [job_id]
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.attempts, job.max_attempts, job.priority, job.args) == ("queued", 0, 4, 3, ["x"])
    assert titles(job) == ["ValueError", "died (exhausted), retried by eve"]
    assert DeadJob.objects.count() == 0


def test_retry_leaves_a_job_dead_whose_unique_key_is_taken(queue, sql):
    first, second = died(queue, 2)
    sql("UPDATE pgqueue_dead_jobs SET unique_key = 'k', unique_scope = 'live'")
    sql("INSERT INTO pgqueue_jobs (task, unique_key, unique_scope) VALUES ('x', 'k', 'live')")
    assert retry([first, second], by="eve").ids == []
    sql("DELETE FROM pgqueue_jobs")
    assert len(retry([first, second], by="eve").ids) == 1
    assert DeadJob.objects.count() == 1


def test_retry_says_who_has_the_key_and_the_history_who_wanted_it(queue, sql):
    ids = died(queue, 3)
    for job_id, key in zip(ids, ["a", "b", "b"], strict=True):
        sql("UPDATE pgqueue_dead_jobs SET unique_key = %s, unique_scope = 'live' WHERE id = %s", key, job_id)
    holder = app.record.using(unique_key="a").enqueue("new").id
    cause = DeadJob.objects.get(pk=ids[0]).cause
    assert retry(ids, by="eve") == ([ids[1]], {ids[0]: holder, ids[2]: ids[1]})
    entry, last = DeadJob.objects.get(pk=ids[0]).errors
    assert (last["error"], DeadJob.objects.get(pk=ids[0]).cause) == ("ValueError", cause)
    assert title_of(entry) == f"not retried by eve: job {holder} has its unique key"
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


def test_retry_does_not_wait_for_a_locked_row(queue):
    locked, free = died(queue, 2)
    with queue.transaction():
        queue.rows("SELECT id FROM pgqueue_dead_jobs WHERE id = %(id)s FOR UPDATE", {"id": locked})
        assert retry([locked, free], by="eve").ids == [free]
    assert retry([locked], by="eve").ids == [locked]


def test_run_now_does_not_wait_for_a_locked_row(queue):
    job_id = app.noop.using(run_at=dt.timedelta(hours=1)).enqueue().id
    with queue.transaction():
        queue.rows("SELECT id FROM pgqueue_jobs FOR UPDATE", {})
        assert run_now([job_id], by="eve") == []


def test_retry_of_what_is_not_dead_does_nothing(queue):
    [job_id] = died(queue)
    assert retry([job_id, 999_999], by="eve").ids == [job_id]
    assert retry([job_id], by="eve").ids == []


# Notes

CHANGES = {
    "move": (lambda ids: move_jobs(ids, queue="bulk", by="eve"), "moved from default to bulk by eve"),
    "priority": (lambda ids: set_priority(ids, priority=5, by="eve"), "given priority 5 instead of 0 by eve"),
    "run now": (lambda ids: run_now(ids, by="eve"), "made due at once by eve"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_history_says_what_was_done_to_a_job_and_by_whom(db, change):
    act, note = CHANGES[change]
    job_id = app.noop.using(run_at=dt.timedelta(hours=1)).enqueue().id
    Job.objects.filter(pk=job_id).update(attempts=2, errors=[{"kind": "failed", "error": "ValueError", "attempt": 2}])
    before = timezone.now()
    assert act([job_id]) == [job_id]
    entry, last = Job.objects.get(pk=job_id).errors
    assert last == {"kind": "failed", "error": "ValueError", "attempt": 2}
    assert (title_of(entry), entry["by"], entry["attempt"]) == (note, "eve", 2)
    assert before - dt.timedelta(minutes=1) < dt.datetime.fromisoformat(entry["at"])
    assert errors_of([entry]) == []


@pytest.mark.parametrize("change", CHANGES)
def test_notes_keep_the_first_and_the_last_ten_entries(db, change):
    act, note = CHANGES[change]
    job_id = app.noop.using(run_at=dt.timedelta(hours=1)).enqueue().id
    Job.objects.filter(pk=job_id).update(errors=[{"kind": "failed", "error": f"E{number}"} for number in range(20)])
    act([job_id])
    assert titles(Job.objects.get(pk=job_id)) == [
        *(f"E{number}" for number in range(10)),
        *(f"E{number}" for number in range(11, 19)),
        note,
        "E19",
    ]


def test_note_of_a_job_that_has_not_failed_is_its_first_entry(db):
    job_id = app.noop.using(run_at=dt.timedelta(hours=1)).enqueue().id
    move_jobs([job_id], queue="bulk", by="eve")
    run_now([job_id], by="eve")
    assert set(titles(Job.objects.get(pk=job_id))) == {"moved from default to bulk by eve", "made due at once by eve"}


# The table


def test_every_verb_is_found_by_name_and_source():
    for verb in VERBS:
        assert action_named(verb.name, verb.source.name.lower()) is verb
    for name, source in (("kill", "dead"), ("drop", "live"), ("purge", "live"), ("retry", "nowhere")):
        with pytest.raises(InvalidBulkAction, match=f"no verb '{name}' for '{source}' jobs"):
            action_named(name, source)


def test_what_a_verb_needs_is_checked():
    action_named("move", "live").check({"queue": "bulk"})
    action_named("kill", "live").check({})
    for name, said in (
        ("move", {}),
        ("move", {"queue": ""}),
        ("set_priority", {"priority": 101}),
        ("set_priority", {}),
    ):
        with pytest.raises(InvalidJob):
            action_named(name, "live").check(said)


def test_verb_says_what_it_did_and_why_others_were_left(queue):
    waits, runs = enqueue_many(app.noop, [(), ()])
    queue.rows("UPDATE pgqueue_jobs SET status='running', lease_token=1 WHERE id=%(id)s RETURNING id", {"id": runs})
    said = {"queue": "bulk"}
    done = action_named("move", "live").do([waits, runs, 10**9], by="eve", said=said, statuses=(), where=None)
    assert done == ({JobChange.MOVED: [waits]}, {runs: SkipReason.RUNNING, 10**9: SkipReason.GONE})


def test_verb_spares_jobs_that_are_not_what_they_were_chosen_for(queue):
    job_id = app.noop.enqueue().id
    queue.rows("UPDATE pgqueue_jobs SET status='running', lease_token=1 RETURNING id", {})
    done = action_named("kill", "live").do([job_id], by="eve", said={}, statuses=("queued",), where=None)
    assert done == ({JobChange.KILLED: [], JobChange.ASKED: []}, {job_id: SkipReason.RUNNING})
    assert Job.objects.get().cancel_requested_at is None


def test_pass_of_housekeeping_announces_what_its_verbs_did_after_its_commit(queue):
    ids = died(queue, 2)
    connection = MaintenanceConnection(queue)
    with queue.transaction():
        done = action_named("retry", "dead").do(ids, by="eve", said={}, statuses=(), where=connection)
        assert Job.objects.count() == 0
    assert sorted(done.did[JobChange.RETRIED]) == ids
    assert connection.announcements == {CHANNEL: {"default"}}
    assert Job.objects.count() == 2


@pytest.mark.django_db
def test_run_now_wakes_workers_and_logs_who(caplog, django_capture_on_commit_callbacks):
    one, two = scheduled(queue="a"), scheduled(queue="b")
    with caplog.at_level(logging.INFO, "django_pgqueue"), django_capture_on_commit_callbacks() as hooks:
        assert sorted(run_now([one, two, two], by="ann")) == [one, two]
        assert run_now([one, two], by="ann") == []
    assert [hook.payloads for hook in hooks] == [("a",), ("b",)]
    assert "Made due at once by ann" in caplog.text
