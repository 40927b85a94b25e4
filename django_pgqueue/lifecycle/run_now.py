"""Bring scheduled jobs forward."""

import logging
from collections.abc import Iterable

from django_pgqueue.db import CallerConnection
from django_pgqueue.lifecycle.sql import statement
from django_pgqueue.lifecycle.wake import wake, wake_to_admit

logger = logging.getLogger("django_pgqueue")


def run_now(ids: Iterable[int], *, by: str, database: str | None = None) -> list[int]:
    """Make scheduled jobs due at once: delayed ones, and those that back off after a failed attempt.

    Runs in the caller's transaction and wakes workers after its commit. Attempts and history stay as they are.

    Args:
        by: who does it; stands in the log.

    Returns:
        The ids that are queued now, or wait to be admitted by their concurrency key. Missing are those that were not
        scheduled, or that somebody else is just changing.
    """
    caller = CallerConnection(database)
    rows = caller.rows(statement("run_now"), {"ids": list(ids)})
    for queue in sorted({queue for _, queue, key in rows if key is None}):
        wake(caller.alias, queue)
    wake_to_admit(caller.alias, {key for _, _, key in rows if key is not None})
    done = [job_id for job_id, _, _ in rows]
    if done:
        logger.info("Made due at once by %s: jobs %s", by, done)
    return done
