"""Bulk actions are begun, stopped, and done slice by slice."""

import contextlib
import json
import threading

import pytest
from django.db import transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.notify import MAINTAIN, Notification
from django_pgqueue.exceptions import InvalidBulkAction, InvalidFilter, InvalidOption
from django_pgqueue.jobs import kill
from django_pgqueue.jobs.actions import (
    KILL,
    MOVE,
    PURGE,
    RETRY,
    ActionResult,
    SkipReason,
)
from django_pgqueue.jobs.bulk_actions import BulkActionResult, begin, filter_of, in_slices, stop, stored
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.search import Filter, Source, pages
from django_pgqueue.maintenance import bulk_runner
from django_pgqueue.maintenance.bulk_runner import carry_on
from django_pgqueue.models import BulkAction, DeadJob, Job
from tests.support.bulk_actions import bury, ended, work
from tests.support.many import enqueued_ids
from tests.support.waiting import beside, eventually


def test_bulk_action_is_stored_and_announced_after_the_commit(db, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks() as hooks:
        bulk_action_id = begin(MOVE, Filter(queues=("mail",)), by="ann", params={"queue": "bulk"}, rate=2.5, expected=7)
    assert hooks == [Notification("default", (MAINTAIN,))]
    bulk_action = BulkAction.objects.get(pk=bulk_action_id)
    assert (bulk_action.action, bulk_action.source, bulk_action.by) == ("move", "live", "ann")
    assert (bulk_action.filter, bulk_action.params) == ({"queues": ["mail"]}, {"queue": "bulk"})
    assert (bulk_action.rate, bulk_action.expected, bulk_action.ended_at) == (2.5, 7, None)


@pytest.mark.parametrize("rate", [0, -1, 100_001, float("inf"), float("nan")])
def test_rate_that_cannot_be_is_refused(db, rate):
    with pytest.raises(InvalidBulkAction, match="A rate is above 0"):
        begin(RETRY, Filter(), by="ann", rate=rate)
    assert not BulkAction.objects.exists()


@pytest.mark.parametrize("params", [{}, {"queue": ""}, {"queue": "x" * 129}, {"queue": 7}])
def test_what_an_action_needs_has_to_be_given(db, params):
    with pytest.raises(InvalidOption):
        begin(MOVE, Filter(), by="ann", params=params)
    assert not BulkAction.objects.exists()


@pytest.mark.parametrize(
    "chosen",
    [
        Filter(),
        Filter(queues=("a", "b"), tasks=("t",), kinds=("queued",), older_than_seconds=1.5, error="ValueError"),
    ],
)
def test_filter_comes_back_as_it_was_stored(chosen):
    assert filter_of(json.loads(json.dumps(stored(chosen)))) == chosen


@pytest.mark.parametrize("name", ["queues", "tasks", "kinds"])
@pytest.mark.parametrize("value", ["", "mail", None, {"a": 1}, 5])
def test_stored_filter_never_takes_something_else_for_a_list(name, value):
    with pytest.raises(InvalidBulkAction, match=f"The stored filter cannot be read: {name} is no list."):
        filter_of({name: value})


def test_filter_that_other_jobs_are_for_is_refused(db):
    with pytest.raises(InvalidFilter, match="Live jobs cannot be chosen by cause"):
        begin(KILL, Filter(cause=7), by="ann")


def test_nothing_is_stored_of_what_matches_any():
    assert stored(Filter()) == {}


def test_stopped_bulk_action_does_nothing_more_and_says_who_stopped_it(queue):
    bury(queue, 20)
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    carry_on(queue, limit=5)
    assert stop([bulk_action_id, 10**9], by="bob") == [bulk_action_id]
    assert stop([bulk_action_id], by="eve") == []
    assert carry_on(queue).bulk_action_id is None
    bulk_action = ended(bulk_action_id)
    assert (bulk_action.done, bulk_action.stopped_by) == (5, "bob")
    assert bulk_action.stopped_at is not None
    assert DeadJob.objects.count() == 15


def test_stop_request_by_hand_ends_it_at_the_next_slice(queue):
    bury(queue, 5)
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    BulkAction.objects.update(stopped_at=timezone.now(), stopped_by="bob")
    carry_on(queue)
    assert (ended(bulk_action_id).done, DeadJob.objects.count()) == (0, 5)


def test_stop_comes_after_the_slice_that_is_under_way(queue, other_queue):
    bury(queue, 5)
    bulk_action_id = begin(RETRY, Filter(), by="ann")
    has_stopped = threading.Event()
    stopper = QueueConnection("default", "stopper")
    text = bulk_runner.statement("stop_bulk_action")

    def press():
        stopper.rows(text, {"ids": [bulk_action_id], "by": "bob"})
        has_stopped.set()

    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE %(what)s"
    with contextlib.closing(stopper), beside(press), other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_bulk_actions FOR UPDATE", {})
        eventually(lambda: has_stopped.is_set() or queue.rows(waiting, {"what": "%pgqueue_bulk_actions%"}))
    assert ended(bulk_action_id).stopped_by == "bob"


@pytest.mark.django_db(transaction=True)
def test_bulk_action_that_is_rolled_back_is_never_begun(queue):
    bury(queue, 1)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        begin(PURGE, Filter(), by="ann")
        1 / 0  # noqa: B018
    assert work(queue) == 0
    assert DeadJob.objects.count() == 1


@pytest.fixture
def dead(queue):
    def make(number: int) -> list[int]:
        ids = enqueued_ids(app.record, [("x",)] * number)
        for start in range(0, number, 1000):
            kill(ids[start : start + 1000], by="eve")
        return ids

    return make


def move(ids) -> ActionResult:
    return MOVE.do(ids, by="eve", params={"queue": "new"}, statuses=(), where=None)


def retry_all() -> BulkActionResult:
    tally = BulkActionResult()
    batches = (page.ids for page in pages(Source.DEAD, Filter()))
    for _ in in_slices(batches, lambda ids: RETRY.do(ids, by="eve", params={}, statuses=(), where=None), tally=tally):
        pass
    return tally


def test_2500_jobs_are_moved_in_slices_each_a_transaction_of_its_own(queue):
    ids = enqueued_ids(app.noop, [()] * 2500)
    tally, seen = BulkActionResult(), []
    batches = (page.ids for page in pages(Source.LIVE, Filter()))
    for _ in in_slices(batches, move, tally=tally):
        [(committed,)] = queue.rows("SELECT count(*) FROM pgqueue_jobs WHERE queue = 'new'", {})
        seen.append(committed)
    assert seen == [1000, 2000, 2500]
    assert (tally.done, tally.skipped) == ({"moved": 2500}, {})
    assert Job.objects.filter(queue="new").count() == len(ids)


def test_interrupted_slice_is_rolled_back_and_those_before_stay(queue):
    app.noop.enqueue_many([()] * 2500)
    tally, slices = BulkActionResult(), []

    def act(ids):
        done = move(ids)
        slices.append(ids)
        if len(slices) == 2:
            raise KeyboardInterrupt
        return done

    batches = (page.ids for page in pages(Source.LIVE, Filter()))
    with pytest.raises(KeyboardInterrupt):
        for _ in in_slices(batches, act, tally=tally):
            pass
    assert tally.done == {"moved": 1000}
    assert Job.objects.filter(queue="new").count() == 1000


@pytest.mark.django_db(transaction=True)
def test_slices_refuse_to_be_part_of_a_transaction():
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        list(in_slices([[1]], move, tally=BulkActionResult()))


def test_what_is_locked_or_running_is_left_and_said(queue, other_queue):
    running, locked, free, gone = [*enqueued_ids(app.noop, [()] * 3), 10**9]
    claim(other_queue, "default", limit=1, worker_id=1)
    tally = BulkActionResult()
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_jobs WHERE id = %(id)s FOR UPDATE", {"id": locked})
        list(in_slices([[running, locked, free, gone]], move, tally=tally))
    assert tally.done == {"moved": 1}
    assert tally.examples == {SkipReason.RUNNING: [running], SkipReason.CHANGING: [locked], SkipReason.GONE: [gone]}
    assert Job.objects.get(queue="new").id == free


@pytest.mark.parametrize(
    "wrong", ["queue = repeat('q', 129)", "task = repeat('t', 501)", "enqueued_at = '1969-01-01Z'"]
)
def test_job_that_the_live_table_would_refuse_stays_dead_and_the_others_go(dead, sql, wrong):
    """As one that SQL has inserted before the table had its checks."""
    refused, free = dead(2)
    sql(f"UPDATE pgqueue_dead_jobs SET {wrong} WHERE id = %s", refused)
    tally = retry_all()
    assert (tally.done, tally.examples) == ({"retried": 1}, {SkipReason.OUT_OF_BOUNDS: [refused]})
    assert DeadJob.objects.get().pk == refused
    assert Job.objects.get().pk == free


def test_job_whose_unique_key_is_held_stays_dead_and_says_so(dead, sql):
    held, free = dead(2)
    sql("UPDATE pgqueue_dead_jobs SET unique_key = 'k', unique_until = 'end' WHERE id = %s", held)
    sql("INSERT INTO pgqueue_jobs (task, unique_key, unique_until) VALUES ('x', 'k', 'end')")
    tally = retry_all()
    assert (tally.done, tally.examples) == ({"retried": 1}, {SkipReason.KEY_HELD: [held]})
    assert Job.objects.filter(pk=free).exists()
