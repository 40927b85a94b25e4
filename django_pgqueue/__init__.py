"""The PostgreSQL a Django project already runs, as its job queue.

Everything listed in ``__all__`` is public and importable before Django's apps are loaded. ``jobs``, ``queues``,
``schedules``, ``workers`` and ``workflows`` are modules, loaded by ``from django_pgqueue import queues``.
"""

from django_pgqueue.exceptions import Discard, Retry, Snooze
from django_pgqueue.jobs.context import CurrentJob, JobContext, current_job, is_in_job, track
from django_pgqueue.jobs.finish import finish_job
from django_pgqueue.jobs.handle import JobHandle
from django_pgqueue.jobs.once import once
from django_pgqueue.keys import Limit, Unique
from django_pgqueue.options import CallOptions, TaskOptions
from django_pgqueue.retry_policy import exponential, retry_after
from django_pgqueue.schedules.periodic import periodic
from django_pgqueue.tasks import Call, Task, aenqueue_many, enqueue, enqueue_many, task
from django_pgqueue.workflows.graph import PREVIOUS, batch, chain, group, workflow
from django_pgqueue.workflows.handle import WorkflowHandle, current_workflow

__all__ = [
    "PREVIOUS",
    "Call",
    "CallOptions",
    "CurrentJob",
    "Discard",
    "JobContext",
    "JobHandle",
    "Limit",
    "Retry",
    "Snooze",
    "Task",
    "TaskOptions",
    "Unique",
    "WorkflowHandle",
    "aenqueue_many",
    "batch",
    "chain",
    "current_job",
    "current_workflow",
    "enqueue",
    "enqueue_many",
    "exponential",
    "finish_job",
    "group",
    "is_in_job",
    "jobs",
    "once",
    "periodic",
    "queues",
    "retry_after",
    "schedules",
    "task",
    "track",
    "workers",
    "workflow",
    "workflows",
]
