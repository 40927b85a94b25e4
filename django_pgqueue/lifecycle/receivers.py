"""Let receivers of signals know what becomes of a run. They have no say in it."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from django.db import connections
from django.dispatch import Signal

from django_pgqueue import registry
from django_pgqueue.exceptions import Redacted
from django_pgqueue.lifecycle.describe import LONGEST_TEXT, trace_of
from django_pgqueue.lifecycle.redact import scrub_end, scrubber_of
from django_pgqueue.log_lines import fields
from django_pgqueue.records import ClaimedJob, Fate, Outcome
from django_pgqueue.signals import announce

logger = logging.getLogger("django_pgqueue.jobs")


@contextlib.contextmanager
def without_harm(job: ClaimedJob) -> Iterator[None]:
    """Let receivers of signals raise even what is no ``Exception``: they have no say in what becomes of a job."""
    try:
        yield
    except BaseException as error:  # noqa: BLE001 - as it says
        log_harm(job, error)


def announce_from_duty(signal: Signal, sender: str | None = None, **named: Any) -> None:
    """Send a signal in a thread that a worker cannot do without: it outlives whatever receivers raise.

    What they have opened stays open for the next time; a connection that broke is given up, else all would fail by it.
    """
    if not signal.receivers:
        return
    try:
        announce(signal, sender, **named)
    except BaseException:
        logger.exception("Receivers of a signal failed; the worker goes on")
    close_broken_connections()


def close_broken_connections() -> None:
    """Close those of this thread that code of the project has opened and that broke: the next use opens them anew."""
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred and not connection.in_atomic_block and not connection.is_usable():
            connection.close()


def log_harm(job: ClaimedJob, error: BaseException) -> None:
    """Log what was raised by those who have no say, while it is being handled."""
    error.__suppress_context__ = True  # what the task has raised, which may hold sensitive arguments
    logger.exception(  # noqa: LOG004 - called while one is
        "Receivers of a signal failed, or were cut short; job %s (%s) goes on", job.id, job.task, extra=fields(job)
    )


def tell_of_failure(
    run_adapter: registry.RunAdapter, task: registry.TaskDefinition, outcome: Outcome, error: BaseException
) -> None:
    """Send the framework's signal while the exception that receivers may see is being handled."""
    try:
        _redact(task, outcome, error)
    except Redacted:
        run_adapter.tell_ended(outcome)
    else:
        run_adapter.tell_ended(outcome)


async def atell_of_failure(
    run_adapter: registry.RunAdapter, task: registry.TaskDefinition, outcome: Outcome, error: BaseException
) -> None:
    """Do what ``tell_of_failure`` does from async code."""
    try:
        _redact(task, outcome, error)
    except Redacted:
        await run_adapter.atell_ended(outcome)
    else:
        await run_adapter.atell_ended(outcome)


def _redact(task: registry.TaskDefinition, outcome: Outcome, error: BaseException) -> None:
    """Raise Redacted in place of an exception whose text has something sensitive in it, if somebody may be told."""
    if outcome.fate is not Fate.DIED:
        return
    trace = trace_of(error)
    kept = scrub_end(scrubber_of(task, outcome.job), trace, LONGEST_TEXT)
    if kept != trace:
        raise Redacted(f"\n{kept}") from None
