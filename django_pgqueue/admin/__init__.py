"""Browse jobs and dead jobs in Django's admin, and act on them. Every action calls a verb of ``lifecycle/``."""

from django_pgqueue.admin.dead_jobs import DeadJobAdmin
from django_pgqueue.admin.jobs import JobAdmin

__all__ = ["DeadJobAdmin", "JobAdmin"]
