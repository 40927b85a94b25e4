"""Workers and bulk actions, as people are told of them."""

import pytest
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.db.queries import statement
from django_pgqueue.insights.worker_info import (
    has_living_worker,
    jobs_of,
    seen,
    served_text,
    skipped_of,
    states_of,
    with_clock,
)
from django_pgqueue.jobs.actions import SkipReason
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import BulkAction, Worker
from tests.support.many import enqueued_ids
from tests.support.plans import explain, fill
from tests.support.worker_rows import ALIVE, register, worker

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("jobs_per_worker", {"worker_ids": [1, 2, 3], "limit": 1001}), ("jobs_of_worker", {"worker_id": 3, "limit": 101})],
)
def test_jobs_of_workers_are_found_by_their_index(queue, name, parameters):
    fill(queue, 3000, "queued", "running")
    scans = [node for node in explain(queue, statement(name), parameters) if "Relation Name" in node]
    assert scans
    assert {node.get("Index Name") for node in scans} == {"pgqueue_jobs_running"}


def test_state_of_a_process_is_told_by_the_clock_of_the_database(queue, sql):
    one, two = register(queue, concurrency=2), register(queue)
    app.noop.enqueue_many([()] * 5)
    claim(queue, "default", limit=5, worker_id=one)
    sql("UPDATE pgqueue_workers SET started_at = now() - interval '1 h', heartbeat_at = now() - interval '10 min'")
    sql("UPDATE pgqueue_workers SET lease_until = now() - interval '5 min' WHERE id = %s", two)
    sql("UPDATE pgqueue_workers SET lease_until = now() + interval '5 min' WHERE id = %s", one)
    first, second = states_of(with_clock(Worker.objects.order_by("pk")), "default")
    assert (first.held, first.busy, first.ahead) == (5, 2, 3), "two slots, and three jobs that wait for one"
    assert (second.held, second.busy, second.ahead) == (0, 0, 0)
    assert (first.is_alive, second.is_alive) == (True, False)
    assert first.left_seconds > 0 > second.left_seconds
    assert first.up_seconds >= 3600
    assert first.silent_seconds >= 600


def test_jobs_of_a_process_are_told_up_to_a_limit_the_first_claimed_first(queue, sql):
    one, two = register(queue), register(queue)
    first, second, third, others = enqueued_ids(app.noop, [()] * 4)
    claim(queue, "default", limit=3, worker_id=one)
    claim(queue, "default", limit=1, worker_id=two)
    for job_id, minutes in ((first, 1), (second, 3), (third, 2)):
        sql("UPDATE pgqueue_jobs SET started_at = now() - make_interval(mins => %s) WHERE id = %s", minutes, job_id)
    assert [held.id for held in jobs_of(one, "default")] == [second, third, first]
    assert [held.id for held in jobs_of(one, "default", limit=2)] == [second, third]
    [held] = jobs_of(two, "default")
    assert (held.id, held.task, held.queue) == (others, app.noop.name, "default")


def test_process_that_names_no_queue_serves_all():
    assert served_text(Worker(queues=["mail", "m*", "-music"])) == "mail, m*, -music"
    assert served_text(Worker(queues=[])) == "all"


def test_no_worker_lives_once_its_lease_is_over():
    assert not has_living_worker("default")
    row = worker(lease_until=timezone.now() - ALIVE)
    assert not has_living_worker("default")
    Worker.objects.filter(pk=row.pk).update(lease_until=timezone.now() + ALIVE)
    assert has_living_worker("default")


@pytest.mark.parametrize(
    ("skipped", "told", "number"),
    [
        ({"gone": 2, "key_held": 1}, [(SkipReason.GONE, 2), (SkipReason.KEY_HELD, 1)], 10),
        ({"of another version": 5, "gone": 1}, [(SkipReason.GONE, 1)], 8),
        ([], [], 7),
        (None, [], 7),
    ],
)
def test_jobs_that_were_skipped_were_come_by_too(skipped, told, number):
    bulk_action = BulkAction(done=7, skipped=skipped)
    assert skipped_of(bulk_action) == told
    assert seen(bulk_action) == number
