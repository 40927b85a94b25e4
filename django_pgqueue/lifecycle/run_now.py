"""Bring scheduled jobs forward."""

import logging
from collections.abc import Iterable

from django_pgqueue.db.connections import Where, caller_of
from django_pgqueue.db.notify import wake, wake_to_admit
from django_pgqueue.db.queries import statement

logger = logging.getLogger("django_pgqueue")


def run_now(ids: Iterable[int], *, by: str, database: Where = None) -> list[int]:
    """Make scheduled jobs due at once: delayed ones, and those that back off after a failed attempt.

    Runs in the caller's transaction and wakes workers after its commit. The attempts stay as they are.

    Args:
        by: who does it; stands in the job's history.

    Returns:
        The ids that are queued now, or wait to be admitted by their concurrency key. Missing are those that were not
        scheduled, or that somebody else is just changing.
    """
    caller = caller_of(database)
    rows = caller.rows(statement("run_now"), {"ids": list(ids), "by": by})
    for queue in sorted({queue for _, queue, key in rows if key is None}):
        wake(caller, queue)
    wake_to_admit(caller, {key for _, _, key in rows if key is not None})
    done = [job_id for job_id, _, _ in rows]
    if done:
        logger.info("Made due at once by %s: jobs %s", by, done, extra={"jobs": done, "by": by})
    return done
