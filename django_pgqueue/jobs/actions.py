"""Table of the actions of staff on jobs, which all faces show. ``manage.py`` and ``dead_letter.py`` carry them out.

``ACTIONS`` is the only place for the name of an action, its parameter, the jobs that it is for and its permission. The
admin makes buttons and questions of it, ``pgqueue_jobs`` its subcommands, and a bulk action stores its name.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_pgqueue.db.connections import Where, caller_of
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidBulkAction
from django_pgqueue.jobs.dead_letter import retry
from django_pgqueue.jobs.manage import kill, move, purge, run_now, set_priority
from django_pgqueue.jobs.search import Source
from django_pgqueue.options import Options
from django_pgqueue.states import HIGHEST_PRIORITY, LONGEST_QUEUE, LOWEST_PRIORITY, Status


def lock_with_status(ids: Iterable[int], statuses: Collection[str], *, database: Where = None) -> list[int]:
    """Lock live jobs that have one of these statuses still, so that they keep it until the end of the transaction."""
    rows = caller_of(database).rows(statement("lock_with_status"), {"ids": list(ids), "statuses": list(statuses)})
    return [job_id for (job_id,) in rows]


class SkipReason(TextChoices):
    """Reason for skipping jobs, as a bulk action stores it. Its label follows the number of jobs."""

    GONE = "gone", _("not here: succeeded, killed or removed, or there was never such a job")
    CHANGING = "changing", _("just being changed by another session; try again")
    QUEUED = "queued", _("queued already")
    LIMITED = "limited", _("waiting for a limit; due already")
    RUNNING = "running", _("running already")
    RESERVED = "reserved", _("succeeded; only the unique key still counts")
    KEY_HELD = "key_held", _("a live job holds the unique key; they stay dead")
    REFUSED = "refused", _("the database refuses to change them; the bulk action says why")
    OUT_OF_BOUNDS = "out_of_bounds", _("a name is too long, or a time cannot be stored; they stay dead")
    ID_TAKEN = "id_taken", _("a live job has the same id; they stay dead")


class SkippedJob(NamedTuple):
    """A job that was skipped; the columns of ``explain_skipped.sql``."""

    id: int
    status: str | None  # None: not live
    why_not_retried: str  # a SkipReason; "gone": not dead


# The table of actions

Ids = Sequence[int]
Params = Mapping[str, Any]  # values of the parameter of an action, by name

LIVE = tuple(status.value for status in Status if status is not Status.RESERVED)
NOT_RUNNING = tuple(status for status in LIVE if status != Status.RUNNING)


class JobChange(TextChoices):
    """Change made to jobs by an action, as a bulk action stores it.

    Its label, with the names of params, is for the command, the log and the admin's history; stored, so not translated.
    """

    RETRIED = "retried", "Retried"
    DUE = "due", "Made due at once"
    KILLED = "killed", "Killed"
    ASKED = "asked", "Asked to stop"  # it runs, and its worker will stop it
    MOVED = "moved", "Moved to queue {queue}"
    PRIORITIZED = "prioritized", "Given priority {priority}"
    PURGED = "purged", "Purged"

    @property
    def source(self) -> Source | None:
        """The table that the jobs are in now; None: they are gone."""
        return {JobChange.KILLED: Source.DEAD, JobChange.PURGED: None}.get(self, Source.LIVE)


MESSAGES = {
    JobChange.RETRIED: ngettext_lazy("%(count)d job was retried.", "%(count)d jobs were retried.", "count"),
    JobChange.DUE: ngettext_lazy("%(count)d job is due now.", "%(count)d jobs are due now.", "count"),
    JobChange.KILLED: ngettext_lazy("%(count)d job was killed.", "%(count)d jobs were killed.", "count"),
    JobChange.ASKED: ngettext_lazy(
        "%(count)d running job was asked to stop.", "%(count)d running jobs were asked to stop.", "count"
    ),
    JobChange.MOVED: ngettext_lazy("%(count)d job was moved.", "%(count)d jobs were moved.", "count"),
    JobChange.PRIORITIZED: ngettext_lazy(
        "The priority of %(count)d job was changed.", "The priority of %(count)d jobs was changed.", "count"
    ),
    JobChange.PURGED: ngettext_lazy(
        "%(count)d job was removed for good.", "%(count)d jobs were removed for good.", "count"
    ),
}
"""The changes in sentences, with %(count)d."""


@dataclass(frozen=True, kw_only=True)
class Param:
    """Parameter of an action; ``Options`` checks its value."""

    name: str  # of the argument in Python
    value_type: type[str] | type[int]
    label: Any
    metavar: str
    lowest: int = 1  # number
    highest: int  # number, or number of characters
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


class ActionResult(NamedTuple):
    done: Mapping[JobChange, Ids]
    skipped: Mapping[int, SkipReason] = {}  # as far as known


@dataclass(frozen=True, kw_only=True)
class Action:
    """One thing that can be done to many jobs. It is known by its name together with the source."""

    name: str
    source: Source
    statuses: tuple[str, ...] = ()  # of the live jobs it is offered for
    can_change: tuple[str, ...] = ()  # of the live jobs
    tells_why: bool = False  # of dead jobs: names what keeps each from coming back
    act: Callable[..., ActionResult]  # takes ids, by, database, and the param by its name
    param: Param | None = None
    is_destructive: bool = False  # it cannot be undone, so faces ask twice
    permission: str  # codename, for users of the admin
    help: str  # for the command
    label: Any
    selected: Any  # for the list of actions, with %(verbose_name_plural)s
    question: Any  # with %(count)d
    question_for_all: Any  # the same for all jobs that match a filter
    consequence: Any

    def do(self, ids: Ids, *, by: str, params: Params, statuses: Sequence[str], where: Where) -> ActionResult:
        """Do it to jobs in the transaction that is open, and find out why some were skipped.

        Live jobs that were chosen by ``statuses``, if any, are skipped where they have none of them any more. Raises
        InvalidOption if a param is missing or cannot be.
        """
        chosen = lock_with_status(ids, statuses, database=where) if statuses else ids
        done, known = self.act(chosen, by=by, database=where, **self._needed(params))
        others = set(ids).difference(known, *done.values())
        return ActionResult(done, {**known, **self.why_skipped(others, statuses=statuses, where=where)})

    def change(self, ids: Ids, *, by: str, params: Params, where: Where) -> Mapping[JobChange, Ids]:
        return self.act(ids, by=by, database=where, **self._needed(params)).done

    def why_skipped(self, ids: Collection[int], *, statuses: Sequence[str] = (), where: Where) -> dict[int, SkipReason]:
        """Return why it has skipped these jobs; ``statuses`` as in ``do``."""
        rows = caller_of(where).rows(statement("explain_skipped"), {"ids": list(ids)}) if ids else []
        return {job.id: self._why(job, statuses) for job in map(SkippedJob._make, rows)}

    def _why(self, job: SkippedJob, statuses: Sequence[str]) -> SkipReason:
        if self.source is not Source.LIVE:
            is_gone = job.why_not_retried == SkipReason.GONE
            return SkipReason(job.why_not_retried) if self.tells_why or is_gone else SkipReason.CHANGING
        if job.status is None:
            return SkipReason.GONE
        was_not_asked_for = job.status == Status.RUNNING and statuses and job.status not in statuses
        if was_not_asked_for or job.status not in self.can_change:
            return SkipReason(job.status)  # there is one for each status that some action cannot change
        return SkipReason.CHANGING

    def check(self, params: Params) -> None:
        """Raise InvalidOption if what the action needs is missing or cannot be."""
        Options(**self._needed(params))

    def _needed(self, params: Params) -> dict[str, Any]:
        return {self.param.name: params.get(self.param.name)} if self.param else {}


def _retry(ids: Ids, **options: Any) -> ActionResult:
    retried = retry(ids, **options)
    return ActionResult({JobChange.RETRIED: retried.ids}, dict.fromkeys(retried.held_by, SkipReason.KEY_HELD))


def _kill(ids: Ids, **options: Any) -> ActionResult:
    killed = kill(ids, **options)
    return ActionResult({JobChange.KILLED: killed.dead, JobChange.ASKED: killed.requested})


RETRY = Action(
    name="retry",
    source=Source.DEAD,
    tells_why=True,
    act=_retry,
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
    can_change=(Status.SCHEDULED.value,),
    act=lambda ids, **options: ActionResult({JobChange.DUE: run_now(ids, **options)}),
    permission="run_now_job",
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
    can_change=NOT_RUNNING,
    act=lambda ids, **options: ActionResult({JobChange.MOVED: move(ids, **options)}),
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
    can_change=NOT_RUNNING,
    act=lambda ids, **options: ActionResult({JobChange.PRIORITIZED: set_priority(ids, **options)}),
    param=PRIORITY,
    permission="set_priority_job",
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
    can_change=LIVE,
    act=_kill,
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
    act=lambda ids, **options: ActionResult({JobChange.PURGED: purge(ids, **options)}),
    is_destructive=True,
    permission="delete_deadjob",
    help="remove dead jobs for good, or with --succeeded the succeeded ones",
    label=_("Purge"),
    selected=_("Purge selected %(verbose_name_plural)s (remove for good)"),
    question=ngettext_lazy("Remove %(count)d dead job for good?", "Remove %(count)d dead jobs for good?", "count"),
    question_for_all=_("Remove all dead jobs that match for good?"),
    consequence=_("Their arguments and their history are gone with them. Nothing brings them back."),
)
PURGE_SUCCEEDED = replace(
    PURGE,
    source=Source.SUCCEEDED,
    act=lambda ids, **options: ActionResult({JobChange.PURGED: purge(ids, succeeded=True, **options)}),
    permission="delete_succeededjob",
    question=ngettext_lazy(
        "Remove %(count)d succeeded job for good?", "Remove %(count)d succeeded jobs for good?", "count"
    ),
    question_for_all=_("Remove all succeeded jobs that match for good?"),
    consequence=_("Their results and their history are gone with them. Nothing brings them back."),
)

ACTIONS = (RETRY, RUN_NOW, MOVE, SET_PRIORITY, KILL, PURGE, PURGE_SUCCEEDED)  # in the order in which faces show them


def action_named(name: str, source: str) -> Action:
    """Return the action of this name for live, dead or succeeded jobs; raise InvalidBulkAction if there is none."""
    for action in ACTIONS:
        if (action.name, action.source) == (name, source):
            return action
    raise InvalidBulkAction(f"There is no action {name!r} for {source!r} jobs.")
