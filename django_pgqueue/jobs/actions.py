"""Actions of staff on jobs: kill, run now, move, set the priority, purge; and the table of them that all faces show.

``ACTIONS`` is the only place that says what an action is called, what it needs, which jobs it is for and who may do it.
The admin makes buttons and questions of it, ``pgqueue_jobs`` its subcommands, and a bulk action stores its name.
"""

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_pgqueue.db.connections import Where, caller_of
from django_pgqueue.db.notify import notify_cancelled, notify_keys, notify_queues
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidBulkAction
from django_pgqueue.jobs.dead_letter import DeadLetter, dead_letter, retry
from django_pgqueue.jobs.search import Source
from django_pgqueue.options import Options
from django_pgqueue.signals import announce, job_killed, job_purged
from django_pgqueue.states import HIGHEST_PRIORITY, LONGEST_QUEUE, LOWEST_PRIORITY, EntryKind, Reason, Status

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
    for queue in sorted({queue for job_id, queue, key in rows if key is None}):
        notify_queues(caller, queue)
    notify_keys(caller, {key for *_, key in rows if key is not None})
    return _logged(JobChange.DUE.words, by, [job_id for job_id, *_ in rows])


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
    return _logged(JobChange.MOVED.words.format(queue=repr(name)), by, [job_id for job_id, *_ in rows])


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
    for queue in sorted({queue for job_id, queue, is_ready in rows if is_ready}):
        notify_queues(caller, queue)
    return _logged(JobChange.PRIORITIZED.words.format(priority=wanted), by, [job_id for job_id, *_ in rows])


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
    purged = [job_id for (job_id,) in caller.rows(statement(name), {"ids": list(ids)})]
    _logged(JobChange.PURGED.words, by, purged)
    if purged:
        announce(job_purged, ids=purged, by=by, finished=finished, database=caller.alias)
    return purged


def lock_with_status(ids: Iterable[int], statuses: Collection[str], *, database: Where = None) -> list[int]:
    """Lock live jobs that have one of these statuses still, so that they keep it until the end of the transaction."""
    rows = caller_of(database).rows(statement("lock_with_status"), {"ids": list(ids), "statuses": list(statuses)})
    return [job_id for (job_id,) in rows]


def _logged(what: str, by: str, ids: list[int]) -> list[int]:
    if ids:
        logger.info("%s by %s: jobs %s", what, by, ids, extra={"jobs": ids, "by": by})
    return ids


# Reasons for skipping a job


class SkipReason(StrEnum):
    """Reason for skipping jobs, as a bulk action stores it.

    Attributes:
        words: follow the number of jobs.
    """

    words: Any

    def __new__(cls, value: str, words: Any) -> Self:
        reason = str.__new__(cls, value)
        reason._value_, reason.words = value, words
        return reason

    GONE = "gone", _("not here any more: finished, killed or removed")
    CHANGING = "changing", _("just being changed by another session; try again")
    QUEUED = "queued", _("queued already")
    WAITING = "waiting", _("waiting for a limit; due already")
    RUNNING = "running", _("running already")
    RESERVED = "reserved", _("finished; only the unique key still counts")
    KEY_HELD = "key_held", _("a live job holds the unique key; they stay dead")
    REFUSED = "refused", _("the database refuses to change them; the bulk action says why")
    OUT_OF_BOUNDS = "out_of_bounds", _("a name is too long, or a time cannot be stored; they stay dead")
    ID_TAKEN = "id_taken", _("a live job has the same id; they stay dead")


class SkippedJob(NamedTuple):
    """State of a job that was skipped; the columns of ``explain_skipped.sql``."""

    id: int
    status: str | None  # None: not live
    is_dead: bool = False
    has_conflict: bool = False  # dead, and a live job has its unique key
    is_out_of_bounds: bool = False  # dead, and the checks of live jobs would refuse it


Why = Callable[[SkippedJob], SkipReason]


def why_skipped(ids: Collection[int], why: Why, *, database: Where = None) -> dict[int, SkipReason]:
    """Return why an action has skipped these jobs, by the function of the action below."""
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


# The table of actions

Ids = Sequence[int]
Params = Mapping[str, Any]  # values of what an action needs besides the jobs, by name

LIVE = tuple(status.value for status in Status if status is not Status.RESERVED)


class JobChange(StrEnum):
    """Change made to jobs by an action, as a bulk action stores it.

    Attributes:
        words: for the command, the log and the admin's history, with the names of params; stored, so not translated.
        message: the same in a sentence, with %(count)d.
        source: the table that the jobs are in now; None: they are gone.
    """

    words: str
    message: Any
    source: Source | None

    def __new__(cls, value: str, words: str, message: Any, source: Source | None) -> Self:
        change = str.__new__(cls, value)
        change._value_, change.words, change.message, change.source = value, words, message, source
        return change

    RETRIED = (
        "retried",
        "Retried",
        ngettext_lazy("%(count)d job was retried.", "%(count)d jobs were retried.", "count"),
        Source.LIVE,
    )
    DUE = (
        "due",
        "Made due at once",
        ngettext_lazy("%(count)d job is due now.", "%(count)d jobs are due now.", "count"),
        Source.LIVE,
    )
    KILLED = (
        "killed",
        "Killed",
        ngettext_lazy("%(count)d job was killed.", "%(count)d jobs were killed.", "count"),
        Source.DEAD,
    )
    ASKED = (
        "asked",  # it runs, and its worker will stop it
        "Asked to stop",
        ngettext_lazy(
            "%(count)d running job was asked to stop.", "%(count)d running jobs were asked to stop.", "count"
        ),
        Source.LIVE,
    )
    MOVED = (
        "moved",
        "Moved to queue {queue}",
        ngettext_lazy("%(count)d job was moved.", "%(count)d jobs were moved.", "count"),
        Source.LIVE,
    )
    PRIORITIZED = (
        "prioritized",
        "Given priority {priority}",
        ngettext_lazy(
            "The priority of %(count)d job was changed.", "The priority of %(count)d jobs was changed.", "count"
        ),
        Source.LIVE,
    )
    PURGED = (
        "purged",
        "Purged",
        ngettext_lazy("%(count)d job was removed for good.", "%(count)d jobs were removed for good.", "count"),
        None,
    )


@dataclass(frozen=True, kw_only=True)
class Param:
    """What an action needs besides the jobs; ``Options`` checks its value.

    Attributes:
        name: that of the argument in Python.
        lowest: of a number.
        highest: of a number, or of the number of characters.
    """

    name: str
    value_type: type[str] | type[int]
    label: Any
    metavar: str
    lowest: int = 1
    highest: int
    help: Any = ""


QUEUE = Param(name="queue", value_type=str, label=_("queue"), metavar="QUEUE", highest=LONGEST_QUEUE)
PRIORITY = Param(
    name="priority",
    value_type=int,
    label=_("priority"),
    metavar="N",
    lowest=LOWEST_PRIORITY,
    highest=HIGHEST_PRIORITY,
    help=_("-100 to 100; larger runs sooner."),
)


@dataclass(frozen=True, kw_only=True)
class Action:
    """One thing that can be done to many jobs.

    Attributes:
        name: with the source, what it is known by.
        statuses: those of the live jobs it is for.
        act: does it to jobs in the open transaction: ids, by, database, and the param by its name.
        is_destructive: whether it cannot be undone, so that faces ask twice.
        permission: codename, for users of the admin.
        help: for the command.
        selected: for the list of actions, with %(verbose_name_plural)s.
        question: with %(count)d.
        question_for_all: the same for all jobs that match a filter.
    """

    name: str
    source: Source
    statuses: tuple[str, ...] = ()
    act: Callable[..., Mapping[JobChange, Ids]]
    why: Why
    param: Param | None = None
    is_destructive: bool = False
    permission: str
    help: str
    label: Any
    selected: Any
    question: Any
    question_for_all: Any
    consequence: Any

    def do(self, ids: Ids, *, by: str, params: Params, statuses: Sequence[str], where: Where) -> "ActionResult":
        """Do it to jobs in the transaction that is open, and find out why some were skipped.

        Args:
            statuses: those by which live jobs were chosen; what has none of them any more is skipped. Empty: any.

        Raises:
            InvalidJob: a param is missing or cannot be.
        """
        chosen = lock_with_status(ids, statuses, database=where) if statuses else ids
        done = self.change(chosen, by=by, params=params, where=where)
        others = set(ids).difference(*done.values())
        return ActionResult(done, why_skipped(others, self._why(statuses), database=where))

    def change(self, ids: Ids, *, by: str, params: Params, where: Where) -> Mapping[JobChange, Ids]:
        return self.act(ids, by=by, database=where, **self._needed(params))

    def _why(self, statuses: Sequence[str]) -> Why:
        """Return what says why jobs were skipped; those that run may not have been asked for."""
        spares_running = statuses and Status.RUNNING not in statuses
        return why_not_changed if spares_running and self.why is why_not_killed else self.why

    def suits(self, status: str) -> bool:
        """Whether it can be done to a live job with this status."""
        return self.why(SkippedJob(0, status)) is SkipReason.CHANGING

    def check(self, params: Params) -> None:
        """Raise InvalidJob if what the action needs is missing or cannot be."""
        Options(**self._needed(params))

    def _needed(self, params: Params) -> dict[str, Any]:
        return {self.param.name: params.get(self.param.name)} if self.param else {}


class ActionResult(NamedTuple):
    """Result of an action."""

    done: Mapping[JobChange, Ids]
    skipped: Mapping[int, SkipReason]


def _making(change: JobChange, act: Callable[..., Ids]) -> Callable[..., Mapping[JobChange, Ids]]:
    return lambda ids, **options: {change: act(ids, **options)}


def _retry(ids: Ids, **options: Any) -> Mapping[JobChange, Ids]:
    return {JobChange.RETRIED: retry(ids, **options).ids}


def _kill(ids: Ids, **options: Any) -> Mapping[JobChange, Ids]:
    killed = kill(ids, **options)
    return {JobChange.KILLED: killed.dead, JobChange.ASKED: killed.requested}


RETRY = Action(
    name="retry",
    source=Source.DEAD,
    act=_retry,
    why=why_not_retried,
    permission="retry_deadjob",
    help="send dead jobs back to be run, with all their attempts before them",
    label=_("Retry"),
    selected=_("Retry selected %(verbose_name_plural)s"),
    question=ngettext_lazy("Retry %(count)d dead job?", "Retry %(count)d dead jobs?", "count"),
    question_for_all=_("Retry all dead jobs that match?"),
    consequence=_(
        "They will be queued immediately with a fresh set of attempts. Their history is kept. A job whose unique key a "
        "live job holds stays dead."
    ),
)
RUN_NOW = Action(
    name="run_now",
    source=Source.LIVE,
    statuses=(Status.SCHEDULED.value,),
    act=_making(JobChange.DUE, run_now),
    why=why_not_due,
    permission="run_job",
    help="make scheduled jobs due at once",
    label=_("Run now"),
    selected=_("Run selected %(verbose_name_plural)s now"),
    question=ngettext_lazy("Run %(count)d job now?", "Run %(count)d jobs now?", "count"),
    question_for_all=_("Run all jobs that match now?"),
    consequence=_(
        "Scheduled jobs become due at once, in the order of their priority. Attempts stay as they are; the history "
        "gets a note. Jobs that are not scheduled are left alone."
    ),
)
MOVE = Action(
    name="move",
    source=Source.LIVE,
    statuses=LIVE,
    act=_making(JobChange.MOVED, move_jobs),
    why=why_not_changed,
    param=QUEUE,
    permission="move_job",
    help="move jobs that do not run to another queue",
    label=_("Move to queue…"),
    selected=_("Move selected %(verbose_name_plural)s to a queue…"),
    question=ngettext_lazy("Move %(count)d job to another queue?", "Move %(count)d jobs to another queue?", "count"),
    question_for_all=_("Move all jobs that match to another queue?"),
    consequence=_("Jobs that run are left alone. Priority and time stay as they are; the history gets a note."),
)
SET_PRIORITY = Action(
    name="set_priority",
    source=Source.LIVE,
    statuses=LIVE,
    act=_making(JobChange.PRIORITIZED, set_priority),
    why=why_not_changed,
    param=PRIORITY,
    permission="reprioritize_job",
    help="give jobs that do not run another priority",
    label=_("Change priority…"),
    selected=_("Change the priority of selected %(verbose_name_plural)s…"),
    question=ngettext_lazy("Change the priority of %(count)d job?", "Change the priority of %(count)d jobs?", "count"),
    question_for_all=_("Change the priority of all jobs that match?"),
    consequence=_("Jobs that run are left alone. Queue and time stay as they are; the history gets a note."),
)
KILL = Action(
    name="kill",
    source=Source.LIVE,
    statuses=LIVE,
    act=_kill,
    why=why_not_killed,
    is_destructive=True,
    permission="kill_job",
    help="kill jobs: those that wait go to the dead jobs at once, those that run are stopped by their workers",
    label=_("Kill"),
    selected=_("Kill selected %(verbose_name_plural)s"),
    question=ngettext_lazy("Kill %(count)d job?", "Kill %(count)d jobs?", "count"),
    question_for_all=_("Kill all jobs that match?"),
    consequence=_(
        "Jobs that are not running move to the dead jobs at once; from there they can be retried. Running jobs are "
        "stopped by their workers within some seconds, if need be with the process."
    ),
)
PURGE = Action(
    name="purge",
    source=Source.DEAD,
    act=_making(JobChange.PURGED, purge),
    why=why_not_purged,
    is_destructive=True,
    permission="delete_deadjob",
    help="remove dead jobs for good, or with --finished the finished ones",
    label=_("Purge"),
    selected=_("Purge selected %(verbose_name_plural)s (remove for good)"),
    question=ngettext_lazy("Remove %(count)d dead job for good?", "Remove %(count)d dead jobs for good?", "count"),
    question_for_all=_("Remove all dead jobs that match for good?"),
    consequence=_("Their arguments and their history are gone with them. Nothing brings them back."),
)
PURGE_FINISHED = replace(
    PURGE,
    source=Source.FINISHED,
    act=_making(JobChange.PURGED, functools.partial(purge, finished=True)),
    permission="delete_finishedjob",
    question=ngettext_lazy(
        "Remove %(count)d finished job for good?", "Remove %(count)d finished jobs for good?", "count"
    ),
    question_for_all=_("Remove all finished jobs that match for good?"),
    consequence=_("Their results and their history are gone with them. Nothing brings them back."),
)

ACTIONS = (RETRY, RUN_NOW, MOVE, SET_PRIORITY, KILL, PURGE, PURGE_FINISHED)  # in the order in which faces show them


def action_named(name: str, source: str) -> Action:
    """Return the action of this name for live, dead or finished jobs; raise InvalidBulkAction if there is none."""
    for action in ACTIONS:
        if (action.name, action.source.name.lower()) == (name, source):
            return action
    raise InvalidBulkAction(f"There is no action {name!r} for {source!r} jobs.")
