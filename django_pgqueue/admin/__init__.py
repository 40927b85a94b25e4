"""The queue in Django's admin. Every action calls an action of ``jobs/``, ``flow/`` or ``schedules/``.

::

    jobs, dead_jobs, succeeded_jobs    the tables of jobs, and dead jobs by their error
    queues, schedules                 what people set
    workers, bulk_actions             what works
    workflows, stages                 jobs that belong together, drawn by workflow_graph, changed by workflow_actions
    once_keys                         the keys of once()
    overview                          all of it at a glance
    job_page                          the page of one job
    enqueue, retry_with, forms        what people enter
    actions, confirm_all              from the button to the answer, for the actions in row_actions
    changelist, filters, keyset       lists that cost the same for a table of any size, paged by keyset
    base, databases, job_tables       what all these pages share, and those of jobs
    formatting, links, charts         what any page is made of
"""

from django_pgqueue.admin.bulk_actions import BulkActionAdmin
from django_pgqueue.admin.dead_jobs import DeadJobAdmin
from django_pgqueue.admin.jobs import JobAdmin
from django_pgqueue.admin.once_keys import OnceKeyAdmin
from django_pgqueue.admin.overview import OverviewAdmin
from django_pgqueue.admin.queues import QueueAdmin
from django_pgqueue.admin.schedules import ScheduleAdmin
from django_pgqueue.admin.stages import StageAdmin
from django_pgqueue.admin.succeeded_jobs import SucceededJobAdmin
from django_pgqueue.admin.workers import WorkerAdmin
from django_pgqueue.admin.workflows import WorkflowAdmin

__all__ = [
    "BulkActionAdmin",
    "DeadJobAdmin",
    "JobAdmin",
    "OnceKeyAdmin",
    "OverviewAdmin",
    "QueueAdmin",
    "ScheduleAdmin",
    "StageAdmin",
    "SucceededJobAdmin",
    "WorkerAdmin",
    "WorkflowAdmin",
]
