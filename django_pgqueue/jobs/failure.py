"""Decide the outcome of a run that raised: retry, snooze, die or release. Pure; writes nothing."""

import asyncio
import logging
import traceback
from typing import Any

from django_pgqueue import registry
from django_pgqueue.db.errors import one_line
from django_pgqueue.exceptions import (
    Discard,
    InvalidOption,
    JobControl,
    JobInterrupted,
    JobKilled,
    JobTimeout,
    ResultRefused,
    Retry,
    Snooze,
)
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.redaction import Scrub, scrub_end, scrubber_of
from django_pgqueue.log_lines import fields
from django_pgqueue.options import RetryRules
from django_pgqueue.records import ClaimedJob, Fate, Outcome
from django_pgqueue.retry_policy import with_jitter
from django_pgqueue.states import DeathReason, EntryKind

logger = logging.getLogger("django_pgqueue.jobs")

LONGEST_ERROR_BYTES = 8 * 1024
OWN_MODULES = "django_pgqueue.jobs."
LONGEST_TEXT = 16 * LONGEST_ERROR_BYTES  # of an exception, that is searched for sensitive values

UNKNOWN_DELAY_SECONDS = 30.0
KILLED = "It was asked to stop."


def error_entry(error: BaseException, scrub: Scrub = str) -> dict[str, Any]:
    """Return one entry of a job's history, storable for any exception, of at most 8 KB."""
    kind = type(error)
    message = message_of(error)
    trace = trace_of(error)
    return {
        "kind": EntryKind.FAILED,
        "error": _storable(f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."), 256),
        "message": _storable(scrub_end(scrub, message, LONGEST_TEXT), 1024),
        "traceback": _storable(scrub_end(scrub, trace, LONGEST_TEXT), LONGEST_ERROR_BYTES - 2048),
    }


def trace_of(error: BaseException) -> str:
    """Return the traceback of an exception, its text and its causes; empty where one of them cannot be printed.

    It begins where the code of the task does: the frames before are the same of every job.
    """
    frames = error.__traceback__
    while frames and frames.tb_frame.f_globals.get("__name__", "").startswith(OWN_MODULES):
        frames = frames.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))
    except Exception:  # noqa: BLE001 - an exception that cannot even be printed
        return ""


def message_of(error: BaseException) -> str:
    """Return the text of an exception, which may be one that raises when it is asked for."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot even be printed
        return "(its text cannot be read)"


def _storable(text: str, longest: int) -> str:
    kept = text if len(text) <= longest else f"[...]\n{text[-longest:]}"
    return kept.replace("\0", "\ufffd").encode(errors="replace").decode()


# Outcomes of failures


class NotCharged(JobControl):
    """The run could not be begun or committed, through no fault of the task: it is repeated and not counted."""

    def __init__(self, message: str, *, delay_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.delay_seconds = delay_seconds


def failure(task: registry.TaskDefinition, job: ClaimedJob, error: BaseException, current: CurrentJob) -> Outcome:
    """Return the outcome of a run that raised: retried, snoozed, died or released."""
    scrub = scrubber_of(task, job)
    if current.is_kill_requested:
        if isinstance(error, JobInterrupted | asyncio.CancelledError):
            error = _named(error, JobKilled(KILLED))
        return Outcome(job, Fate.DIED, reason=DeathReason.KILLED, error=error_entry(error, scrub))
    if isinstance(error, JobControl):
        return _decided(task, job, error, scrub)
    if current.is_timed_out:
        error = _named(error, JobTimeout(f"It was interrupted after its time limit of {job.timeout_seconds} s."))
    if _is_discarded(task, job, error):
        return Outcome(job, Fate.DIED, reason=DeathReason.DISCARDED, error=error_entry(error, scrub))
    return _failed(task, job, error, scrub)


def _decided(task: registry.TaskDefinition, job: ClaimedJob, error: JobControl, scrub: Scrub) -> Outcome:
    """Return the outcome of a run that has decided it itself, or that did not come to one."""
    match error:
        case NotCharged():
            return _released(job, error, scrub)
        case Snooze():
            return _snoozed(task, job, error, scrub)
        case Discard():
            told = error.__cause__ if isinstance(error, ResultRefused) else None
            return Outcome(job, Fate.DIED, reason=DeathReason.DISCARDED, error=error_entry(told or error, scrub))
        case Retry():
            told = None if message_of(error) else error.__cause__
            return _failed(task, job, told or error, scrub, delay_seconds=error.seconds)
    return _failed(task, job, error, scrub)


def _failed(
    task: registry.TaskDefinition,
    job: ClaimedJob,
    error: BaseException,
    scrub: Scrub,
    *,
    delay_seconds: float | None = None,
) -> Outcome:
    """Return the outcome of a failed attempt: retried after the delay, or the backoff; dead, if it was the last."""
    entry = error_entry(error, scrub)
    if job.attempt >= job.max_attempts:
        return Outcome(job, Fate.DIED, reason=DeathReason.EXHAUSTED, error=entry)
    seconds = _backoff(task, job, error) if delay_seconds is None else delay_seconds
    return Outcome(job, Fate.RETRIED, delay_seconds=seconds, error=entry)


def _snoozed(task: registry.TaskDefinition, job: ClaimedJob, error: Snooze, scrub: Scrub) -> Outcome:
    """Return the outcome of a run that has asked to run later: dead, where it has done so as often as it may."""
    most = _retry_rules(task, job).max_snoozes
    if most is not None and job.snoozes >= most:
        entry = error_entry(error, scrub)
        bound = f"It has snoozed {job.snoozes} times, and max_snoozes is {most}"
        entry["message"] = f"{bound}: {entry['message']}" if entry["message"] else f"{bound}."
        return Outcome(job, Fate.DIED, reason=DeathReason.EXHAUSTED, error=entry)
    logger.info(
        "Job %s (%s) snoozes for %g s: %s",
        job.id,
        job.task,
        error.seconds,
        scrub(message_of(error)) or "no reason given",
        extra=fields(job, outcome="snoozed", delay_seconds=error.seconds),
    )
    return Outcome(job, Fate.SNOOZED, delay_seconds=error.seconds)


def _released(job: ClaimedJob, error: NotCharged, scrub: Scrub) -> Outcome:
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

    It goes back with its attempt restored. One that has never run, or not since it was retried, goes to ``dead_jobs``
    when a day has not helped; one that has was known before, and waits for the code to come back.
    """
    if job.was_killed:
        return Outcome(job, Fate.DIED, reason=DeathReason.KILLED, error=error_entry(JobKilled(KILLED)))
    if job.attempt == 1 and job.is_old and not job.snoozes:
        message = f"No worker has known the task {job.task!r} for a day."
        error = {"kind": EntryKind.UNKNOWN_TASK, "error": "unknown task", "message": message}
        return Outcome(job, Fate.DIED, reason=DeathReason.UNKNOWN_TASK, error=error)
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
    if isinstance(error, JobInterrupted):
        error.args = named.args  # the interpreter has made it, without a word
        return error
    named.__cause__ = error
    return named


def _retry_rules(task: registry.TaskDefinition, job: ClaimedJob) -> RetryRules:
    try:
        return task.retry_rules
    except InvalidOption:
        logger.exception("PGQUEUE['TASK_DEFAULTS'] cannot be used for job %s (%s)", job.id, job.task, extra=fields(job))
        return RetryRules()


def _is_discarded(task: registry.TaskDefinition, job: ClaimedJob, error: BaseException) -> bool:
    try:
        return _retry_rules(task, job).discard_on.has(error)
    except BaseException:  # a module that is imported, or a metaclass: sys.exit() in it must not end the slot
        logger.exception("The discard_on of %s cannot be read for job %s", task.name, job.id, extra=fields(job))
        return False


def _backoff(task: registry.TaskDefinition, job: ClaimedJob, error: BaseException) -> float:
    try:
        return _retry_rules(task, job).backoff.seconds(job.attempt, error)
    except BaseException:  # user code: sys.exit() in it must not end the slot
        logger.exception(
            "The backoff of %s failed; job %s is tried again in a minute", job.task, job.id, extra=fields(job)
        )
        return with_jitter(60.0)
