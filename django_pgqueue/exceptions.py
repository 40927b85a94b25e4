"""Exceptions: errors, the three by which a job steers its own fate, and the two by which it is interrupted.

::

    PgQueueError
    ├── ConfigurationError     (ImproperlyConfigured)  settings, databases, declarations
    ├── TaskDoesNotExist       (LookupError)           no registered task has this name
    ├── InvalidOption          (ValueError)            an option, or another value, that is out of range
    ├── InvalidArguments       (TypeError, ValueError) arguments that do not fit, or are not JSON
    ├── InvalidSchedule        (ValueError)            a wrong cron entry, interval, time zone or other value
    ├── InvalidLimit           (ValueError)            a pause or a limit that cannot work
    ├── QueueFull              (queue.Full)            the queue has no room for more jobs
    ├── ShardUnavailable       (OperationalError)      the database that a job belongs on cannot be reached
    ├── InvalidBulkAction      (ValueError)            an action that can never be done to many jobs
    ├── InvalidFilter          (ValueError)            a filter on a field that these jobs do not have
    ├── InvalidWorkflow        (ValueError)            a workflow that cannot work
    ├── StageClosed                                    no members are added to this stage any more
    ├── WorkflowDoesNotExist   (LookupError)           no workflow has this id or key, or the job is no member
    ├── NoResult                                       base: there is no result of the job
    │   ├── JobDoesNotExist    (LookupError)           no job has this id
    │   ├── JobNotFinished                             it has not ended yet
    │   ├── JobNotCommitted                            it was enqueued in a transaction that is still open
    │   ├── JobDied                                    it is dead, for the reason in the name
    │   │   ├── JobFailed                              its last attempt failed, or it was discarded
    │   │   ├── JobWasKilled                           it was killed
    │   │   ├── JobExpired                             it was not started before its deadline
    │   │   ├── JobLost                                its workers died
    │   │   └── JobSuperseded                          a newer job has its unique key
    │   └── ResultNotKept      (LookupError)           it has succeeded, and its result is not there
    ├── NoCurrentJob           (LookupError)           current_job() outside of a job
    ├── NoTransaction          (TransactionManagementError) once() outside of a transaction
    ├── LeaseLost                                      the run has lost its lease
    └── Redacted                                       in the log, in place of an error with sensitive arguments

    JobControl
    ├── Discard                                        do not retry: the job dies at once
    │   └── ResultRefused                              the same, for a result that cannot be stored
    ├── Retry                                          fail the attempt, with a delay until the next one
    └── Snooze                                         run later, without spending the attempt

    JobInterrupted             (BaseException)
    ├── JobTimeout                                     the attempt took longer than its timeout
    └── JobKilled                                      it was asked to stop
"""

import datetime as dt
import queue as standard_queue
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError
from django.db.transaction import TransactionManagementError

from django_pgqueue.states import LONGEST_DELAY, DeathReason

__all__ = [
    "ConfigurationError",
    "Discard",
    "InvalidArguments",
    "InvalidBulkAction",
    "InvalidFilter",
    "InvalidLimit",
    "InvalidOption",
    "InvalidSchedule",
    "InvalidWorkflow",
    "JobControl",
    "JobDied",
    "JobDoesNotExist",
    "JobExpired",
    "JobFailed",
    "JobInterrupted",
    "JobKilled",
    "JobLost",
    "JobNotCommitted",
    "JobNotFinished",
    "JobSuperseded",
    "JobTimeout",
    "JobWasKilled",
    "LeaseLost",
    "NoCurrentJob",
    "NoResult",
    "NoTransaction",
    "PgQueueError",
    "QueueFull",
    "Redacted",
    "ResultNotKept",
    "ResultRefused",
    "Retry",
    "ShardUnavailable",
    "Snooze",
    "StageClosed",
    "TaskDoesNotExist",
    "WorkflowDoesNotExist",
]


class PgQueueError(Exception):
    """Every error that this package raises on purpose."""


class ConfigurationError(PgQueueError, ImproperlyConfigured):
    """A setting, a database alias or a task declaration cannot work."""


class TaskDoesNotExist(PgQueueError, LookupError):
    """No registered task has this name."""


class InvalidOption(PgQueueError, ValueError):
    """An option of a task or a job, or a value that a job gives, is out of range or of the wrong type.

    Nothing was enqueued or changed.
    """


class InvalidArguments(PgQueueError, TypeError, ValueError):
    """The arguments do not fit the task's signature, or cannot be stored as JSON. Nothing was enqueued."""


class InvalidSchedule(PgQueueError, ValueError):
    """A schedule cannot work: its cron entry, interval, time zone or another of its values is wrong."""


class InvalidLimit(PgQueueError, ValueError):
    """A pause or a limit of a queue is out of range or of the wrong type. Nothing was changed."""


class QueueFull(PgQueueError, standard_queue.Full):
    """The queue has as many queued jobs as its ``max_backlog`` allows.

    Nothing was enqueued, of several jobs none; the caller's transaction can go on.

    Attributes:
        queue: its name.
        max_backlog: its bound, of ``PGQUEUE["QUEUES"]``.
        queued: how many jobs are queued; counting stops at the bound.
    """

    def __init__(self, message: str, queue: str = "", max_backlog: int = 0, queued: int = 0) -> None:
        super().__init__(message)
        self.queue = queue
        self.max_backlog = max_backlog
        self.queued = queued


class ShardUnavailable(PgQueueError, OperationalError):
    """None of the databases that a job may be put on can be reached; with a key, that is one of them.

    Nothing was enqueued, of several jobs none.
    """


class InvalidBulkAction(PgQueueError, ValueError):
    """A bulk action can never be done: its action or its filter is unknown, or its rate is none."""


class InvalidFilter(PgQueueError, ValueError):
    """A filter asks for what the jobs of its table do not have, as live ones have no cause of death."""


class InvalidWorkflow(PgQueueError, ValueError):
    """A workflow cannot work, as one whose stages wait for each other. Nothing was enqueued."""


class StageClosed(PgQueueError):
    """The stage takes no more members: it is over, or sealed for code that is no member of its workflow."""


class WorkflowDoesNotExist(PgQueueError, LookupError):
    """No workflow has this id or unique key, or the running job is a member of none."""


class NoResult(PgQueueError):
    """The result of a job cannot be had; the kind says why."""


class JobDoesNotExist(NoResult, LookupError):
    """No job has this id: it was never committed, or nothing is kept of it any more."""


class JobNotFinished(NoResult):
    """The job has not ended yet.

    Attributes:
        status: where it is.
    """

    def __init__(self, message: str, status: str = "") -> None:
        super().__init__(message)
        self.status = status


class JobNotCommitted(NoResult):
    """The job was enqueued in the caller's transaction, which is still open: no worker sees it before the commit."""


class JobDied(NoResult):
    """The job is dead: it will not run again unless it is retried.

    It is raised itself where no worker has known the task of the job; else one of the kinds below.

    Attributes:
        reason: why it is dead, a ``DeathReason``.
        error: the last entry of its history: ``error``, the class, ``message``, ``traceback`` and more.
    """

    def __init__(self, message: str, reason: str = "", error: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.error: dict[str, Any] = error or {}


class JobFailed(JobDied):
    """The last attempt of the job has failed, or its task has raised ``Discard``."""


class JobWasKilled(JobDied):
    """The job was killed: before it ran, or while it did, when ``JobKilled`` was raised in it."""


class JobExpired(JobDied):
    """The job was not started before its deadline."""


class JobLost(JobDied):
    """The workers of the job died while they were running it."""


class JobSuperseded(JobDied):
    """A newer job has the unique key of this one."""


OF_REASON: Mapping[str, type[JobDied]] = {
    DeathReason.EXHAUSTED: JobFailed,
    DeathReason.DISCARDED: JobFailed,
    DeathReason.KILLED: JobWasKilled,
    DeathReason.EXPIRED: JobExpired,
    DeathReason.LOST: JobLost,
    DeathReason.SUPERSEDED: JobSuperseded,
    DeathReason.UNKNOWN_TASK: JobDied,
}


class ResultNotKept(NoResult, LookupError):
    """The job has succeeded, and its result is not there: it could not be stored, or only its unique key is kept."""


class NoCurrentJob(PgQueueError, LookupError):
    """``current_job()`` was called by code that runs for no job."""

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message
            or "No job is running here. Code that is also called without one asks is_in_job() first; a test enters one "
            "by testing.as_job(), or runs the task by testing.run_job(). A thread that a task starts has no job: call "
            "current_job() before, and pass it the values."
        )


class NoTransaction(PgQueueError, TransactionManagementError):
    """``once`` was called outside of a transaction: its key would stay even if the rest fails."""

    def __init__(self) -> None:
        super().__init__(
            "once() takes its key together with other writes of a transaction: call it in transaction.atomic(), or in "
            "a task with atomic=True."
        )


class LeaseLost(PgQueueError):
    """The run may no longer record its outcome: another worker has the job, or a person took it away.

    Raised inside the transaction of a task declared ``atomic=True``, so that its effects roll back.
    """


class Redacted(PgQueueError):
    """Replaces in the log an exception of a task whose text has sensitive arguments, which are left out."""


class JobControl(Exception):
    """Base of the exceptions by which a running job decides its own fate."""


class Discard(JobControl):
    """Raise in a task to stop trying: the job goes to the dead jobs at once, with this message as its story.

    Args:
        message: why there is no point in another attempt.
    """


class ResultRefused(Discard):
    """The return value of a task of Django's Tasks framework cannot be stored, for the reason that is its cause.

    The framework's contract calls that a failure. The work is done, so there is no other attempt.
    """


class Retry(JobControl):
    """Raise in a task to end the attempt as failed, and to say when the next one is due.

    It counts as any failure: after ``max_attempts`` of them the job goes to the dead jobs as exhausted. The history has
    this exception; where it has no message and is raised ``from`` another one, that one.

    Args:
        delay: seconds (0 to 100 years), or a ``timedelta``, from the end of the attempt; no jitter is added. None: the
            ``backoff`` of the task.
        message: the reason.

    Raises:
        InvalidOption: the delay is negative, longer than that, infinite or not a number.
    """

    seconds: float | None = None

    def __init__(self, delay: float | dt.timedelta | None = None, message: str = "") -> None:
        self.seconds = None if delay is None else delay_seconds("The delay of Retry", delay)
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[float | None, str]]:
        return type(self), (self.seconds, str(self))


class Snooze(JobControl):
    """Raise in a task to run it again later without spending an attempt.

    How often a job has done so is counted in its row. ``max_snoozes`` of the task, or ``expires`` of the job, bound it.

    Args:
        delay: seconds (0 to 100 years), or a ``timedelta``, from the end of this run.
        message: why not now; shown in the log.

    Raises:
        InvalidOption: the delay is negative, longer than that, infinite or not a number.
    """

    seconds: float = 0.0

    def __init__(self, delay: float | dt.timedelta, message: str = "") -> None:
        self.seconds = delay_seconds("The delay of Snooze", delay)
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[float, str]]:
        return type(self), (self.seconds, str(self))


def delay_seconds(what: str, delay: Any) -> float:
    """Return a delay as seconds; raise InvalidOption unless it is 0 seconds to 100 years, or such a timedelta."""
    seconds = delay.total_seconds() if isinstance(delay, dt.timedelta) else delay
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= LONGEST_DELAY.total_seconds():
        raise InvalidOption(
            f"{what} is 0 or more seconds or a timedelta, {LONGEST_DELAY.days} days at most, not {delay!r}."
        )
    return float(seconds)


class JobInterrupted(BaseException):
    """Raised inside a plain task from outside, wherever its Python code just is; clean up in ``finally``.

    Not an ``Exception``, so that ``except Exception`` lets it pass. An ``async def`` task gets
    ``asyncio.CancelledError`` instead.
    """


class JobTimeout(JobInterrupted):
    """The attempt has taken longer than the ``timeout`` of its job: a failure as any other, and retried as such."""


class JobKilled(JobInterrupted):
    """The job was killed. It goes to the dead jobs, also if the task raises another error; unless it returns."""
