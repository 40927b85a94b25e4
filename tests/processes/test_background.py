"""Bulk actions in the background, done by real workers."""

import pytest
from django.db import connection, transaction

import tests.app.tasks as app
from django_pgqueue.jobs.actions import KILL, RETRY
from django_pgqueue.jobs.bulk_actions import begin, stop
from django_pgqueue.jobs.dead_letter import DeadLetter, dead_letter
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import BulkAction, DeadJob, Job, SucceededJob
from django_pgqueue.states import DeathReason
from tests.app.models import Mark
from tests.support.many import enqueued_ids
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db(transaction=True)

ASIDE = ("--queue", "aside", "--concurrency", "1")  # so that what is retried stays where it can be counted


def bury(queue, number: int) -> list[int]:
    ids = enqueued_ids(app.record, [("x",)] * number)
    dead_letter(queue, [DeadLetter(job_id, 0, DeathReason.EXHAUSTED, {"error": "ValueError"}) for job_id in ids])
    return ids


def test_killed_worker_leaves_a_half_done_bulk_action_to_the_next_and_each_job_is_retried_once(queue, start_worker):
    ids = bury(queue, 5000)
    first = start_worker(*ASIDE).wait_until_ready()
    bulk_action_id = begin(RETRY, Filter(), by="ann", rate=100, expected=5000)
    eventually(lambda: BulkAction.objects.get(pk=bulk_action_id).done >= 100 or first.must_live())
    first.kill_group()
    with transaction.atomic():  # in one snapshot: the server may still be at the last thing it was told
        connection.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        before = BulkAction.objects.get(pk=bulk_action_id)
        assert before.done == Job.objects.count() == 5000 - DeadJob.objects.count()
    assert before.ended_at is None
    BulkAction.objects.update(rate=None)
    second = start_worker(*ASIDE)
    eventually(lambda: BulkAction.objects.get(pk=bulk_action_id).ended_at or second.must_live())
    after = BulkAction.objects.get(pk=bulk_action_id)
    assert (after.outcome, after.skipped, after.last_error) == ({"retried": 5000}, {}, "")
    assert list(Job.objects.order_by("id").values_list("id", flat=True)) == ids
    assert {len(errors) for errors in Job.objects.values_list("errors", flat=True)} == {2}
    assert not DeadJob.objects.exists()


def test_retried_jobs_run_at_once_and_running_ones_hear_of_their_kill(queue, start_worker):
    bury(queue, 20)
    app.sleep.enqueue(600)
    worker = start_worker("--concurrency", "4").wait_until_ready()
    begin(RETRY, Filter(), by="ann")
    eventually(lambda: Mark.objects.filter(label="x").count() == 20 or worker.must_live())
    eventually(lambda: SucceededJob.objects.count() == 20)
    eventually(lambda: Job.objects.filter(status="running", started_at__year__gt=1970).exists())
    begin(KILL, Filter(), by="ann")
    eventually(lambda: DeadJob.objects.filter(reason="killed", killed_by="ann").exists() or worker.must_live())


def test_stopped_bulk_action_leaves_the_rest_dead(queue, start_worker):
    bury(queue, 300)
    worker = start_worker(*ASIDE).wait_until_ready()
    bulk_action_id = begin(RETRY, Filter(), by="ann", rate=5)
    eventually(lambda: BulkAction.objects.get(pk=bulk_action_id).done or worker.must_live())
    assert stop([bulk_action_id], by="bob") == [bulk_action_id]
    done = BulkAction.objects.get(pk=bulk_action_id).done
    assert 0 < done < 300
    other_id = begin(RETRY, Filter(tasks=("nothing.like.it",)), by="ann")
    eventually(lambda: BulkAction.objects.get(pk=other_id).ended_at)
    assert (BulkAction.objects.get(pk=bulk_action_id).done, DeadJob.objects.count()) == (done, 300 - done)
