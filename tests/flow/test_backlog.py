"""``max_backlog``: a queue that has as many queued jobs as it may have refuses more, and nothing else."""

import pickle
import queue as standard_queue

import pytest
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue import enqueue_many, schedules
from django_pgqueue.exceptions import QueueFull
from django_pgqueue.flow.backlog import max_backlog
from django_pgqueue.models import Job
from tests.support.schedules import make

pytestmark = pytest.mark.django_db

BOUND = 3


@pytest.fixture(autouse=True)
def _bounded(settings):
    declared = {"mail": {"max_backlog": BOUND}, "reports": {"max_running": 1}}
    settings.PGQUEUE = {**settings.PGQUEUE, "QUEUES": declared}


def in_mail(**options):
    return app.noop.using(queue="mail", **options)


def test_job_above_the_bound_is_refused_and_the_transaction_goes_on():
    with transaction.atomic():
        for _ in range(BOUND):
            in_mail().enqueue()
        with pytest.raises(QueueFull, match="'mail' has at least 3 queued jobs and a max_backlog of 3") as caught:
            in_mail().enqueue()
        app.noop.enqueue()
    assert Job.objects.filter(queue="mail").count() == BOUND
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.queue, error.max_backlog, error.queued) == ("mail", BOUND, BOUND)
    assert isinstance(error, standard_queue.Full)


def test_several_jobs_are_refused_together():
    in_mail().enqueue_many([()] * 2)
    with pytest.raises(QueueFull, match="has 2 queued jobs and a max_backlog of 3: there is no room for 2 more"):
        in_mail().enqueue_many([()] * 2)
    with pytest.raises(QueueFull, match="no room for 2 more"):
        enqueue_many([in_mail().bind(), in_mail(priority=1).bind(), app.noop.bind()])
    assert Job.objects.count() == 2
    assert len(enqueue_many([in_mail().bind(), app.noop.bind()])) == 2


@pytest.mark.parametrize("options", [{"delay": 60}, {"unique_key": "a"}, {"limit_key": "a"}])
def test_full_queue_refuses_any_job(options):
    in_mail(**options).enqueue()
    in_mail().enqueue_many([()] * BOUND if "unique_key" not in options else [()] * (BOUND - 1))
    with pytest.raises(QueueFull):
        in_mail(**options).enqueue()


def test_only_queued_jobs_count(sql):
    in_mail(delay=60).enqueue_many([()] * BOUND)
    in_mail(limit_key="a").enqueue_many([()] * BOUND)
    in_mail().enqueue_many([()] * BOUND)
    with pytest.raises(QueueFull):
        in_mail().enqueue()
    sql(
        "UPDATE pgqueue_jobs SET status = 'running', lease_token = 1 "
        "WHERE id = (SELECT min(id) FROM pgqueue_jobs WHERE status = 'queued')"
    )
    in_mail().enqueue()


def test_schedule_that_is_run_now_is_not_refused():
    in_mail().enqueue_many([()] * BOUND)
    make("nightly", task=app.noop.name, options={"queue": "mail"})
    assert schedules.run(["nightly"])


@pytest.mark.parametrize("queue", ["default", "reports"])
def test_other_queues_are_not_counted(queue, django_assert_num_queries):
    with transaction.atomic(), django_assert_num_queries(1):
        app.noop.using(queue=queue).enqueue()
    assert max_backlog(queue) is None
