"""Move jobs, set their priority, purge them: what staff do to many jobs at once, besides kill, requeue and run now."""

import logging
from collections.abc import Collection, Iterable

from django_pgqueue.db.connections import Where, caller_of
from django_pgqueue.db.notify import wake
from django_pgqueue.db.queries import statement
from django_pgqueue.options import Options
from django_pgqueue.signals import announce, job_purged

logger = logging.getLogger("django_pgqueue")


def move_jobs(ids: Iterable[int], *, queue: str, by: str, database: Where = None) -> list[int]:
    """Move jobs that do not run to another queue, in the caller's transaction; wakes workers after its commit.

    Their place there is that of their priority and ``run_at``. A job that holds a slot of its concurrency key keeps it.
    Any other job with a fair key is promoted anew, within a second, and so gets a turn behind those of its key.

    Args:
        queue: 1 to 128 characters.
        by: who does it; stands in the job's history.

    Returns:
        The ids moved. Missing are those that run, are gone, or that somebody else is just changing.

    Raises:
        InvalidJob: that is no name of a queue.
    """
    caller, name = caller_of(database), Options(queue=queue).queue
    rows = caller.rows(statement("move"), {"ids": list(ids), "queue": name, "by": by})
    if any(is_ready for _, is_ready in rows):
        wake(caller, name)
    return _told(f"Moved to queue {name!r}", by, [job_id for job_id, _ in rows])


def set_priority(ids: Iterable[int], *, priority: int, by: str, database: Where = None) -> list[int]:
    """Give jobs that do not run another priority, in the caller's transaction; wakes workers after its commit.

    Slots and fair keys as with ``move_jobs``: a job with a fair key gets a new turn.

    Args:
        priority: -100 to 100; larger runs sooner.
        by: who does it; stands in the job's history.

    Returns:
        The ids changed. Missing are those that run, are gone, or that somebody else is just changing.

    Raises:
        InvalidJob: the priority is out of range.
    """
    caller, wanted = caller_of(database), Options(priority=priority).priority
    rows = caller.rows(statement("set_priority"), {"ids": list(ids), "priority": wanted, "by": by})
    for queue in sorted({queue for _, queue, is_ready in rows if is_ready}):
        wake(caller, queue)
    return _told(f"Given priority {wanted}", by, [job_id for job_id, *_ in rows])


def purge(ids: Iterable[int], *, by: str, finished: bool = False, database: Where = None) -> list[int]:
    """Remove dead jobs for good, in the caller's transaction. Live ones are not touched: kill them first.

    Args:
        finished: remove finished jobs instead.
        by: who does it; stands in the log.

    Returns:
        The ids removed. Missing are those that are not there, or that somebody else is just changing.
    """
    name = "purge_finished" if finished else "purge_dead"
    caller = caller_of(database)
    purged = _told("Purged", by, [job_id for (job_id,) in caller.rows(statement(name), {"ids": list(ids)})])
    if purged:
        announce(job_purged, ids=purged, by=by, finished=finished, database=caller.alias)
    return purged


def still(ids: Iterable[int], statuses: Collection[str], *, database: Where = None) -> list[int]:
    """Lock live jobs that have one of these statuses still, so that they keep it until the end of the transaction."""
    rows = caller_of(database).rows(statement("still"), {"ids": list(ids), "statuses": list(statuses)})
    return [job_id for (job_id,) in rows]


def _told(what: str, by: str, ids: list[int]) -> list[int]:
    if ids:
        logger.info("%s by %s: jobs %s", what, by, ids, extra={"jobs": ids, "by": by})
    return ids
