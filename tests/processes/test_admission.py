"""Real workers share concurrency keys: never more than may be at once, in their order, whatever dies."""

import json
from itertools import groupby, pairwise

import pytest

import tests.app.tasks as app
from django_pgqueue.models import DeadJob, Job, SucceededJob
from tests.app.models import Mark
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

DEAF = {"PGQUEUE": json.dumps({"NOTIFY": False, "POLL_SECONDS": 0.2})}
PATIENT = {"PGQUEUE": json.dumps({"POLL_SECONDS": 3600})}
"""Only what it is told of can make it look for jobs."""


def test_two_commands_share_keys_in_order_though_one_is_killed(start_worker):
    keys = [f"key {number}" for number in range(20)]
    ids = []
    for number in range(600):
        key = keys[number % 20]
        ids.append(app.exclusive.using(limit_key=key, lease=10).enqueue(key).id)
    doomed = start_worker("--concurrency", "8", LEASE_SECONDS="10")
    start_worker("--processes", "2", "--concurrency", "8", LEASE_SECONDS="10").wait_until_ready()
    eventually(lambda: Mark.objects.count() >= 200)
    doomed.kill_group()
    eventually(lambda: not Job.objects.exists())
    begun = list(Mark.objects.order_by("label", "id").values_list("label", "job_id"))
    assert {key for key, _ in begun} == set(keys), "none found another session there"
    for key, runs in groupby(begun, key=lambda run: run[0]):
        in_order = [job_id for _, job_id in runs]
        assert all(before <= after for before, after in pairwise(in_order)), key
    assert {job_id for _, job_id in begun} == set(ids)
    assert not DeadJob.objects.exists()


def test_frozen_worker_keeps_no_key_but_that_of_its_job(start_worker):
    held = app.sleep.using(limit_key="reserved", lease=3600).enqueue(600).id
    frozen = start_worker("--concurrency", "2", LEASE_SECONDS="3600").wait_until_ready()
    eventually(lambda: Mark.objects.filter(job_id=held).exists())
    frozen.freeze()
    behind = app.record.using(limit_key="reserved").enqueue("behind").id
    for key in ("a", "b", "c"):
        app.record.using(limit_key=key).enqueue_many([(key,)] * 5)
    start_worker("--concurrency", "2")
    eventually(lambda: SucceededJob.objects.count() == 15)
    assert dict(Job.objects.values_list("id", "status")) == {held: "running", behind: "limited"}


def test_waiting_jobs_are_found_though_they_are_not_announced(start_worker, settings):
    settings.PGQUEUE = {"NOTIFY": False}
    start_worker(**DEAF).wait_until_ready()
    app.record.using(limit_key="k").enqueue_many([("x",)] * 5)
    eventually(lambda: SucceededJob.objects.count() == 5)


def test_job_of_a_queue_that_others_serve_is_let_in_and_they_are_told(start_worker):
    """Neither looks for jobs by itself: each is told by the process that has let the next one in."""
    for queue in ("one", "two"):
        start_worker("--queue", queue, **PATIENT).wait_until_ready()
    for number in range(6):
        queue = ("one", "two")[number % 2]
        app.record.using(queue=queue, limit_key="k").enqueue(queue)
    eventually(lambda: SucceededJob.objects.count() == 6)
    assert list(Mark.objects.order_by("id").values_list("label", flat=True)) == ["one", "two"] * 3
