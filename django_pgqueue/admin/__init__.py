"""The queue in Django's admin. Every action calls a verb of ``lifecycle/``.

::

    jobs, dead_jobs, finished_jobs    the tables of jobs
    queues, schedules                 what people set
    workers, operations               what works
    overview                          how all of it stands
      base     what these share
    pages/     the page of one job, causes of death, forms
    verbs/     what staff may do, from the button to the answer
    lists/     lists that cost the same whatever the size of their table
    parts/     what any page is made of

Imports go down this list only.
"""

from django_pgqueue.admin.bulk_actions import OperationAdmin
from django_pgqueue.admin.dead_jobs import DeadJobAdmin
from django_pgqueue.admin.finished_jobs import FinishedJobAdmin
from django_pgqueue.admin.jobs import JobAdmin
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
