"""Tests of django-tasks-db that speak of any backend with a database, with ours in place of its own.

Its model is our tables, its worker is ``run_jobs``. How many statements its worker makes is left out.
"""

import contextlib
import types

from django.tasks import default_task_backend
from django.test import override_settings

from django_pgqueue.backend import PgQueueBackend
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.testing import run_jobs
from tests import tests as theirs

OURS = override_settings(
    TASKS={"default": {"BACKEND": "django_pgqueue.backend.PgQueueBackend", "QUEUES": ["default", "queue-1"]}}
)


class Rows:
    def values(self, *_):
        return Job.objects.values("id")

    def select_for_update(self):
        return Job.objects.select_for_update()

    def count(self):
        return Job.objects.count() + SucceededJob.objects.count() + DeadJob.objects.count()

    def get(self, *, id):  # noqa: A002 - Django's word
        return default_task_backend.get_result(id)

    def ready(self):
        return Job.objects.filter(status="queued")

    def successful(self):
        return SucceededJob.objects.all()

    def failed(self):
        return DeadJob.objects.all()


theirs.DBTaskResult = types.SimpleNamespace(objects=Rows())
theirs.DatabaseBackend = PgQueueBackend


def only(*names):
    """Leave all other tests of the class out."""

    def leave(case):
        for name in dir(case):
            if name.startswith("test_") and name.removeprefix("test_") not in names:
                setattr(case, name, None)
        return case

    return leave


@OURS
@only(
    "using_correct_backend",
    "enqueue_task",
    "enqueue_task_async",
    "get_result",
    "get_result_async",
    "get_missing_result",
    "async_get_missing_result",
    "invalid_uuid",
    "async_invalid_uuid",
    "check",
    "doesnt_wait_until_transaction_commit",
    "enqueue_logs",
    "run_after_tz",
    "validate_on_enqueue",
    "validate_on_aenqueue",
)
class Backend(theirs.DatabaseBackendTestCase):
    pass


@OURS
@only(
    "run_enqueued_task",
    "batch_processes_all_tasks",
    "no_tasks",
    "doesnt_process_different_queue",
    "process_all_queues",
    "process_all_queues_excluding_one_queue",
    "excluding_unknown_queue_processes_selected_queues",
    "failing_task",
    "complex_exception",
    "complex_return_value",
    "worker_doesnt_exit_on_failure",
    "worker_with_locked_rows",
    "takes_context",
    "context",
)
class Worker(theirs.DatabaseBackendWorkerTestCase):
    def assertNumQueries(self, *_, **__):
        return contextlib.nullcontext()

    def run_worker(self, *, queue_name="default", exclude_queues=""):
        excluded = [f"-{name}" for name in exclude_queues.split(",") if name]
        run_jobs(queue=[*queue_name.split(","), *excluded], errors="collect")
