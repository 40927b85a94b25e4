"""What becomes of errors that jobs raise in a test."""

import asyncio

from django_pgqueue import registry
from django_pgqueue.exceptions import JobControl, JobFailed, JobInterrupted, PgQueueError, ResultRefused
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import Reason
from django_pgqueue.testing.report import Run

DELIBERATE = {Reason.EXPIRED, Reason.KILLED}


class EndlessJobs(PgQueueError):  # noqa: N818 - the name says what is wrong
    """There were so many runs that they are taken for a chain without an end."""


def raise_error(outcome: Outcome, error: BaseException | None, run: Run) -> None:
    """Raise what a run has failed with, if it has; what a job decides itself is no failure."""
    if outcome.fate is Fate.RELEASED and error is None:
        registry.get(run.task)  # it was given back because nobody knows its task
    if outcome.fate not in (Fate.RETRIED, Fate.DIED) and (error is None or _decides(error)):
        return
    if (error is not None and _decides(error)) or outcome.reason in DELIBERATE:
        return
    if error is None:
        told = outcome.error or {}
        error = JobFailed(f"{told.get('error')}: {told.get('message')}", run.reason, told)
    error.add_note(f"It was raised by {run}.")
    raise error


def goes_up(error: BaseException | None) -> bool:
    """Whether an exception is none of a job's: Ctrl-C, or what a test framework ends the test with."""
    of_jobs = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError, JobInterrupted)
    return error is not None and not isinstance(error, of_jobs)


def _decides(error: BaseException) -> bool:
    return isinstance(error, JobControl) and not isinstance(error, ResultRefused)
