"""One line in the log for each job at most."""

import logging
from typing import Any

from django_pgqueue.base.records import Fate, Outcome

logger = logging.getLogger("django_pgqueue.jobs")


def report(outcome: Outcome, *, is_stale: bool) -> None:
    """Log one outcome that has been written, or that was dropped because its lease is gone."""
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
    elif outcome.fate in (Fate.SUCCEEDED, Fate.RECORDED) and logger.isEnabledFor(logging.INFO):
        logger.info("Done: job %s (%s) in %.3f s", job.id, job.task, outcome.run_seconds)


def summary(outcome: Outcome) -> str:
    """Return the error of an outcome on one line."""
    error: dict[str, Any] = outcome.error or {}
    return ": ".join(part for part in (error.get("error"), error.get("message")) if part).replace("\n", " ")[:300]
