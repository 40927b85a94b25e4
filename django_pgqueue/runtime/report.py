"""One line in the log for each job at most."""

import logging
from collections.abc import Collection, Iterable
from typing import Any

from django_pgqueue.base.records import Fate, Outcome

logger = logging.getLogger("django_pgqueue.jobs")


def report_all(outcomes: Iterable[Outcome], *, stale: Collection[int]) -> None:
    """Log outcomes that have been written; costs next to nothing where successes are not logged.

    Args:
        stale: the ids of those that were dropped, because their lease is gone.
    """
    is_verbose, succeeded = bool(stale) or logger.isEnabledFor(logging.INFO), Fate.SUCCEEDED
    for outcome in outcomes:
        if is_verbose or outcome.fate is not succeeded:
            report(outcome, is_stale=outcome.job.id in stale)


def report(outcome: Outcome, *, is_stale: bool) -> None:
    """Log one outcome."""
    job = outcome.job
    if is_stale and outcome.fate is not Fate.RELEASED:
        logger.warning("Stale result dropped: job %s (%s) attempt %d lost its lease", job.id, job.task, job.attempt)
    elif outcome.fate is Fate.RETRIED:
        logger.warning(
            "Failed: job %s (%s) attempt %d of %d, again in %.0f s: %s",
            *(job.id, job.task, job.attempt, job.max_attempts, outcome.delay_seconds, summary(outcome)),
        )
    elif outcome.fate is Fate.DIED:
        logger.error(
            "Dead: job %s (%s) attempt %d of %d, %s: %s",
            *(job.id, job.task, job.attempt, job.max_attempts, outcome.reason, summary(outcome)),
        )
    elif outcome.fate in (Fate.SUCCEEDED, Fate.REPEATED, Fate.RECORDED):
        logger.info("Done: job %s (%s) in %.3f s", job.id, job.task, outcome.run_seconds)


def summary(outcome: Outcome) -> str:
    """Return the error of an outcome on one line."""
    error: dict[str, Any] = outcome.error or {}
    return ": ".join(part for part in (error.get("error"), error.get("message")) if part).replace("\n", " ")[:300]
