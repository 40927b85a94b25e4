"""Queues by their names: pause, resume and limit them, for all workers together."""

from django_pgqueue.flow.queue_limits import limit, pause, resume

__all__ = ["limit", "pause", "resume"]
