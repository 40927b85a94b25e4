"""Call the task of a job and say what it came to. Nothing is written here, except by ``atomic=True`` itself."""

import asyncio
import contextvars
import json
import logging
import math
import time
import traceback
from typing import Any

from django.db import transaction

from django_pgqueue import tasks
from django_pgqueue.base.backoff import with_jitter
from django_pgqueue.base.conf import conf
from django_pgqueue.base.exceptions import Discard, InvalidArguments, LeaseLost, RetryLater
from django_pgqueue.base.records import ClaimedJob, Fate, Outcome
from django_pgqueue.base.signals import job_finished, job_started
from django_pgqueue.base.states import Reason
from django_pgqueue.db import CallerConnection
from django_pgqueue.lifecycle import ack
from django_pgqueue.lifecycle.context import CurrentJob, enter
from django_pgqueue.lifecycle.payload import encode

logger = logging.getLogger("django_pgqueue.jobs")

LONGEST_ERROR_BYTES = 8 * 1024
UNKNOWN_DELAY_SECONDS = 30.0
LONGEST_BACKOFF_SECONDS = 10 * 365 * 24 * 3600.0


def run(task: tasks.Task[..., Any], job: ClaimedJob, current: CurrentJob) -> Outcome:
    """Run a plain task in this thread and return the outcome, whatever the task raises.

    It gets a copy of this thread's context: what it leaves in context variables, as a translation, is gone with it.
    """
    return contextvars.copy_context().run(_run, task, job, current)


async def arun(task: tasks.Task[..., Any], job: ClaimedJob, current: CurrentJob) -> Outcome:
    """Run an ``async def`` task in this asyncio task and return the outcome, whatever the task raises."""
    enter(current)
    if job_started.receivers:
        await job_started.asend_robust(job.task, job=job)
    begun = time.perf_counter()
    try:
        args, kwargs = _arguments(job)
        if job.timeout_seconds:
            async with asyncio.timeout(job.timeout_seconds):
                result = await task.func(*args, **kwargs)
        else:
            result = await task.func(*args, **kwargs)
        outcome = Outcome(job, Fate.SUCCEEDED, result=_result(job, result))
    except BaseException as error:  # noqa: BLE001 - the border: whatever it raises is the job's outcome
        outcome = failure(task, job, error, current)
    outcome.run_seconds = time.perf_counter() - begun
    if job_finished.receivers:
        await job_finished.asend_robust(job.task, job=job, outcome=outcome)
    return outcome


def _run(task: tasks.Task[..., Any], job: ClaimedJob, current: CurrentJob) -> Outcome:
    enter(current)
    if job_started.receivers:
        job_started.send_robust(job.task, job=job)
    begun = time.perf_counter()
    try:
        outcome = _call_atomic(task, job) if task.is_atomic else _call(task, job)
    except BaseException as error:  # noqa: BLE001 - the border: whatever it raises is the job's outcome
        outcome = failure(task, job, error, current)
    outcome.run_seconds = outcome.run_seconds or time.perf_counter() - begun
    if job_finished.receivers:
        job_finished.send_robust(job.task, job=job, outcome=outcome)
    return outcome


def _call(task: tasks.Task[..., Any], job: ClaimedJob) -> Outcome:
    args, kwargs = _arguments(job)
    return Outcome(job, Fate.SUCCEEDED, result=_result(job, task.func(*args, **kwargs)))


def _call_atomic(task: tasks.Task[..., Any], job: ClaimedJob) -> Outcome:
    """Run the task and remove its job in one transaction: both take effect, or neither."""
    begun = time.perf_counter()
    with transaction.atomic(using=conf.database):
        outcome = _call(task, job)
        outcome.run_seconds = time.perf_counter() - begun
        if not ack.finish_alone(CallerConnection(), outcome):
            raise LeaseLost(
                f"Job {job.id} ({job.task}) cannot be finished: its lease is gone, or its row is being held. "
                "Its transaction is rolled back."
            )
    outcome.fate = Fate.RECORDED
    return outcome


def failure(task: tasks.Task[..., Any], job: ClaimedJob, error: BaseException, current: CurrentJob) -> Outcome:
    """Return the outcome of a run that raised: retried, died or released, by what it raised."""
    if current.is_cancelled:
        return Outcome(job, Fate.DIED, reason=Reason.KILLED, error=describe(error))
    match error:
        case RetryLater():
            logger.info("Job %s (%s) asks to run later: %s", job.id, job.task, error)
            return Outcome(job, Fate.RELEASED, delay_seconds=max(error.seconds, 0.001))
        case Discard():
            return Outcome(job, Fate.DIED, reason=Reason.DISCARDED, error=describe(error))
    if job.attempt >= job.max_attempts:
        return Outcome(job, Fate.DIED, reason=Reason.EXHAUSTED, error=describe(error))
    return Outcome(job, Fate.RETRIED, delay_seconds=_backoff(task, job), error=describe(error))


def describe(error: BaseException) -> dict[str, Any]:
    """Return one entry of a job's history, storable whatever the exception holds, of at most 8 KB."""
    kind = type(error)
    try:
        message = str(error)
        trace = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - an exception that cannot even be printed
        message, trace = "(its text cannot be read)", ""
    return {
        "error": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
        "message": _storable(message, 1024),
        "traceback": _storable(trace, LONGEST_ERROR_BYTES - 2048),
    }


def unknown_task(job: ClaimedJob) -> Outcome:
    """Return the outcome of a job whose task this code does not know, as in the middle of a deploy.

    It goes back with its attempt restored. One that has never run goes to ``dead_jobs`` when a day has not helped; one
    that has was known before, and waits for the code to come back.
    """
    if job.attempt == 1 and job.is_old:
        error = {"error": "unknown task", "message": f"No worker has known the task {job.task!r} for a day."}
        return Outcome(job, Fate.DIED, reason=Reason.UNKNOWN_TASK, error=error)
    logger.warning(
        "Unknown task %s: job %s is put back for %d s. Does this worker run the same code as the enqueuer?",
        job.task,
        job.id,
        UNKNOWN_DELAY_SECONDS,
    )
    return Outcome(job, Fate.RELEASED, delay_seconds=UNKNOWN_DELAY_SECONDS)


def _arguments(job: ClaimedJob) -> tuple[list[Any], dict[str, Any]]:
    args = json.loads(job.args) if job.args != "[]" else []
    kwargs = json.loads(job.kwargs) if job.kwargs != "{}" else {}
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise InvalidArguments(f"args must be a JSON array and kwargs a JSON object, not {job.args} and {job.kwargs}.")
    return args, kwargs


def _result(job: ClaimedJob, value: Any) -> str:
    """Return the result as JSON; null, and a warning, where it cannot be stored: the work is done all the same."""
    if value is None or not (job.keep and conf.retention_days):
        return "null"
    try:
        return encode(value, what="result")
    except InvalidArguments as error:
        logger.warning("Job %s (%s) succeeded, but its result is not kept: %s", job.id, job.task, error)
        return "null"


def _backoff(task: tasks.Task[..., Any], job: ClaimedJob) -> float:
    try:
        seconds = float(task.backoff(job.attempt))
        if not math.isfinite(seconds):
            raise ValueError(f"backoff returned {seconds}")  # noqa: TRY301 - handled like whatever else it raises
        return with_jitter(min(max(seconds, 0.0), LONGEST_BACKOFF_SECONDS))
    except Exception:
        logger.exception("The backoff of %s failed; job %s is tried again in a minute", job.task, job.id)
        return with_jitter(60.0)


def _storable(text: str, longest: int) -> str:
    """Return the end of ``text``, without what PostgreSQL cannot store."""
    kept = text if len(text) <= longest else f"[...]\n{text[-longest:]}"
    return kept.replace("\0", "\ufffd").encode(errors="replace").decode()
