"""Which job this code runs for."""

import contextvars
import datetime as dt
import json
import math
from typing import Any

from django_pgqueue.base.exceptions import InvalidJob
from django_pgqueue.base.options import Options
from django_pgqueue.base.records import ClaimedJob


class CurrentJob:
    """What a running task may know of its job."""

    is_cancelled = False
    """Whether somebody asked for this job to stop. Check it in long loops."""

    is_overdue = False
    """Whether its time limit has passed, and it was interrupted for that."""

    again: Options | None = None
    """When the next job like it is to run, if the task has asked for one."""

    # For those who interrupt it, monotonic.
    stop_at = math.inf  # when to do so next
    interrupted_at = 0.0  # when they first did

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

    @property
    def metadata(self) -> dict[str, Any]:
        """What ``using(metadata=…)`` gave it, as it was when this attempt was claimed."""
        return dict(json.loads(self._job.rest)["metadata"]) if self._job.rest else {}

    def run_again(self, when: float | dt.timedelta | dt.datetime = 0) -> None:
        """Let another job like this one follow when it has succeeded: same task, arguments, options and keys.

        The job that follows has an id of its own and this one for its parent. It is inserted by the statement that
        writes down the success: both, or neither. If this run fails, or somebody has asked for the job to stop, none
        follows. Of several calls the last counts.

        Args:
            when: seconds (0 or more) or a timedelta after the end of this run, or an aware datetime. One that is due at
                once starts within about a second.

        Raises:
            InvalidJob: it is negative, more than 100 years away, naive while USE_TZ is on, or of another type.
        """
        if isinstance(when, int | float) and not isinstance(when, bool):
            try:
                when = dt.timedelta(seconds=when)
            except (OverflowError, ValueError) as error:
                raise InvalidJob(f"run_again takes 0 or more seconds, not {when!r}.") from error
        if not isinstance(when, dt.timedelta | dt.datetime) or (
            isinstance(when, dt.timedelta) and when < dt.timedelta()
        ):
            raise InvalidJob(f"run_again takes 0 or more seconds, a timedelta or a datetime, not {when!r}.")
        self.again = Options(run_at=when)


_current: contextvars.ContextVar[CurrentJob | None] = contextvars.ContextVar("django_pgqueue_job", default=None)


def current_job() -> CurrentJob | None:
    """Return the job that the calling code runs for, or None outside of a worker."""
    return _current.get()


def enter(job: CurrentJob) -> None:
    """Make ``job`` the current one of this context, which is made for one job and left with it."""
    _current.set(job)
