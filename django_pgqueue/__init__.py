"""The PostgreSQL a Django project already runs, as its job queue.

Everything listed in ``__all__`` is public and importable before Django's apps are loaded.
"""

from django_pgqueue.exceptions import Discard, RetryLater
from django_pgqueue.flow.queue_limits import limit_queue, pause_queue, resume_queue
from django_pgqueue.jobs.actions import kill, move_jobs, purge, run_now, set_priority
from django_pgqueue.jobs.context import current_job, is_in_job
from django_pgqueue.jobs.dead_letter import retry
from django_pgqueue.options import TaskOptions
from django_pgqueue.results.handle import JobHandle, job
from django_pgqueue.schedules.manage import pause_schedules, resume_schedules, run_schedules
from django_pgqueue.schedules.periodic import periodic
from django_pgqueue.tasks import Task, enqueue, enqueue_many, enqueue_on_commit, task

__all__ = [
    "Discard",
    "JobHandle",
    "RetryLater",
    "Task",
    "TaskOptions",
    "current_job",
    "enqueue",
    "enqueue_many",
    "enqueue_on_commit",
    "is_in_job",
    "job",
    "kill",
    "limit_queue",
    "move_jobs",
    "pause_queue",
    "pause_schedules",
    "periodic",
    "purge",
    "resume_queue",
    "resume_schedules",
    "retry",
    "run_now",
    "run_schedules",
    "set_priority",
    "task",
]
