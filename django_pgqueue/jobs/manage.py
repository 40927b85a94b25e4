"""Jobs by their ids: kill, run now, move, set the priority, purge. What retries them is in ``dead_letter.py``."""

import logging
from typing import NamedTuple

from django_pgqueue.db.connections import JobIds, Where, as_one, caller_of_jobs
from django_pgqueue.db.notify import notify_due, notify_keys, notify_kill, notify_queues
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs.dead_letter import DeadLetter, dead_letter
from django_pgqueue.options import Options
from django_pgqueue.signals import announce, announce_deaths, job_killed, job_purged
from django_pgqueue.states import DeathReason, EntryKind
from django_pgqueue.validation import UNNAMED, By, name_of

logger = logging.getLogger("django_pgqueue")


class Killed(NamedTuple):
    """The ids of jobs by what ``kill`` has done with them.

    Attributes:
        dead: moved to the dead jobs.
        requested: running; their workers were asked to stop them.
    """

    dead: list[int]
    requested: list[int]


def kill(ids: JobIds, *, by: By = "", database: Where = None) -> Killed:
    """Kill jobs in the caller's transaction, or in one of its own if none is open.

    A job that is not running goes to the dead jobs with the reason ``killed``. A running one is asked to stop: its
    worker learns of it after the commit, sets ``current_job().is_kill_requested``, cancels an async task at once and
    raises ``JobKilled`` in a plain one a second later. If it does not listen, the process is ended some seconds later.

    Args:
        by: user who does it, or the username; kept in the history of the jobs.

    Returns:
        The ids by result. In neither list are those that are gone, or that another transaction has locked.
    """
    (caller, ids), by = caller_of_jobs(ids, database), name_of(by)
    entry = {"kind": EntryKind.KILLED, "error": f"killed by {by or UNNAMED}"}
    letters = [DeadLetter(job_id, 0, DeathReason.KILLED, entry) for job_id in ids]
    with as_one(caller):
        dead, events = dead_letter(caller, letters, by=by)
        running = sorted(set(ids) - set(dead))
        requested = [job_id for (job_id,) in caller.rows(statement("request_kill"), {"ids": running, "by": by})]
    if requested:
        notify_kill(caller)
    notify_keys(caller, {key for key in dead.values() if key is not None})
    if dead or requested:
        announce(job_killed, ids=list(dead), requested=requested, by=by, database=caller.alias)
    announce_deaths(events)
    return Killed(list(dead), requested)


def run_now(ids: JobIds, *, by: By = "", database: Where = None) -> list[int]:
    """Make scheduled jobs due at once: delayed ones, and those that back off after a failed attempt.

    Runs in the caller's transaction and wakes workers after its commit. The attempts stay as they are.

    Args:
        by: user who does it, or the username; kept in the history of the jobs and in the log.

    Returns:
        The ids that are queued now, or wait to be admitted by their concurrency key. Missing are those that were not
        scheduled, or that another transaction has locked.
    """
    (caller, ids), by = caller_of_jobs(ids, database), name_of(by)
    rows = caller.rows(statement("run_now"), {"ids": ids, "by": by})
    notify_due(caller, [(queue, key) for _, queue, key in rows])
    return _logged("Made due at once", by, [job_id for job_id, *_ in rows])


def move(ids: JobIds, *, queue: str, by: By = "", database: Where = None) -> list[int]:
    """Move jobs that do not run to another queue, in the caller's transaction; wakes workers after its commit.

    Their place there is that of their priority and ``run_at``. A job that holds a slot of its concurrency key keeps it.
    Any other job with a fair key is promoted again, within a second, and so gets a turn behind those of its key.

    They stay on their database, also where the queue is on others: a job with a key can be on one that does not have
    the slot of the key, where it does not meet new jobs with the same key.

    Args:
        queue: a name of 1 to 128 characters.
        by: user who does it, or the username; kept in the history of the jobs and in the log.

    Returns:
        The ids moved. Missing are those that run, are gone, or that another transaction has locked.

    Raises:
        InvalidOption: that is no name of a queue.
    """
    name = Options(queue=queue).queue
    return _reassign(f"Moved to queue {name!r}", ids, by, database, queue=name)


def set_priority(ids: JobIds, *, priority: int, by: By = "", database: Where = None) -> list[int]:
    """Give jobs that do not run another priority, in the caller's transaction; wakes workers after its commit.

    Slots and fair keys as with ``move``: a job with a fair key gets a new turn.

    Args:
        priority: -100 to 100; larger runs sooner.
        by: user who does it, or the username; kept in the history of the jobs and in the log.

    Returns:
        The ids changed. Missing are those that run, are gone, or that another transaction has locked.

    Raises:
        InvalidOption: the priority is out of range.
    """
    wanted = Options(priority=priority).priority
    return _reassign(f"Given priority {wanted}", ids, by, database, priority=wanted)


def _reassign(
    what: str, ids: JobIds, by: By, database: Where, *, queue: str | None = None, priority: int | None = None
) -> list[int]:
    (caller, ids), by = caller_of_jobs(ids, database), name_of(by)
    parameters = {"ids": ids, "queue": queue, "priority": priority, "by": by}
    rows = caller.rows(statement("reassign"), parameters)
    notify_queues(caller, {name for _, name, is_ready in rows if is_ready})
    return _logged(what, by, [job_id for job_id, *_ in rows])


def purge(ids: JobIds, *, by: By = "", succeeded: bool = False, database: Where = None) -> list[int]:
    """Remove dead jobs for good, in the caller's transaction. Live ones are not touched: kill them first.

    Args:
        by: user who does it, or the username; kept in the log.
        succeeded: remove succeeded jobs instead.

    Returns:
        The ids removed. Missing are those that are not there, or that another transaction has locked.
    """
    name = "purge_succeeded" if succeeded else "purge_dead"
    (caller, ids), by = caller_of_jobs(ids, database), name_of(by)
    purged = [job_id for (job_id,) in caller.rows(statement(name), {"ids": ids})]
    _logged("Purged", by, purged)
    if purged:
        announce(job_purged, ids=purged, by=by, succeeded=succeeded, database=caller.alias)
    return purged


def _logged(what: str, by: str, ids: list[int]) -> list[int]:
    if ids:
        logger.info("%s by %s: jobs %s", what, by or UNNAMED, ids, extra={"jobs": ids, "by": by})
    return ids
