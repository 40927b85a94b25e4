"""Actions of staff on jobs: kill, run now, move, set the priority, purge; and why a job was left alone."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from django_pgqueue.db.connections import Where, caller_of
from django_pgqueue.db.notify import notify_cancelled, notify_keys, notify_queues
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidBulkAction
from django_pgqueue.jobs.dead_letter import DeadLetter, dead_letter, retry
from django_pgqueue.jobs.search import Source
from django_pgqueue.options import Options
from django_pgqueue.signals import announce, job_killed, job_purged
from django_pgqueue.states import EntryKind, Reason, Status

logger = logging.getLogger("django_pgqueue")


class Killed(NamedTuple):
    """Result of a kill."""

    dead: list[int]  # moved to dead_jobs
    requested: list[int]  # running; the worker has been asked


def kill(ids: Iterable[int], *, by: str, database: Where = None) -> Killed:
    """Kill jobs in the caller's transaction.

    A job that is not running goes to ``dead_jobs`` with the reason ``killed``. A running one is asked to stop: its
    worker learns of it after the commit, sets ``current_job().is_cancelled``, cancels an async task at once and raises
    ``JobKilled`` in a plain one a second later. If it does not listen, the process is ended some seconds after that.

    Args:
        by: who does it; stands in the job's history.

    Returns:
        The ids by what was done. In neither list: gone, or locked by another transaction.
    """
    caller, ids = caller_of(database), list(ids)
    entry = {"kind": EntryKind.KILLED, "error": f"killed by {by}"}
    dead = dead_letter(caller, [DeadLetter(job_id, 0, Reason.KILLED, entry) for job_id in ids], by=by)
    running = sorted(set(ids) - set(dead))
    requested = [job_id for (job_id,) in caller.rows(statement("cancel"), {"ids": running, "by": by})]
    if requested:
        notify_cancelled(caller)
    notify_keys(caller, {key for key in dead.values() if key is not None})
    if dead or requested:
        announce(job_killed, ids=list(dead), requested=requested, by=by, database=caller.alias)
    return Killed(list(dead), requested)


def run_now(ids: Iterable[int], *, by: str, database: Where = None) -> list[int]:
    """Make scheduled jobs due at once: delayed ones, and those that back off after a failed attempt.

    Runs in the caller's transaction and wakes workers after its commit. The attempts stay as they are.

    Args:
        by: who does it; stands in the job's history.

    Returns:
        The ids that are queued now, or wait to be admitted by their concurrency key. Missing are those that were not
        scheduled, or that another transaction has locked.
    """
    caller = caller_of(database)
    rows = caller.rows(statement("run_now"), {"ids": list(ids), "by": by})
    for queue in sorted({queue for _, queue, key in rows if key is None}):
        notify_queues(caller, queue)
    notify_keys(caller, {key for _, _, key in rows if key is not None})
    done = [job_id for job_id, _, _ in rows]
    if done:
        logger.info("Made due at once by %s: jobs %s", by, done, extra={"jobs": done, "by": by})
    return done


# Changes and removal


def move_jobs(ids: Iterable[int], *, queue: str, by: str, database: Where = None) -> list[int]:
    """Move jobs that do not run to another queue, in the caller's transaction; wakes workers after its commit.

    Their place there is that of their priority and ``run_at``. A job that holds a slot of its concurrency key keeps it.
    Any other job with a fair key is promoted anew, within a second, and so gets a turn behind those of its key.

    Args:
        queue: 1 to 128 characters.
        by: who does it; stands in the job's history.

    Returns:
        The ids moved. Missing are those that run, are gone, or that another transaction has locked.

    Raises:
        InvalidJob: that is no name of a queue.
    """
    caller, name = caller_of(database), Options(queue=queue).queue
    rows = caller.rows(statement("move_jobs"), {"ids": list(ids), "queue": name, "by": by})
    if any(is_ready for _, is_ready in rows):
        notify_queues(caller, name)
    return _told(f"Moved to queue {name!r}", by, [job_id for job_id, _ in rows])


def set_priority(ids: Iterable[int], *, priority: int, by: str, database: Where = None) -> list[int]:
    """Give jobs that do not run another priority, in the caller's transaction; wakes workers after its commit.

    Slots and fair keys as with ``move_jobs``: a job with a fair key gets a new turn.

    Args:
        priority: -100 to 100; larger runs sooner.
        by: who does it; stands in the job's history.

    Returns:
        The ids changed. Missing are those that run, are gone, or that another transaction has locked.

    Raises:
        InvalidJob: the priority is out of range.
    """
    caller, wanted = caller_of(database), Options(priority=priority).priority
    rows = caller.rows(statement("set_priority"), {"ids": list(ids), "priority": wanted, "by": by})
    for queue in sorted({queue for _, queue, is_ready in rows if is_ready}):
        notify_queues(caller, queue)
    return _told(f"Given priority {wanted}", by, [job_id for job_id, *_ in rows])


def purge(ids: Iterable[int], *, by: str, finished: bool = False, database: Where = None) -> list[int]:
    """Remove dead jobs for good, in the caller's transaction. Live ones are not touched: kill them first.

    Args:
        finished: remove finished jobs instead.
        by: who does it; stands in the log.

    Returns:
        The ids removed. Missing are those that are not there, or that another transaction has locked.
    """
    name = "purge_finished" if finished else "purge_dead"
    caller = caller_of(database)
    purged = _told("Purged", by, [job_id for (job_id,) in caller.rows(statement(name), {"ids": list(ids)})])
    if purged:
        announce(job_purged, ids=purged, by=by, finished=finished, database=caller.alias)
    return purged


def lock_with_status(ids: Iterable[int], statuses: Collection[str], *, database: Where = None) -> list[int]:
    """Lock live jobs that have one of these statuses still, so that they keep it until the end of the transaction."""
    rows = caller_of(database).rows(statement("lock_with_status"), {"ids": list(ids), "statuses": list(statuses)})
    return [job_id for (job_id,) in rows]


def _told(what: str, by: str, ids: list[int]) -> list[int]:
    if ids:
        logger.info("%s by %s: jobs %s", what, by, ids, extra={"jobs": ids, "by": by})
    return ids


# Reasons for leaving a job alone


class SkipReason(StrEnum):
    """Reason for leaving jobs alone, in words that follow their number."""

    GONE = "not here any more: finished, killed or removed"
    CHANGING = "just being changed by another session; try again"
    QUEUED = "queued already"
    WAITING = "waiting for a limit; due already"
    RUNNING = "running already"
    RESERVED = "finished; only the unique key still counts"
    KEY_HELD = "a live job holds the unique key; they stay dead"
    REFUSED = "the database refuses to change them; the bulk action says why"
    OUT_OF_BOUNDS = "a name is too long, or a time cannot be stored; they stay dead"
    ID_TAKEN = "a live job has the same id; they stay dead"


class SkippedJob(NamedTuple):
    """State of a job that was left alone; the columns of ``explain_skipped.sql``."""

    id: int
    status: str | None  # None: not live
    is_dead: bool
    has_conflict: bool  # dead, and a live job has its unique key
    is_out_of_bounds: bool  # dead, and the checks of live jobs would refuse it


Why = Callable[[SkippedJob], SkipReason]


def why_skipped(ids: Collection[int], why: Why, *, database: Where = None) -> dict[int, SkipReason]:
    """Say why a verb has left these jobs alone, by the function of the verb below."""
    if not ids:
        return {}
    rows = caller_of(database).rows(statement("explain_skipped"), {"ids": list(ids)})
    return {row[0]: why(SkippedJob._make(row)) for row in rows}


def why_not_killed(job: SkippedJob) -> SkipReason:
    """Neither dead nor asked to stop."""
    if job.status is None:
        return SkipReason.GONE
    return SkipReason.RESERVED if job.status == Status.RESERVED else SkipReason.CHANGING


def why_not_changed(job: SkippedJob) -> SkipReason:
    """Neither moved nor given a priority."""
    return SkipReason.RUNNING if job.status == Status.RUNNING else why_not_killed(job)


def why_not_due(job: SkippedJob) -> SkipReason:
    """Not brought forward."""
    if job.status == Status.QUEUED:
        return SkipReason.QUEUED
    return SkipReason.WAITING if job.status == Status.WAITING else why_not_changed(job)


def why_not_retried(job: SkippedJob) -> SkipReason:
    """Not sent back."""
    if not job.is_dead:
        return SkipReason.GONE
    if job.has_conflict:
        return SkipReason.KEY_HELD
    if job.is_out_of_bounds:
        return SkipReason.OUT_OF_BOUNDS
    return SkipReason.ID_TAKEN if job.status else SkipReason.CHANGING


def why_not_purged(job: SkippedJob) -> SkipReason:
    """Not removed."""
    return SkipReason.CHANGING if job.is_dead else SkipReason.GONE


# Actions by name, for the admin, the commands and bulk actions

Ids = Sequence[int]
Said = Mapping[str, Any]
"""What else was said, by the name of what the verb needs."""

LIVE = tuple(status.value for status in Status if status is not Status.RESERVED)


class JobChange(StrEnum):
    """Change made to a job."""

    RETRIED = "retried"
    DUE = "due"
    KILLED = "killed"
    ASKED = "asked"  # it runs, and was asked to stop
    MOVED = "moved"
    PRIORITIZED = "prioritized"
    PURGED = "purged"


class ActionResult(NamedTuple):
    """Result of a verb."""

    did: Mapping[JobChange, Ids]
    left: Mapping[int, SkipReason]  # why the others were left alone


@dataclass(frozen=True, kw_only=True)
class Action:
    """One thing that can be done to many jobs.

    Attributes:
        name: with the source, what it is known by.
        source: the jobs it is for.
        act: does it to a slice of jobs, inside a transaction.
        why: says why others were left alone.
        statuses: those of the live jobs it is for.
        needs: what else has to be said, by name, each with what checks it: it raises InvalidJob.
        is_destructive: whether it cannot be undone, so that faces ask twice.
    """

    name: str
    source: Source
    act: Callable[[Ids, str, Said, Where], Mapping[JobChange, Ids]]
    why: Why
    statuses: tuple[str, ...] = ()
    needs: str = ""
    is_destructive: bool = False

    def do(self, ids: Ids, *, by: str, said: Said, statuses: Sequence[str], where: Where) -> ActionResult:
        """Do it to jobs in the transaction that is open, and find out why some were left alone.

        Args:
            by: who wants it.
            said: has what the verb needs.
            statuses: those by which live jobs were chosen; what has none of them any more is left alone. Empty: any.
            where: the connection, or its alias.

        Raises:
            InvalidJob: what was said cannot be.
        """
        did = self.act_on_chosen(ids, by=by, said=said, statuses=statuses, where=where)
        return ActionResult(
            did, why_skipped(set(ids).difference(*did.values()), self.why_for(statuses), database=where)
        )

    def act_on_chosen(
        self, ids: Ids, *, by: str, said: Said, statuses: Sequence[str], where: Where
    ) -> Mapping[JobChange, Ids]:
        """Do it, and only that; the arguments are those of ``do``."""
        return self.act(lock_with_status(ids, statuses, database=where) if statuses else ids, by, said, where)

    def why_for(self, statuses: Sequence[str]) -> Why:
        """Return what says why jobs were left alone; those that run may not have been asked for."""
        spares_running = statuses and Status.RUNNING not in statuses
        return why_not_changed if spares_running and self.why is why_not_killed else self.why

    def check(self, said: Said) -> None:
        """Raise InvalidJob if what the verb needs was not said, or cannot be."""
        if self.needs:
            needed: Any = {self.needs: said.get(self.needs)}
            Options(**needed)


def _retry(ids: Ids, by: str, _said: Said, where: Where) -> Mapping[JobChange, Ids]:
    return {JobChange.RETRIED: retry(ids, by=by, database=where).ids}


def _run_now(ids: Ids, by: str, _said: Said, where: Where) -> Mapping[JobChange, Ids]:
    return {JobChange.DUE: run_now(ids, by=by, database=where)}


def _kill(ids: Ids, by: str, _said: Said, where: Where) -> Mapping[JobChange, Ids]:
    killed = kill(ids, by=by, database=where)
    return {JobChange.KILLED: killed.dead, JobChange.ASKED: killed.requested}


def _move(ids: Ids, by: str, said: Said, where: Where) -> Mapping[JobChange, Ids]:
    return {JobChange.MOVED: move_jobs(ids, queue=said["queue"], by=by, database=where)}


def _set_priority(ids: Ids, by: str, said: Said, where: Where) -> Mapping[JobChange, Ids]:
    return {JobChange.PRIORITIZED: set_priority(ids, priority=said["priority"], by=by, database=where)}


def _purge(ids: Ids, by: str, _said: Said, where: Where) -> Mapping[JobChange, Ids]:
    return {JobChange.PURGED: purge(ids, by=by, database=where)}


def _purge_finished(ids: Ids, by: str, _said: Said, where: Where) -> Mapping[JobChange, Ids]:
    return {JobChange.PURGED: purge(ids, by=by, finished=True, database=where)}


RETRY = Action(name="retry", source=Source.DEAD, act=_retry, why=why_not_retried)
RUN_NOW = Action(name="run_now", source=Source.LIVE, statuses=(Status.SCHEDULED.value,), act=_run_now, why=why_not_due)
KILL = Action(name="kill", source=Source.LIVE, statuses=LIVE, act=_kill, why=why_not_killed, is_destructive=True)
MOVE = Action(name="move", source=Source.LIVE, statuses=LIVE, act=_move, why=why_not_changed, needs="queue")
SET_PRIORITY = Action(
    name="set_priority", source=Source.LIVE, statuses=LIVE, act=_set_priority, why=why_not_changed, needs="priority"
)
PURGE = Action(name="purge", source=Source.DEAD, act=_purge, why=why_not_purged, is_destructive=True)
PURGE_FINISHED = Action(
    name="purge", source=Source.FINISHED, act=_purge_finished, why=why_not_purged, is_destructive=True
)

VERBS = (RETRY, RUN_NOW, KILL, MOVE, SET_PRIORITY, PURGE, PURGE_FINISHED)


def action_named(name: str, source: str) -> Action:
    """Return the verb of this name for live, dead or finished jobs.

    Raises:
        InvalidBulkAction: there is none.
    """
    for verb in VERBS:
        if (verb.name, verb.source.name.lower()) == (name, source):
            return verb
    raise InvalidBulkAction(f"There is no verb {name!r} for {source!r} jobs.")
