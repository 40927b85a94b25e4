"""Workers by the ids of their rows: ask them to stop, to be quiet, and to claim jobs again."""

from django_pgqueue.jobs.leases import quiet, resume, stop

__all__ = ["quiet", "resume", "stop"]
