"""What staff may do to jobs: the verbs of ``lifecycle/``, in the words of the confirmation and of the answer."""

import functools
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from django import forms
from django.db.models import Model
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_pgqueue.base.states import HIGHEST_PRIORITY, LONGEST_QUEUE, LOWEST_PRIORITY
from django_pgqueue.lifecycle.bulk import move_jobs, set_priority
from django_pgqueue.lifecycle.dead_letter import requeue
from django_pgqueue.lifecycle.kill import kill
from django_pgqueue.lifecycle.left import (
    Left,
    Why,
    why_left,
    why_not_changed,
    why_not_due,
    why_not_killed,
    why_not_requeued,
)
from django_pgqueue.lifecycle.run_now import run_now
from django_pgqueue.models import DeadJob, Job

Said = Mapping[str, Any]
"""What was filled in, by field."""


class Change(NamedTuple):
    """Jobs to which one thing was done."""

    model: type[Model]  # where they stand now
    ids: list[Any]
    entry: str  # for the audit log; stored, so not translated
    message: Any  # lazy text with %(count)d
    named_by: str = "task"  # the column that its rows are named by in the audit log


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One thing that staff may do.

    Attributes:
        name: the action, and the last part of its address.
        permission: codename; checked when the action is offered, when it is confirmed and when it is done.
        label: what the button says.
        question: lazy text with %(count)d.
        consequence: what will happen, for the confirmation.
        perform: does it, in the open transaction on the queue's database: ids, who, alias, what the form says.
        explain: counts why the other jobs were left alone: ids, alias.
        form: what else has to be known; asked for along with the confirmation.
        is_destructive: whether the button warns.
    """

    name: str
    permission: str
    label: Any
    question: Any
    consequence: Any
    perform: Callable[[Collection[Any], str, str, Said], list[Change]]
    explain: Callable[[Collection[Any], str], Counter[Any]]
    form: type[forms.Form] | None = None
    is_destructive: bool = False


def _run_now(ids: Collection[int], by: str, alias: str, _said: Said) -> list[Change]:
    message = ngettext_lazy("%(count)d job is due now.", "%(count)d jobs are due now.", "count")
    return [Change(Job, run_now(ids, by=by, database=alias), "Made due at once.", message)]


def _kill(ids: Collection[int], by: str, alias: str, _said: Said) -> list[Change]:
    killed = kill(ids, by=by, database=alias)
    dead = ngettext_lazy("%(count)d job was killed.", "%(count)d jobs were killed.", "count")
    requested = ngettext_lazy(
        "%(count)d running job was asked to stop.", "%(count)d running jobs were asked to stop.", "count"
    )
    return [
        Change(DeadJob, killed.dead, "Killed.", dead),
        Change(Job, killed.requested, "Asked to stop.", requested),
    ]


def _requeue(ids: Collection[int], by: str, alias: str, _said: Said) -> list[Change]:
    message = ngettext_lazy("%(count)d job was requeued.", "%(count)d jobs were requeued.", "count")
    return [Change(Job, requeue(ids, by=by, database=alias).ids, "Requeued.", message)]


class MoveForm(forms.Form):
    """Which queue."""

    queue = forms.CharField(label=_("queue"), max_length=LONGEST_QUEUE)


def _move(ids: Collection[int], by: str, alias: str, said: Said) -> list[Change]:
    message = ngettext_lazy("%(count)d job was moved.", "%(count)d jobs were moved.", "count")
    moved = move_jobs(ids, queue=said["queue"], by=by, database=alias)
    return [Change(Job, moved, f"Moved to queue {said['queue']}.", message)]


class PriorityForm(forms.Form):
    """Which priority."""

    priority = forms.IntegerField(
        label=_("priority"),
        min_value=LOWEST_PRIORITY,
        max_value=HIGHEST_PRIORITY,
        help_text=_("-100 to 100; larger runs sooner."),
    )


def _set_priority(ids: Collection[int], by: str, alias: str, said: Said) -> list[Change]:
    message = ngettext_lazy(
        "The priority of %(count)d job was changed.", "The priority of %(count)d jobs was changed.", "count"
    )
    changed = set_priority(ids, priority=said["priority"], by=by, database=alias)
    return [Change(Job, changed, f"Given priority {said['priority']}.", message)]


WORDS = {
    Left.GONE: _("not here any more: finished, killed or removed"),
    Left.CHANGING: _("just being changed by somebody else; try again"),
    Left.QUEUED: _("queued already"),
    Left.WAITING: _("waiting for a limit; due already"),
    Left.RUNNING: _("running already"),
    Left.HELD: _("finished; only the unique key still counts"),
    Left.KEY_HELD: _("a live job holds the unique key; they stay dead"),
    Left.ID_TAKEN: _("a live job has the same id; they stay dead"),
}


def _explained(why: Why, ids: Collection[int], alias: str) -> Counter[Any]:
    return Counter(WORDS[left] for left in why_left(ids, why, database=alias).values())


MOVE = Verb(
    name="move",
    permission="change_job",
    label=_("Move to queue…"),
    question=ngettext_lazy("Move %(count)d job to another queue?", "Move %(count)d jobs to another queue?", "count"),
    consequence=_("Jobs that run are left alone. Priority, time and history stay as they are."),
    perform=_move,
    explain=functools.partial(_explained, why_not_changed),
    form=MoveForm,
)
SET_PRIORITY = Verb(
    name="set_priority",
    permission="change_job",
    label=_("Change priority…"),
    question=ngettext_lazy("Change the priority of %(count)d job?", "Change the priority of %(count)d jobs?", "count"),
    consequence=_("Jobs that run are left alone. Queue, time and history stay as they are."),
    perform=_set_priority,
    explain=functools.partial(_explained, why_not_changed),
    form=PriorityForm,
)
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
    explain=functools.partial(_explained, why_not_due),
)
KILL = Verb(
    name="kill",
    permission="kill_job",
    label=_("Kill"),
    question=ngettext_lazy("Kill %(count)d job?", "Kill %(count)d jobs?", "count"),
    consequence=_(
        "Jobs that are not running move to the dead jobs at once; from there they can be requeued. Running jobs are "
        "stopped by their workers within some seconds, if need be with the process."
    ),
    perform=_kill,
    explain=functools.partial(_explained, why_not_killed),
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
    explain=functools.partial(_explained, why_not_requeued),
)
