"""Which job this code runs for."""

import contextvars
from dataclasses import dataclass

from django_pgqueue.base.records import ClaimedJob


@dataclass(slots=True)
class CurrentJob:
    """What a running task may know of its job.

    Attributes:
        id: the job's id, the same for life.
        attempt: the number of this attempt, from 1.
        max_attempts: the bound on attempts.
        task: the name it was enqueued under.
        queue: its queue.
        is_cancelled: whether somebody asked for this job to stop. Check it in long loops.
    """

    id: int
    attempt: int
    max_attempts: int
    task: str
    queue: str
    is_cancelled: bool = False

    @classmethod
    def of(cls, job: ClaimedJob) -> "CurrentJob":
        return cls(job.id, job.attempt, job.max_attempts, job.task, job.queue)


_current: contextvars.ContextVar[CurrentJob | None] = contextvars.ContextVar("django_pgqueue_job", default=None)


def current_job() -> CurrentJob | None:
    """Return the job that the calling code runs for, or None outside of a worker."""
    return _current.get()


def enter(job: CurrentJob | None) -> None:
    """Make ``job`` the current one of this thread or async context; None for none."""
    _current.set(job)
