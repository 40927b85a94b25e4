"""What stands in the place of an outcome that the database refuses."""

import logging

from django.db import Error

from django_pgqueue import registry
from django_pgqueue.db.errors import primary
from django_pgqueue.exceptions import InvalidArguments
from django_pgqueue.jobs.failure import describe
from django_pgqueue.jobs.redaction import scrubber_of
from django_pgqueue.log_lines import fields
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import Reason

logger = logging.getLogger("django_pgqueue.worker")


def in_place_of(outcome: Outcome, error: Error) -> Outcome | None:
    """Return the outcome that says that another could not be recorded; None if it is that one which is refused."""
    job = outcome.job
    scrub = scrubber_of(registry.find(job.task), job)
    logger.error(
        "The outcome of job %s (%s) cannot be written: %s",
        job.id,
        job.task,
        scrub(primary(error)),
        extra=fields(job, outcome=outcome.fate.word),
    )
    if "refused" in (outcome.error or {}):
        return None
    refused = InvalidArguments(f"The outcome was refused by the database: {primary(error)}")
    story = describe(refused, scrub) | {"refused": outcome.fate.name.lower()}
    return Outcome(job, Fate.DIED, reason=Reason.DISCARDED, error=story)
