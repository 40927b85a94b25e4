"""Which job this code runs for."""

import contextvars

from django_pgqueue.base.records import ClaimedJob


class CurrentJob:
    """What a running task may know of its job."""

    is_cancelled = False
    """Whether somebody asked for this job to stop. Check it in long loops."""

    def __init__(self, job: ClaimedJob) -> None:
        self._job = job

    @property
    def id(self) -> int:
        """The job's id, the same for life."""
        return self._job.id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._job.attempt

    @property
    def max_attempts(self) -> int:
        """The bound on attempts."""
        return self._job.max_attempts

    @property
    def task(self) -> str:
        """The name it was enqueued under."""
        return self._job.task

    @property
    def queue(self) -> str:
        """Its queue."""
        return self._job.queue


_current: contextvars.ContextVar[CurrentJob | None] = contextvars.ContextVar("django_pgqueue_job", default=None)


def current_job() -> CurrentJob | None:
    """Return the job that the calling code runs for, or None outside of a worker."""
    return _current.get()


def enter(job: CurrentJob) -> None:
    """Make ``job`` the current one of this context, which is made for one job and left with it."""
    _current.set(job)
