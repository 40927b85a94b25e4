"""Actions of staff on jobs: those of ``jobs/actions.py``, in the words of the confirmation and of the answer."""

import functools
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from django import forms
from django.db.models import Model
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_pgqueue.admin.actions import AdminAction, Change, Said
from django_pgqueue.jobs import actions
from django_pgqueue.jobs.actions import JobChange, SkipReason, why_skipped
from django_pgqueue.jobs.search import Source
from django_pgqueue.models import DeadJob, FinishedJob, Job
from django_pgqueue.states import HIGHEST_PRIORITY, LONGEST_QUEUE, LOWEST_PRIORITY

MODELS: dict[Source, type[Model]] = {Source.LIVE: Job, Source.DEAD: DeadJob, Source.FINISHED: FinishedJob}


class ActionMessage(NamedTuple):
    """Words for jobs that an action has changed."""

    model: type[Model] | None  # where they stand now; None: nowhere
    entry: str  # for the audit log, with the names of what was said
    message: Any


TOLD = {
    JobChange.RETRIED: ActionMessage(
        Job, "Retried.", ngettext_lazy("%(count)d job was retried.", "%(count)d jobs were retried.", "count")
    ),
    JobChange.DUE: ActionMessage(
        Job, "Made due at once.", ngettext_lazy("%(count)d job is due now.", "%(count)d jobs are due now.", "count")
    ),
    JobChange.KILLED: ActionMessage(
        DeadJob, "Killed.", ngettext_lazy("%(count)d job was killed.", "%(count)d jobs were killed.", "count")
    ),
    JobChange.ASKED: ActionMessage(
        Job,
        "Asked to stop.",
        ngettext_lazy(
            "%(count)d running job was asked to stop.", "%(count)d running jobs were asked to stop.", "count"
        ),
    ),
    JobChange.MOVED: ActionMessage(
        Job,
        "Moved to queue {queue}.",
        ngettext_lazy("%(count)d job was moved.", "%(count)d jobs were moved.", "count"),
    ),
    JobChange.PRIORITIZED: ActionMessage(
        Job,
        "Given priority {priority}.",
        ngettext_lazy(
            "The priority of %(count)d job was changed.", "The priority of %(count)d jobs was changed.", "count"
        ),
    ),
    JobChange.PURGED: ActionMessage(
        None,
        "Purged.",
        ngettext_lazy("%(count)d job was removed for good.", "%(count)d jobs were removed for good.", "count"),
    ),
}

WORDS = {
    SkipReason.GONE: _("not here any more: finished, killed or removed"),
    SkipReason.CHANGING: _("just being changed by another session; try again"),
    SkipReason.QUEUED: _("queued already"),
    SkipReason.WAITING: _("waiting for a limit; due already"),
    SkipReason.RUNNING: _("running already"),
    SkipReason.RESERVED: _("finished; only the unique key still counts"),
    SkipReason.KEY_HELD: _("a live job holds the unique key; they stay dead"),
    SkipReason.REFUSED: _("the database refuses to change them; the bulk action says why"),
    SkipReason.OUT_OF_BOUNDS: _("a name is too long, or a time cannot be stored; they stay dead"),
    SkipReason.ID_TAKEN: _("a live job has the same id; they stay dead"),
}


class MoveForm(forms.Form):
    """The queue to move jobs to."""

    queue = forms.CharField(label=_("Queue"), max_length=LONGEST_QUEUE)


class PriorityForm(forms.Form):
    """The new priority."""

    priority = forms.IntegerField(
        label=_("Priority"),
        min_value=LOWEST_PRIORITY,
        max_value=HIGHEST_PRIORITY,
        help_text=_("-100 to 100; larger runs sooner."),
    )


FORMS: dict[str, type[forms.Form]] = {"queue": MoveForm, "priority": PriorityForm}
"""Of what a verb needs."""


def _perform(verb: actions.Action, ids: Collection[int], by: str, alias: str, said: Said) -> list[Change]:
    before: list[Model] = []
    if verb.name == actions.PURGE.name:  # the log names what is not there any more
        rows = MODELS[verb.source]._default_manager.using(alias)  # noqa: SLF001 - Django's own idiom
        before = list(rows.only("pk", "task").filter(pk__in=ids))
    did = verb.act_on_chosen(list(ids), by=by, said=said, statuses=(), where=alias)
    return [_change(verb, what, list(done), said, before) for what, done in did.items()]


def _change(verb: actions.Action, did: JobChange, ids: list[int], said: Said, before: Sequence[Model]) -> Change:
    told, there = TOLD[did], set(ids)
    rows = None if told.model else [row for row in before if row.pk in there]
    return Change(told.model or MODELS[verb.source], ids, told.entry.format(**said), told.message, rows=rows)


def _explain(verb: actions.Action, ids: Collection[int], alias: str) -> Counter[Any]:
    return Counter(WORDS[left] for left in why_skipped(ids, verb.why, database=alias).values())


def _verb(many: actions.Action, **words: Any) -> AdminAction:
    return AdminAction(
        name=many.name,
        perform=functools.partial(_perform, many),
        explain=functools.partial(_explain, many),
        form=FORMS.get(many.needs),
        is_destructive=many.is_destructive,
        many=many,
        **words,
    )


MOVE = _verb(
    actions.MOVE,
    permission="move_job",
    label=_("Move to queue…"),
    question=ngettext_lazy("Move %(count)d job to another queue?", "Move %(count)d jobs to another queue?", "count"),
    question_for_all=_("Move all jobs that match to another queue?"),
    consequence=_("Jobs that run are left alone. Priority and time stay as they are; the history gets a note."),
)
SET_PRIORITY = _verb(
    actions.SET_PRIORITY,
    permission="reprioritize_job",
    label=_("Change priority…"),
    question=ngettext_lazy("Change the priority of %(count)d job?", "Change the priority of %(count)d jobs?", "count"),
    question_for_all=_("Change the priority of all jobs that match?"),
    consequence=_("Jobs that run are left alone. Queue and time stay as they are; the history gets a note."),
)
RUN_NOW = _verb(
    actions.RUN_NOW,
    permission="run_job",
    label=_("Run now"),
    question=ngettext_lazy("Run %(count)d job now?", "Run %(count)d jobs now?", "count"),
    question_for_all=_("Run all jobs that match now?"),
    consequence=_(
        "Scheduled jobs become due at once, in the order of their priority. Attempts stay as they are; the history "
        "gets a note. Jobs that are not scheduled are left alone."
    ),
)
KILL = _verb(
    actions.KILL,
    permission="kill_job",
    label=_("Kill"),
    question=ngettext_lazy("Kill %(count)d job?", "Kill %(count)d jobs?", "count"),
    question_for_all=_("Kill all jobs that match?"),
    consequence=_(
        "Jobs that are not running move to the dead jobs at once; from there they can be retried. Running jobs are "
        "stopped by their workers within some seconds, if need be with the process."
    ),
)
RETRY = _verb(
    actions.RETRY,
    permission="retry_deadjob",
    label=_("Retry"),
    question=ngettext_lazy("Retry %(count)d dead job?", "Retry %(count)d dead jobs?", "count"),
    question_for_all=_("Retry all dead jobs that match?"),
    consequence=_(
        "They will be queued immediately with a fresh set of attempts. Their history is kept. A job whose unique key a "
        "live job holds stays dead."
    ),
)
PURGE = _verb(
    actions.PURGE,
    permission="delete_deadjob",
    label=_("Purge"),
    question=ngettext_lazy("Remove %(count)d dead job for good?", "Remove %(count)d dead jobs for good?", "count"),
    question_for_all=_("Remove all dead jobs that match for good?"),
    consequence=_("Their arguments and their history are gone with them. Nothing brings them back."),
)
PURGE_FINISHED = _verb(
    actions.PURGE_FINISHED,
    permission="delete_finishedjob",
    label=_("Purge"),
    question=ngettext_lazy(
        "Remove %(count)d finished job for good?", "Remove %(count)d finished jobs for good?", "count"
    ),
    question_for_all=_("Remove all finished jobs that match for good?"),
    consequence=_("Their results and their history are gone with them. Nothing brings them back."),
)

VERBS = (RETRY, RUN_NOW, KILL, MOVE, SET_PRIORITY, PURGE, PURGE_FINISHED)
