"""Actions of staff on jobs move them, change their priority, remove them, and leave some alone."""

import datetime as dt

import pytest
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue import enqueue_many, move_jobs, purge, set_priority
from django_pgqueue.exceptions import InvalidJob
from django_pgqueue.jobs.actions import (
    SkipReason,
    lock_with_status,
    why_not_changed,
    why_not_killed,
    why_skipped,
)
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.search import Source
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.models import DeadJob, FinishedJob, Job
from tests.support.job_tables import TABLES


def test_reserved_is_left_alone(put):
    held = put(Source.LIVE, status="'reserved'")
    assert move_jobs([held], queue="new", by="eve") == []
    assert set_priority([held], priority=1, by="eve") == []
    assert why_skipped([held], why_not_killed) == why_skipped([held], why_not_changed) == {held: SkipReason.RESERVED}


def test_job_that_began_meanwhile_has_no_longer_the_status_that_was_chosen(queue):
    first, second = enqueue_many(app.noop, [()] * 2)
    claim(queue, "default", limit=1, worker_id=1)
    with transaction.atomic():
        assert lock_with_status([first, second], ["queued", "scheduled"]) == [second]


def test_moved_jobs_are_claimed_from_their_new_queue_in_order(queue):
    low, high = app.noop.enqueue().id, app.noop.using(priority=5).enqueue().id
    later = app.noop.using(run_at=dt.timedelta(hours=1)).enqueue().id
    assert sorted(move_jobs([low, high, later], queue="new", by="eve")) == [low, high, later]
    assert claim(queue, "default", limit=9, worker_id=1) == []
    assert [job.id for job in claim(queue, "new", limit=9, worker_id=1)] == [high, low]
    assert Job.objects.get(pk=later).status == "scheduled"


def test_priority_changes_who_is_claimed_first(queue):
    first, second = enqueue_many(app.noop, [()] * 2)
    assert set_priority([second], priority=100, by="eve") == [second]
    assert [job.id for job in claim(queue, "default", limit=2, worker_id=1)] == [second, first]
    assert set_priority([first, second], priority=1, by="eve") == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("act", "payload", "told"),
    [
        (lambda ids: move_jobs(ids, queue="new", by="ann"), "new", "Moved to queue 'new'"),
        (lambda ids: set_priority(ids, priority=3, by="ann"), "old", "Given priority 3"),
    ],
)
def test_workers_are_woken_for_what_may_run_now(caplog, django_capture_on_commit_callbacks, act, payload, told):
    caplog.set_level("INFO", "django_pgqueue")
    later = app.noop.using(queue="old", run_at=dt.timedelta(hours=1)).enqueue().id
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
    for act in (lambda ids: move_jobs(ids, queue="new", by="eve"), lambda ids: set_priority(ids, priority=9, by="eve")):
        sql("UPDATE pgqueue_jobs SET status = 'queued'")
        assert len(act([slotted, fair, plain])) == 3
        statuses = dict(Job.objects.values_list("id", "status"))
        assert statuses == {slotted: "queued", fair: "scheduled", plain: "queued"}
    assert Job.objects.get(pk=slotted).concurrency_slot == 1


def test_purge_removes_dead_jobs_or_finished_ones_and_never_live_ones(put, sql):
    live, gone, kept, done = put(Source.LIVE), put(Source.DEAD), put(Source.DEAD), put(Source.FINISHED)
    assert purge([live, gone, done], by="eve") == [gone]
    assert purge([live, kept, done], by="eve", finished=True) == [done]
    assert [list(model.objects.values_list("pk", flat=True)) for model in (Job, DeadJob, FinishedJob)] == [
        [live],
        [kept],
        [],
    ]


@pytest.mark.parametrize("source", [Source.DEAD, Source.FINISHED])
def test_purge_does_not_wait_for_a_locked_row(queue, other_queue, put, source):
    locked, free = put(source), put(source)
    with other_queue.transaction():
        other_queue.rows(f"SELECT id FROM {TABLES[source]} WHERE id = {locked} FOR UPDATE", {})
        assert purge([locked, free], by="eve", finished=source is Source.FINISHED) == [free]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: move_jobs([1], queue="", by="eve"), "queue is a name of 1 to 128 characters, not ''"),
        (lambda: set_priority([1], priority=101, by="eve"), "from -100 to 100, not 101"),
    ],
)
def test_queue_or_priority_that_cannot_be_is_named(db, act, message):
    with pytest.raises(InvalidJob, match=message):
        act()


def test_fair_jobs_that_move_get_turns_between_those_that_are_there(queue):
    moved = enqueue_many(app.noop.using(queue="old", fair_key="a"), [()] * 3)
    there = enqueue_many(app.noop.using(queue="new", fair_key="b"), [()] * 3)
    move_jobs(moved, queue="new", by="eve")
    assert [job.id for job in claim(queue, "new", limit=1, worker_id=1)] == there[:1]
    promote(queue)
    order = [job.id for job in claim(queue, "new", limit=9, worker_id=1)]
    assert sorted(order) == moved + there[1:]
    assert {*order[:2]} == {moved[0], there[1]}
