"""The backend of Django's Tasks framework that runs its tasks as jobs: ``TASKS`` names ``PgQueueBackend``.

Imported while tasks are being declared, before apps are loaded: nothing here needs models or the database to be
imported.
"""

from django_pgqueue.backend.backend import PgQueueBackend
from django_pgqueue.backend.native_tasks import PgQueueTask, job_options
from django_pgqueue.backend.results import PgQueueTaskResult

__all__ = ["PgQueueBackend", "PgQueueTask", "PgQueueTaskResult", "job_options"]
