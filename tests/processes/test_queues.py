"""Limits of queues before real workers."""

import json
import os
import signal

import pytest

import tests.app.tasks as app
from django_pgqueue import queues
from django_pgqueue.db.connections import POSTGRESQL_17
from django_pgqueue.models import Job, Queue, SucceededJob
from tests.app.models import Mark
from tests.support.crash_points import Point
from tests.support.many import enqueued_ids
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def test_pause_lets_nothing_start_and_what_runs_end_and_workers_are_told_of_the_end(start_worker):
    """Jobs of some milliseconds, so that the children fetch ahead, beside one that takes its time."""
    long = app.sleep.using(priority=5).enqueue(2.0).id
    app.pause.enqueue_many([(0.005,)] * 20_000)
    worker = start_worker("--concurrency", "4", PGQUEUE=json.dumps({"POLL_SECONDS": 3600}))
    eventually(lambda: SucceededJob.objects.count() > 100)
    queues.pause("default", by="ann")
    eventually(lambda: set(Job.objects.filter(status="running").values_list("id", flat=True)) <= {long})
    left = set(Job.objects.filter(status="queued").values_list("id", flat=True))
    assert left
    assert set(Job.objects.filter(pk__in=left).values_list("attempts", flat=True)) == {0}
    mail = app.record.using(queue="mail").enqueue().id
    eventually(lambda: SucceededJob.objects.filter(pk__in=[mail, long]).count() == 2)
    assert set(Job.objects.values_list("id", flat=True)) == left
    Job.objects.filter(pk__in=sorted(left)[20:]).delete()
    queues.resume("default", by="ann")
    eventually(lambda: not Job.objects.exists())
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_no_more_jobs_run_than_may_over_all_workers(start_worker):
    queues.limit("default", max_running=3)
    app.count_running.enqueue_many([(3,)] * 200)
    workers = [start_worker("--processes", "2", "--concurrency", "2", "--drain") for _ in range(2)]
    assert [worker.wait() for worker in workers] == [0, 0]
    assert (SucceededJob.objects.count(), Mark.objects.filter(label="too many").count()) == (200, 0)


def test_command_frozen_at_a_limit_keeps_no_worker_from_other_queues_nor_for_ever_from_this_one(
    start_worker, sql, tmp_path
):
    """It holds the lock of admission, in a transaction whose end the server does not hear of."""
    [(version,)] = sql("SELECT current_setting('server_version_num')::integer")
    queues.limit("default", max_running=2)
    point = Point(tmp_path, "limited claim sent")
    point.arm("freeze")
    environment = {"LEASE_SECONDS": "3", "PGQUEUE": json.dumps({"STATEMENT_TIMEOUT_SECONDS": 1})}
    frozen = start_worker("--concurrency", "1", CRASH_POINTS=str(tmp_path), **environment)
    ids = enqueued_ids(app.record.using(lease=3), [("limited",)] * 5)
    eventually(lambda: not point.is_armed)
    other = start_worker("--concurrency", "2", **environment)
    mail = enqueued_ids(app.record.using(queue="mail"), [("plain",)] * 5)
    eventually(lambda: SucceededJob.objects.filter(pk__in=mail).count() == 5)
    if version >= POSTGRESQL_17:
        eventually(lambda: SucceededJob.objects.filter(pk__in=ids).count() == 5)
    os.killpg(frozen.process.pid, signal.SIGCONT)
    eventually(lambda: SucceededJob.objects.filter(pk__in=ids).count() == 5)
    for worker in (frozen, other):
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.text()


def test_queues_are_noted_by_workers(start_worker):
    app.record.using(queue="mail").enqueue()
    app.record.using(queue="later").enqueue()
    start_worker("--queue", "mail")
    eventually(lambda: set(Queue.objects.values_list("name", flat=True)) == {"mail", "later"})
