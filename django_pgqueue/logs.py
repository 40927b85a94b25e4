"""Log of jobs: one line for each attempt, and the filter that adds the running job to log lines of the project."""

import logging
from collections.abc import Collection, Iterable
from typing import Any, Final

from django.conf import settings

from django_pgqueue import registry
from django_pgqueue.jobs.context import find_current
from django_pgqueue.log_lines import FAILURES, MultiLine, fields
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import DeathReason

__all__ = ["JobFields"]

logger: Final = logging.getLogger("django_pgqueue.jobs")
failures: Final = logging.getLogger(FAILURES)

UNBEGUN = {DeathReason.UNKNOWN_TASK, DeathReason.EXPIRED}
"""Reasons for which claimed jobs die without having been begun."""


class JobFields(logging.Filter):
    """Gives each record that is made while a job runs the fields of that job, as lines of the queue's own have them.

    Goes into ``filters`` of a handler in ``LOGGING``. Fields that a record has already stay as they are; records that
    no job makes get none.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if job := find_current():
            for name, value in fields(job).items():
                vars(record).setdefault(name, value)
        return True


def report_all(outcomes: Iterable[Outcome], *, stale: Collection[int]) -> None:
    """Log outcomes that have been written; costs next to nothing where successes are not logged.

    Those of the jobs ``stale`` were dropped, because their lease is gone.
    """
    is_verbose, succeeded = bool(stale) or logger.isEnabledFor(logging.INFO), Fate.SUCCEEDED
    for outcome in outcomes:
        if is_verbose or outcome.fate is not succeeded:
            report(outcome, is_stale=outcome.job.id in stale)


def report(outcome: Outcome, *, is_stale: bool) -> None:
    """Log the one line that each attempt gets."""
    job = outcome.job
    about = (job.id, job.task, job.attempt)
    if is_stale and outcome.fate is not Fate.RELEASED:
        logger.warning(
            "Stale result dropped: job %s (%s) attempt %d lost its lease", *about, extra=fields(job, outcome="stale")
        )
    elif outcome.fate is Fate.RETRIED:
        again = (job.max_attempts, outcome.delay_seconds, _story(outcome))
        failures.warning(
            "Failed: job %s (%s) attempt %d of %d, again in %.0f s: %s",
            *about,
            *again,
            extra=_fields(outcome, delay_seconds=outcome.delay_seconds),
        )
    elif outcome.fate is Fate.DIED:
        told = logger if outcome.reason in UNBEGUN else failures
        why = (job.max_attempts, outcome.reason, _story(outcome))
        told.error(
            "Dead: job %s (%s) attempt %d of %d, %s: %s",
            *about,
            *why,
            extra=_fields(outcome, reason=str(outcome.reason)),
        )
    elif outcome.fate in (Fate.SUCCEEDED, Fate.REPEATED, Fate.RECORDED):
        logger.info("Done: job %s (%s) in %.3f s", job.id, job.task, outcome.run_seconds, extra=_fields(outcome))


def _fields(outcome: Outcome, **more: Any) -> dict[str, Any]:
    error: dict[str, Any] = outcome.error or {}
    if error:
        more |= {"error": error.get("error", ""), "error_message": error.get("message", "")}
    seconds = round(outcome.run_seconds, 6)
    return fields(outcome.job, outcome=outcome.fate.word, run_seconds=seconds, **more)


def _story(outcome: Outcome) -> str:
    trace = (outcome.error or {}).get("traceback", "").rstrip()
    is_wanted = settings.DEBUG or failures.isEnabledFor(logging.DEBUG)
    if outcome.fate is Fate.DIED and (task := registry.find(outcome.job.task)) and task.adapter:
        is_wanted = False  # the framework's own log has it
    return MultiLine(f"{summary(outcome)}\n{trace}") if trace and is_wanted else summary(outcome)


def summary(outcome: Outcome) -> str:
    """Return the error of an outcome on one line."""
    error: dict[str, Any] = outcome.error or {}
    return ": ".join(part for part in (error.get("error"), error.get("message")) if part).replace("\n", " ")[:300]
