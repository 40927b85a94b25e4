"""Jobs, dead jobs, queues and schedules in Django's admin. Every action calls a verb of ``lifecycle/``."""

from django_pgqueue.admin.dead_jobs import DeadJobAdmin
from django_pgqueue.admin.finished_jobs import FinishedJobAdmin
from django_pgqueue.admin.jobs import JobAdmin
from django_pgqueue.admin.operations import OperationAdmin
from django_pgqueue.admin.overview import OverviewAdmin
from django_pgqueue.admin.queues import QueueAdmin
from django_pgqueue.admin.schedules import ScheduleAdmin
from django_pgqueue.admin.workers import WorkerAdmin

__all__ = [
    "DeadJobAdmin",
    "FinishedJobAdmin",
    "JobAdmin",
    "OperationAdmin",
    "OverviewAdmin",
    "QueueAdmin",
    "ScheduleAdmin",
    "WorkerAdmin",
]
