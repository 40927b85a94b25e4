"""Workers by the ids of their rows: ask them to stop."""

from django_pgqueue.jobs.leases import stop

__all__ = ["stop"]
