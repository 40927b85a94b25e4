"""What a run comes to that did not succeed: retried, died or released. Nothing is written here."""

import asyncio
import logging
import math
from collections.abc import Callable

from django_pgqueue import registry
from django_pgqueue.db.errors import one_line
from django_pgqueue.exceptions import (
    Discard,
    JobControl,
    JobInterrupted,
    JobKilled,
    ResultRefused,
    RetryLater,
    TimeLimitExceeded,
)
from django_pgqueue.lifecycle.context import CurrentJob
from django_pgqueue.lifecycle.describe import describe, message_of
from django_pgqueue.lifecycle.redact import scrubber_of
from django_pgqueue.log_lines import fields
from django_pgqueue.records import ClaimedJob, Fate, Outcome
from django_pgqueue.retry_policy import with_jitter
from django_pgqueue.states import Reason

logger = logging.getLogger("django_pgqueue.jobs")

UNKNOWN_DELAY_SECONDS = 30.0
LONGEST_BACKOFF_SECONDS = 10 * 365 * 24 * 3600.0
KILLED = "Somebody asked for it to stop."


class NotCharged(JobControl):
    """The run could not be begun or committed, through no fault of the task: it is repeated and not counted."""

    def __init__(self, message: str, *, delay_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.delay_seconds = delay_seconds


def failure(task: registry.TaskDefinition, job: ClaimedJob, error: BaseException, current: CurrentJob) -> Outcome:
    """Return the outcome of a run that raised: retried, died or released, by what it raised."""
    scrub = scrubber_of(task, job)
    if current.is_cancelled:
        if isinstance(error, JobInterrupted | asyncio.CancelledError):
            error = _named(error, JobKilled(KILLED))
        return Outcome(job, Fate.DIED, reason=Reason.KILLED, error=describe(error, scrub))
    match error:
        case RetryLater() | NotCharged():
            return _released(job, error, scrub)
        case ResultRefused():
            return Outcome(job, Fate.DIED, reason=Reason.DISCARDED, error=describe(error.__cause__ or error, scrub))
        case Discard():
            return Outcome(job, Fate.DIED, reason=Reason.DISCARDED, error=describe(error, scrub))
    if current.is_overdue:
        error = _named(error, TimeLimitExceeded(f"It was interrupted after its time limit of {job.timeout_seconds} s."))
    is_discarded = _is_discarded(task, job, error)
    if is_discarded or job.attempt >= job.max_attempts:
        reason = Reason.DISCARDED if is_discarded else Reason.EXHAUSTED
        return Outcome(job, Fate.DIED, reason=reason, error=describe(error, scrub))
    return Outcome(job, Fate.RETRIED, delay_seconds=_backoff(task, job), error=describe(error, scrub))


def _released(job: ClaimedJob, error: RetryLater | NotCharged, scrub: Callable[[str], str]) -> Outcome:
    if isinstance(error, RetryLater):
        logger.info(
            "Job %s (%s) asks to run later: %s",
            job.id,
            job.task,
            scrub(message_of(error)),
            extra=fields(job, outcome="released"),
        )
        return Outcome(job, Fate.RELEASED, delay_seconds=max(error.seconds, 0.001))
    logger.warning(
        "Job %s (%s) goes back, and its attempt does not count: %s: %s",
        job.id,
        job.task,
        error,
        scrub(one_line(error.__cause__ or error)),
        extra=fields(job, outcome="released"),
    )
    return Outcome(job, Fate.RELEASED, delay_seconds=with_jitter(error.delay_seconds))


def unknown_task(job: ClaimedJob) -> Outcome:
    """Return the outcome of a job whose task this code does not know, as in the middle of a deploy.

    It goes back with its attempt restored. One that has never run goes to ``dead_jobs`` when a day has not helped; one
    that has was known before, and waits for the code to come back.
    """
    if job.was_killed:
        return Outcome(job, Fate.DIED, reason=Reason.KILLED, error=describe(JobKilled(KILLED)))
    if job.attempt == 1 and job.is_old:
        error = {"error": "unknown task", "message": f"No worker has known the task {job.task!r} for a day."}
        return Outcome(job, Fate.DIED, reason=Reason.UNKNOWN_TASK, error=error)
    logger.warning(
        "Unknown task %s: job %s will be retried in %d s. Does this worker run the same code as the enqueuer, and is "
        "the task in a module that it loads? %s",
        job.task,
        job.id,
        UNKNOWN_DELAY_SECONDS,
        registry.WHERE_TASKS_ARE,
        extra=fields(job, outcome="released", delay_seconds=UNKNOWN_DELAY_SECONDS),
    )
    return Outcome(job, Fate.RELEASED, delay_seconds=UNKNOWN_DELAY_SECONDS)


def _named(error: BaseException, named: JobInterrupted) -> BaseException:
    """Return the exception that says why a run was interrupted; what the task made of it is its cause."""
    if isinstance(error, JobInterrupted):
        error.args = named.args  # the interpreter has made it, without a word
        return error
    named.__cause__ = error
    return named


def _is_discarded(task: registry.TaskDefinition, job: ClaimedJob, error: BaseException) -> bool:
    """Return whether the task says that another attempt does not mend this exception."""
    try:
        return task.discards.has(error)
    except BaseException:  # a module that is imported, or a metaclass: sys.exit() in it must not end the slot
        logger.exception("The discard_on of %s cannot be read for job %s", task.name, job.id, extra=fields(job))
        return False


def _backoff(task: registry.TaskDefinition, job: ClaimedJob) -> float:
    try:
        seconds = float(task.backoff(job.attempt))
        if not math.isfinite(seconds):
            raise ValueError(f"backoff returned {seconds}")  # noqa: TRY301 - handled like whatever else it raises
        return with_jitter(min(max(seconds, 0.0), LONGEST_BACKOFF_SECONDS))
    except BaseException:  # user code: sys.exit() in it must not end the slot
        logger.exception(
            "The backoff of %s failed; job %s is tried again in a minute", job.task, job.id, extra=fields(job)
        )
        return with_jitter(60.0)
