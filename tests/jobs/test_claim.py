"""Jobs are claimed in their order, each by one worker, with a lease token of its own."""

import datetime as dt

import pytest
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.jobs.claim import claim, new_lease_token, ready_queues, send
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.models import Job
from tests.support.many import enqueued_ids

BEFORE_ALL = (-101, 0.0, 0)
"""A place that every job comes after."""


def take(database, queue="default", limit=100):
    return claim(database, queue, limit=limit, worker_id=1)


def test_claim_takes_higher_priority_first_then_earlier_run_at(queue):
    low = app.noop.using(priority=-5).enqueue().id
    second = app.noop.enqueue().id
    first = app.noop.using(run_at=timezone.now() - dt.timedelta(hours=1)).enqueue().id
    high = app.noop.using(priority=5).enqueue().id
    assert [job.id for job in take(queue)] == [high, first, second, low]


def test_head_start_goes_before_jobs_that_have_waited_less_and_behind_the_others(queue, sql):
    """As a priority would that grows with each second of waiting; but nothing has to be written meanwhile."""
    head_starts = {app.noop.using(head_start=seconds or None).enqueue().id: seconds for seconds in (0, 600, 60, 0)}
    waited = dict(zip(head_starts, (300, 0, 120, 1200), strict=True))
    for job_id, seconds in waited.items():
        sql(
            "UPDATE pgqueue_jobs SET run_at = run_at - make_interval(secs => %s), "
            "enqueued_at = enqueued_at - make_interval(secs => %s) WHERE id = %s",
            seconds, seconds, job_id,
        )  # fmt: skip
    by_age = sorted(waited, key=lambda job_id: -(waited[job_id] + head_starts[job_id]))
    assert [job.id for job in take(queue)] == by_age
    assert by_age != [*waited]


@pytest.mark.django_db
@pytest.mark.parametrize("options", [{"delay": 3600}, {"fair_key": "a"}])
def test_head_start_is_for_jobs_that_run_at_once_and_have_no_fair_key(options):
    with_one = app.noop.using(head_start=600, **options).enqueue().id
    job = Job.objects.get(pk=with_one)
    assert job.run_at >= job.enqueued_at


def test_claim_counts_the_attempt_and_sets_the_lease(queue):
    handle = app.noop.using(lease=77).enqueue()
    [claimed] = take(queue)
    job = Job.objects.get(pk=handle.id)
    assert (job.status, job.attempts, job.worker_id, job.lease_token) == ("running", 1, 1, claimed.lease_token)
    assert claimed.attempt == 1
    assert job.lease_until - job.started_at == dt.timedelta(seconds=77)
    assert job.first_started_at == job.started_at


@pytest.mark.parametrize("above", [None, BEFORE_ALL])
def test_claim_leaves_scheduled_future_and_other_queues_alone(queue, sql, above):
    app.noop.using(delay=dt.timedelta(hours=1)).enqueue()
    app.noop.using(queue="mail").enqueue()
    sql("INSERT INTO pgqueue_jobs (task, run_at) VALUES ('x', now() + interval '1 hour')")
    with queue.transaction():
        claimed = send(queue, "default", limit=100, worker_id=1, above=above)
    assert claimed.jobs() == []


@pytest.mark.parametrize("above", [None, BEFORE_ALL])
def test_claim_skips_rows_that_another_worker_holds(queue, other_queue, above):
    ids = enqueued_ids(app.noop, [()] * 10)
    with queue.transaction():
        mine = send(queue, "default", limit=4, worker_id=1).jobs()
        with other_queue.transaction():
            theirs = send(other_queue, "default", limit=100, worker_id=2, above=above)
        assert not Job.objects.filter(pk__in=ids[:4]).exclude(status="queued"), "the first is still at it"
    assert [job.id for job in mine] == ids[:4]
    assert [job.id for job in theirs.jobs()] == ids[4:]


def test_claim_never_takes_more_than_its_limit(queue):
    app.noop.enqueue_many([()] * 50)
    assert [len(take(queue, limit=limit)) for limit in (1, 3, 9)] == [1, 3, 8]
    assert Job.objects.filter(status="running").count() == 12


def test_every_claim_has_a_token_of_its_own(queue):
    app.noop.enqueue_many([()] * 4)
    one, two = take(queue, limit=2), take(queue, limit=2)
    assert len({job.lease_token for job in one}) == len({job.lease_token for job in two}) == 1
    assert one[0].lease_token != two[0].lease_token
    assert all(0 < new_lease_token() < 2**63 for _ in range(1000))


def test_ready_queues_names_each_queue_with_work_once(queue):
    for name in ("b", "a", "b", "c"):
        app.noop.using(queue=name).enqueue()
    app.noop.using(queue="later", delay=dt.timedelta(hours=1)).enqueue()
    assert sorted(ready_queues(queue, QueueSelector())) == ["a", "b", "c"]
    assert ready_queues(queue, QueueSelector(["c", "later", "none", "a"])) == ["c", "a"]


def test_ready_queues_of_an_empty_table(queue):
    assert ready_queues(queue, QueueSelector()) == []
