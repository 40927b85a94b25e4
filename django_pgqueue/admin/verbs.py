"""What staff may do to jobs: the verbs of ``lifecycle/``, in the words of the confirmation and of the answer."""

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import Model
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_pgqueue.base.states import Status
from django_pgqueue.lifecycle.dead_letter import requeue
from django_pgqueue.lifecycle.kill import kill
from django_pgqueue.lifecycle.run_now import run_now
from django_pgqueue.models import DeadJob, Job


class Change(NamedTuple):
    """Jobs to which one thing was done."""

    model: type[Model]  # where they stand now
    ids: list[int]
    entry: str  # for the audit log; stored, so not translated
    message: Any  # lazy text with %(count)d


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One thing that staff may do.

    Attributes:
        name: the action, and the last part of its address.
        permission: codename; checked when the action is offered, when it is confirmed and when it is done.
        label: what the button says.
        question: lazy text with %(count)d.
        consequence: what will happen, for the confirmation.
        perform: does it, in the open transaction on the queue's database: ids, who, alias.
        explain: counts why the other jobs were left alone: ids, alias.
        is_destructive: whether the button warns.
    """

    name: str
    permission: str
    label: Any
    question: Any
    consequence: Any
    perform: Callable[[Collection[int], str, str], list[Change]]
    explain: Callable[[Collection[int], str], Counter[Any]]
    is_destructive: bool = False


CHANGING = _("just being changed by somebody else; try again")
GONE = _("not here any more: finished, killed or removed")


def _run_now(ids: Collection[int], by: str, alias: str) -> list[Change]:
    message = ngettext_lazy("%(count)d job is due now.", "%(count)d jobs are due now.", "count")
    return [Change(Job, run_now(ids, by=by, database=alias), "Made due at once.", message)]


def _kill(ids: Collection[int], by: str, alias: str) -> list[Change]:
    killed = kill(ids, by=by, database=alias)
    dead = ngettext_lazy("%(count)d job was killed.", "%(count)d jobs were killed.", "count")
    requested = ngettext_lazy(
        "%(count)d running job was asked to stop.", "%(count)d running jobs were asked to stop.", "count"
    )
    return [
        Change(DeadJob, killed.dead, "Killed.", dead),
        Change(Job, killed.requested, "Asked to stop.", requested),
    ]


def _requeue(ids: Collection[int], by: str, alias: str) -> list[Change]:
    message = ngettext_lazy("%(count)d job was requeued.", "%(count)d jobs were requeued.", "count")
    return [Change(Job, requeue(ids, by=by, database=alias), "Requeued.", message)]


STANDING = {
    Status.QUEUED: _("queued already"),
    Status.WAITING: _("waiting for a limit; due already"),
    Status.RUNNING: _("running already"),
    Status.HELD: _("finished; only the unique key still counts"),
    Status.SCHEDULED: CHANGING,
}


def _why_not_due(ids: Collection[int], alias: str) -> Counter[Any]:
    statuses = dict(Job.objects.using(alias).filter(pk__in=ids).values_list("pk", "status"))
    return Counter(STANDING[Status(statuses[job_id])] if job_id in statuses else GONE for job_id in ids)


def _why_not_killed(ids: Collection[int], alias: str) -> Counter[Any]:
    live = set(Job.objects.using(alias).filter(pk__in=ids).values_list("pk", flat=True))
    return Counter(CHANGING if job_id in live else GONE for job_id in ids)


def _why_not_requeued(ids: Collection[int], alias: str) -> Counter[Any]:
    dead = dict(DeadJob.objects.using(alias).filter(pk__in=ids).values_list("pk", "unique_key"))
    live = Job.objects.using(alias)
    keys = set(live.filter(unique_key__in=filter(None, dead.values())).values_list("unique_key", flat=True))
    taken = set(live.filter(pk__in=dead).values_list("pk", flat=True))

    def why(job_id: int) -> Any:
        if job_id not in dead:
            return GONE
        if dead[job_id] in keys:
            return _("a live job holds the unique key; they stay dead")
        return _("a live job has the same id; they stay dead") if job_id in taken else CHANGING

    return Counter(map(why, ids))


RUN_NOW = Verb(
    name="run_now",
    permission="run_job",
    label=_("Run now"),
    question=ngettext_lazy("Run %(count)d job now?", "Run %(count)d jobs now?", "count"),
    consequence=_(
        "Scheduled jobs become due at once, in the order of their priority. Attempts and history stay as they are. "
        "Jobs that are not scheduled are left alone."
    ),
    perform=_run_now,
    explain=_why_not_due,
)
KILL = Verb(
    name="kill",
    permission="kill_job",
    label=_("Kill"),
    question=ngettext_lazy("Kill %(count)d job?", "Kill %(count)d jobs?", "count"),
    consequence=_(
        "Jobs that are not running move to the dead jobs at once; from there they can be requeued. Running jobs are "
        "asked to stop: an async task is cancelled, a sync task sees it in current_job().is_cancelled."
    ),
    perform=_kill,
    explain=_why_not_killed,
    is_destructive=True,
)
REQUEUE = Verb(
    name="requeue",
    permission="requeue_deadjob",
    label=_("Requeue"),
    question=ngettext_lazy("Requeue %(count)d dead job?", "Requeue %(count)d dead jobs?", "count"),
    consequence=_(
        "They are queued at once with all their attempts before them; what happened so far stays in their history. "
        "A job whose unique key a live job holds stays dead."
    ),
    perform=_requeue,
    explain=_why_not_requeued,
)
