"""Promotion of jobs that have come due."""

import datetime as dt

from django.db import transaction

import tests.app.tasks as app
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.models import Job
from tests.support.many import enqueued_ids


def test_promote_makes_due_jobs_claimable_and_leaves_others(queue, sql):
    due, later = enqueued_ids(app.noop.using(delay=dt.timedelta(hours=1)), [(), ()])
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s' WHERE id = %s", due)
    assert promote(queue).queues == {"default": 1}
    assert dict(Job.objects.values_list("id", "status")) == {due: "queued", later: "scheduled"}
    assert promote(queue) == ({}, {})


def test_promote_takes_a_bounded_slice_and_steps_over_locked_rows(queue, sql):
    ids = enqueued_ids(app.noop.using(delay=dt.timedelta(hours=1)), [()] * 1500)
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s'")
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=ids[0])
        assert promote(queue).queues == {"default": 1000}
        assert promote(queue).queues == {"default": 499}
    assert promote(queue).queues == {"default": 1}
