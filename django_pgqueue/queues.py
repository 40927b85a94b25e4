"""Queues by their names: pause, resume and limit them, for all workers together; restore the limits of the code."""

from django_pgqueue.flow.declared_queues import restore
from django_pgqueue.flow.queue_limits import limit, pause, resume

__all__ = ["limit", "pause", "restore", "resume"]
