"""Actions of staff on jobs move them, change their priority, remove them, and leave some alone."""

import datetime as dt
import logging
from functools import partial

import pytest
from django.db import IntegrityError, transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import jobs, workers
from django_pgqueue.backend.results import errors_of
from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.insights.history import title_of
from django_pgqueue.jobs import kill, move, purge, run_now, set_priority
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.dead_letter import retry
from django_pgqueue.jobs.search import Source
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.models import DeadJob, Job, SucceededJob
from tests.support.admin_jobs import scheduled
from tests.support.died import titles
from tests.support.job_tables import TABLES
from tests.support.many import enqueued_ids


@pytest.mark.parametrize(
    "act", [kill, run_now, purge, retry, partial(move, queue="q"), partial(set_priority, priority=1), workers.stop]
)
def test_action_takes_a_list_of_ids_and_names_what_is_none(act, queue):
    for given in ("12", 12, None):
        with pytest.raises(TypeError, match=rf"{given!r} is no list of ids: write \[{given!r}\]"):
            act(given, by="eve")
    with pytest.raises(TypeError, match=r"is no list of ids: write its id in a list"):
        act(app.noop.enqueue(), by="eve")
    with pytest.raises(TypeError, match=r"ids\[0\] is 1\.5, and no id\.$"):
        act([1.5], by="eve")
    assert Job.objects.get().status == "queued"


def test_ids_that_no_job_can_have_are_passed_over(queue):
    job_id = app.noop.enqueue().id
    assert kill([2**70, job_id, -(2**70)], by="eve").dead == [job_id]


def test_actions_on_jobs_take_handles_too(queue):
    first, second = app.noop.enqueue(), app.noop.enqueue()
    assert (
        move([first, second.id], queue="new") == set_priority([second, first.id], priority=1) == [first.id, second.id]
    )
    assert kill([first]).dead == retry([first]).ids == [first.id]
    assert kill([first]).dead == purge([first]) == [first.id]
    with pytest.raises(ValueError, match="is a job on 'other', not on 'default': say database='other'"):
        kill([jobs.get(second.id, database="other")], database="default")
    with pytest.raises(ValueError, match=r"is a job on 'default', and JobHandle.* on 'other': name those of each by"):
        kill([second, jobs.get(second.id, database="other")])
    with pytest.raises(TypeError, match=r"ids\[0\] is JobHandle.*, and no id: write its id"):
        workers.stop([second])


def test_ids_of_the_framework_are_texts(queue):
    assert kill([str(app.noop.enqueue().id)], by="eve").dead == [DeadJob.objects.get().pk]


def test_moved_jobs_are_claimed_from_their_new_queue_in_order(queue):
    low, high = app.noop.enqueue().id, app.noop.using(priority=5).enqueue().id
    later = app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id
    assert sorted(move([low, high, later], queue="new", by="eve")) == [low, high, later]
    assert claim(queue, "default", limit=9, worker_id=1) == []
    assert [job.id for job in claim(queue, "new", limit=9, worker_id=1)] == [high, low]
    assert Job.objects.get(pk=later).status == "scheduled"


def test_priority_changes_who_is_claimed_first(queue):
    first, second = enqueued_ids(app.noop, [()] * 2)
    assert set_priority([second], priority=100, by="eve") == [second]
    assert [job.id for job in claim(queue, "default", limit=2, worker_id=1)] == [second, first]
    assert set_priority([first, second], priority=1, by="eve") == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("act", "payload", "told"),
    [
        (lambda ids: move(ids, queue="new", by="ann"), "new", "Moved to queue 'new'"),
        (lambda ids: set_priority(ids, priority=3, by="ann"), "old", "Given priority 3"),
    ],
)
def test_workers_are_woken_for_what_may_run_now(caplog, django_capture_on_commit_callbacks, act, payload, told):
    caplog.set_level("INFO", "django_pgqueue")
    later = app.noop.using(queue="old", delay=dt.timedelta(hours=1)).enqueue().id
    now = Job.objects.create(task="t", queue="old").pk
    with django_capture_on_commit_callbacks() as hooks:
        act([later])
    assert hooks == []
    with django_capture_on_commit_callbacks() as hooks:
        act([now])
    assert [hook.payloads for hook in hooks] == [(payload,)]
    assert f"{told} by ann: jobs [{now}]" in caplog.text


def test_slot_is_kept_and_a_fair_job_is_promoted_anew(sql, put):
    slot = {"concurrency_key": "'k'", "concurrency_limit": "1", "concurrency_slot": "1"}
    slotted = put(Source.LIVE, fair_key="'f'", **slot)
    fair, plain = put(Source.LIVE, fair_key="'f'"), put(Source.LIVE)
    for act in (lambda ids: move(ids, queue="new", by="eve"), lambda ids: set_priority(ids, priority=9, by="eve")):
        sql("UPDATE pgqueue_jobs SET status = 'queued'")
        assert len(act([slotted, fair, plain])) == 3
        statuses = dict(Job.objects.values_list("id", "status"))
        assert statuses == {slotted: "queued", fair: "scheduled", plain: "queued"}
    assert Job.objects.get(pk=slotted).concurrency_slot == 1


def test_purge_removes_dead_jobs_or_finished_ones_and_never_live_ones(put, sql):
    live, gone, kept, done = put(Source.LIVE), put(Source.DEAD), put(Source.DEAD), put(Source.SUCCEEDED)
    assert purge([live, gone, done], by="eve") == [gone]
    assert purge([live, kept, done], by="eve", succeeded=True) == [done]
    assert [list(model.objects.values_list("pk", flat=True)) for model in (Job, DeadJob, SucceededJob)] == [
        [live],
        [kept],
        [],
    ]


@pytest.mark.parametrize("source", [Source.DEAD, Source.SUCCEEDED])
def test_purge_does_not_wait_for_a_locked_row(queue, other_queue, put, source):
    locked, free = put(source), put(source)
    with other_queue.transaction():
        other_queue.rows(f"SELECT id FROM {TABLES[source]} WHERE id = {locked} FOR UPDATE", {})
        assert purge([locked, free], by="eve", succeeded=source is Source.SUCCEEDED) == [free]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: move([1], queue="", by="eve"), "queue is a name of 1 to 128 characters, not ''"),
        (lambda: set_priority([1], priority=101, by="eve"), "from -100 to 100, not 101"),
    ],
)
def test_queue_or_priority_that_cannot_be_is_named(db, act, message):
    with pytest.raises(InvalidOption, match=message):
        act()


def test_fair_jobs_that_move_get_turns_between_those_that_are_there(queue):
    moved = enqueued_ids(app.noop.using(queue="old", fair_key="a"), [()] * 3)
    there = enqueued_ids(app.noop.using(queue="new", fair_key="b"), [()] * 3)
    move(moved, queue="new", by="eve")
    assert [job.id for job in claim(queue, "new", limit=1, worker_id=1)] == there[:1]
    promote(queue)
    order = [job.id for job in claim(queue, "new", limit=9, worker_id=1)]
    assert sorted(order) == moved + there[1:]
    assert {*order[:2]} == {moved[0], there[1]}


def test_kill_buries_what_waits_and_asks_what_runs(queue):
    running, queued = enqueued_ids(app.noop, [(), ()])
    claim(queue, "default", limit=1, worker_id=1)
    scheduled = app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id
    result = kill([running, queued, scheduled, 999_999], by="eve")
    assert (sorted(result.dead), result.requested) == ([queued, scheduled], [running])
    for job in DeadJob.objects.all():
        assert (job.reason, job.killed_by, job.errors[-1]["error"]) == ("killed", "eve", "killed by eve")
    row = Job.objects.get()
    assert (row.status, row.killed_by) == ("running", "eve")
    assert row.kill_requested_at


def test_kill_does_not_wait_for_a_locked_row(queue, other_queue):
    running, queued = enqueued_ids(app.noop, [(), ()])
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


def test_kill_outside_a_transaction_does_all_or_nothing(queue, sql):
    running, queued = enqueued_ids(app.noop, [(), ()])
    claim(queue, "default", limit=1, worker_id=1)
    sql("ALTER TABLE pgqueue_jobs ADD CONSTRAINT refused CHECK (killed_by IS NULL)")
    try:
        with pytest.raises(IntegrityError):
            kill([running, queued], by="eve")
    finally:
        sql("ALTER TABLE pgqueue_jobs DROP CONSTRAINT refused")
    assert (Job.objects.count(), DeadJob.objects.count()) == (2, 0)
    assert kill([running, queued], by="eve") == ([queued], [running])


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


def test_run_now_does_not_wait_for_a_locked_row(queue):
    job_id = app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id
    with queue.transaction():
        queue.rows("SELECT id FROM pgqueue_jobs FOR UPDATE", {})
        assert run_now([job_id], by="eve") == []


CHANGES = {
    "move": (lambda ids: move(ids, queue="bulk", by="eve"), "moved from default to bulk by eve"),
    "priority": (lambda ids: set_priority(ids, priority=5, by="eve"), "given priority 5 instead of 0 by eve"),
    "run now": (lambda ids: run_now(ids, by="eve"), "made due at once by eve"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_history_says_what_was_done_to_a_job_and_by_whom(db, change):
    act, note = CHANGES[change]
    job_id = app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id
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
    job_id = app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id
    Job.objects.filter(pk=job_id).update(errors=[{"kind": "failed", "error": f"E{number}"} for number in range(20)])
    act([job_id])
    assert titles(Job.objects.get(pk=job_id)) == [
        *(f"E{number}" for number in range(10)),
        *(f"E{number}" for number in range(11, 19)),
        note,
        "E19",
    ]


def test_note_of_a_job_that_has_not_failed_is_its_first_entry(db):
    job_id = app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id
    move([job_id], queue="bulk", by="eve")
    run_now([job_id], by="eve")
    assert set(titles(Job.objects.get(pk=job_id))) == {"moved from default to bulk by eve", "made due at once by eve"}


@pytest.mark.django_db
def test_run_now_wakes_workers_and_logs_who(caplog, django_capture_on_commit_callbacks):
    one, two = scheduled(queue="a"), scheduled(queue="b")
    with caplog.at_level(logging.INFO, "django_pgqueue"), django_capture_on_commit_callbacks() as hooks:
        assert sorted(run_now([one, two, two], by="ann")) == [one, two]
        assert run_now([one, two], by="ann") == []
    assert [hook.payloads for hook in hooks] == [("a",), ("b",)]
    assert "Made due at once by ann" in caplog.text
