"""Jobs by their ids: look one up, kill, retry, run now, move, set the priority, purge."""

from django_pgqueue.jobs.actions import Killed, kill, move, purge, run_now, set_priority
from django_pgqueue.jobs.dead_letter import RetryResult, retry
from django_pgqueue.jobs.handle import get
from django_pgqueue.jobs.lookup import JobState

__all__ = ["JobState", "Killed", "RetryResult", "get", "kill", "move", "purge", "retry", "run_now", "set_priority"]
