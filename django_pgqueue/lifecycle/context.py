"""Which job this code runs for."""

import contextvars
import threading
from dataclasses import dataclass, field

from django_pgqueue.base.records import Job


@dataclass(frozen=True)
class CurrentJob:
    """What a running task may know of its job.

    Attributes:
        id: the job's id, the same for life.
        attempt: the number of this attempt, from 1.
        max_attempts: the bound on attempts.
        task: the name it was enqueued under.
        queue: its queue.
    """

    id: int
    attempt: int
    max_attempts: int
    task: str
    queue: str
    _cancelled: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    @classmethod
    def of(cls, job: Job) -> "CurrentJob":
        return cls(id=job.id, attempt=job.attempt, max_attempts=job.max_attempts, task=job.task, queue=job.queue)

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody asked for this job to stop, or its worker is about to. Check it in long loops."""
        return self._cancelled.is_set()

    def cancel(self) -> None:
        """Set ``is_cancelled``."""
        self._cancelled.set()


_current: contextvars.ContextVar[CurrentJob | None] = contextvars.ContextVar("django_pgqueue_job", default=None)


def current_job() -> CurrentJob | None:
    """Return the job that the calling code runs for, or None outside of a worker."""
    return _current.get()


def enter(job: CurrentJob | None) -> None:
    """Make ``job`` the current one of this thread or async context; None for none."""
    _current.set(job)
