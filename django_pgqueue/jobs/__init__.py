"""Jobs by their ids or unique keys: look one up, kill, retry, run now, move, set the priority, purge."""

from django_pgqueue.jobs.completion import Completion, EndedJob, as_completed, await_all, wait_all
from django_pgqueue.jobs.dead_letter import RetryResult, retry
from django_pgqueue.jobs.handle import aget, get
from django_pgqueue.jobs.lookup import JobState
from django_pgqueue.jobs.manage import Killed, kill, move, purge, run_now, set_priority

__all__ = [
    "Completion",
    "EndedJob",
    "JobState",
    "Killed",
    "RetryResult",
    "aget",
    "as_completed",
    "await_all",
    "get",
    "kill",
    "move",
    "purge",
    "retry",
    "run_now",
    "set_priority",
    "wait_all",
]
