"""Jobs by their ids or unique keys: look one up, kill, retry, run now, move, set the priority, purge."""

from django_pgqueue.jobs.dead_letter import RetryResult, retry
from django_pgqueue.jobs.handle import aget, get
from django_pgqueue.jobs.lookup import JobState
from django_pgqueue.jobs.manage import Killed, kill, move, purge, run_now, set_priority

__all__ = [
    "JobState",
    "Killed",
    "RetryResult",
    "aget",
    "get",
    "kill",
    "move",
    "purge",
    "retry",
    "run_now",
    "set_priority",
]
