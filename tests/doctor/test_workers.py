"""Missing workers, queues that none serves, workers that poll, and bulk actions that stand still are found."""

import pytest
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import enqueue_many, pause_queue
from django_pgqueue.doctor import Level
from django_pgqueue.jobs.actions import KILL
from django_pgqueue.jobs.bulk_actions import begin
from django_pgqueue.jobs.search import Filter
from tests.support.doctor import diagnosis, found, only
from tests.support.worker_rows import ALIVE, worker

pytestmark = pytest.mark.django_db


def test_no_worker_is_worse_while_jobs_wait():
    assert only("no-workers").level is Level.WARNING
    enqueue_many(app.noop.using(queue="mail"), [()])
    assert only("no-workers").level is Level.ERROR
    assert "mail" in only("no-workers").what
    worker(lease_until=timezone.now() - ALIVE)
    assert only("no-workers")
    worker()
    assert not found("no-workers")


def test_queue_that_no_living_worker_serves_is_named():
    worker(queues=["default", "m*", "-mail"])
    enqueue_many(app.noop.using(queue="mail"), [()] * 3)
    enqueue_many(app.noop.using(queue="music"), [()])
    finding = only("queue-not-served")
    assert (finding.facts["queues"], finding.level) == (["mail"], Level.ERROR)
    assert "mail (3)" in finding.what
    pause_queue("mail", by="ann")
    assert not found("queue-not-served")


def test_workers_that_poll_although_jobs_are_announced_are_found(settings):
    worker()
    worker(session_pid=0, supervisor_id=2)
    worker(session_pid=0, supervisor_id=2)
    worker(session_pid=0, supervisor_id=3, started_at=timezone.now())
    assert "1 of 3" in only("polling").what
    settings.PGQUEUE = {**settings.PGQUEUE, "NOTIFY": False}
    assert not found("polling")


@pytest.mark.usefixtures("living")
@pytest.mark.parametrize(("seconds", "is_found"), [(30, False), (70, True)])
def test_bulk_action_counts_as_stalled_when_its_slice_has_been_due_for_a_minute(sql, seconds, is_found):
    begin(KILL, Filter(), by="ann")
    sql("UPDATE pgqueue_bulk_actions SET next_at = statement_timestamp() - make_interval(secs => %s)", seconds)
    assert ("bulk-actions-stalled" in diagnosis()[0]) is is_found
