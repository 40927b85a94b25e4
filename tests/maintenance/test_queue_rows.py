"""Queues get their rows, and pauses that are over are taken down."""

from django.db import transaction

import tests.app.tasks as app
from django_pgqueue import queues
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.queue_rows import end_pauses, register_queues
from django_pgqueue.models import Queue
from tests.support.consumers import cycle
from tests.support.queue_limits import HOUR, pass_by


def test_queues_are_noted_when_they_have_jobs(queue, sql):
    for name in ("b", "a", "a"):
        app.noop.using(queue=name).enqueue()
    app.noop.using(queue="runs").enqueue()
    claim(queue, "runs", limit=1, worker_id=1)
    queues.limit("b", max_running=3)
    assert sorted(register_queues(queue)) == ["a", "runs"]
    assert register_queues(queue) == []
    assert set(Queue.objects.values_list("name", "max_running")) == {("a", None), ("b", 3), ("runs", None)}


def test_queue_whose_row_another_session_is_just_making_is_noted_later(queue):
    for name in ("a", "b"):
        app.noop.using(queue=name).enqueue()
    with transaction.atomic():
        queues.pause("a", by="ann")
        assert register_queues(queue) == ["b"]
    assert register_queues(queue) == []


def test_pauses_that_are_over_are_taken_down(queue):
    queues.pause("a", by="ann", reason="lunch", resume_at=HOUR)
    queues.pause("b", by="ann")
    queues.limit("a", max_running=3)
    assert end_pauses(queue) == []
    pass_by(3601)
    assert end_pauses(queue) == ["a"]
    assert set(Queue.objects.values_list("name", "paused_by", "pause_reason", "max_running")) == {
        ("a", "", "", 3),
        ("b", "ann", "", None),
    }


def test_queue_has_its_row_from_the_first_claim_on(consumer):
    app.noop.using(queue="new").enqueue()
    consumer.wake(["new"])
    cycle(consumer)
    assert Queue.objects.filter(name="new").exists()
