"""Actions of the admin: on jobs those of ``jobs/actions.py``, and those on queues, schedules and workers."""

import datetime as dt
import functools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from django import forms
from django.db import transaction
from django.db.models import Model
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_pgqueue.admin.actions import AdminAction, Change
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.flow.queue_limits import pause_queue, resume_queue
from django_pgqueue.insights.overview import lines_of
from django_pgqueue.jobs.actions import ACTIONS, PURGE, Action, JobChange, Param, Params, why_skipped
from django_pgqueue.jobs.leases import request_stop
from django_pgqueue.jobs.search import Source
from django_pgqueue.models import DeadJob, FinishedJob, Job, Queue, Schedule, Worker
from django_pgqueue.schedules.manage import pause_schedules, restore_schedules, resume_schedules, run_schedules

LONGEST_REASON = 1000
MOST_MINUTES = 366 * 24 * 60

GONE = _("not here any more")

# Jobs

MODELS: dict[Source, type[Model]] = {Source.LIVE: Job, Source.DEAD: DeadJob, Source.FINISHED: FinishedJob}


def field_of(param: Param) -> forms.Field:
    """Return the form field of what an action needs."""
    if param.value_type is str:
        return forms.CharField(label=capfirst(param.label), max_length=param.highest)
    return forms.IntegerField(
        label=capfirst(param.label), min_value=param.lowest, max_value=param.highest, help_text=param.help
    )


class ParamForm(forms.Form):
    """What an action on jobs needs."""

    def __init__(self, param: Param, data: Any = None) -> None:
        super().__init__(data)
        self.fields[param.name] = field_of(param)


def _perform(action: Action, ids: Collection[int], by: str, alias: str, params: Params) -> list[Change]:
    before: list[Model] = []
    if action.name == PURGE.name:  # the log names what is not there any more
        rows = MODELS[action.source]._default_manager.using(alias)  # noqa: SLF001 - Django's own idiom
        before = list(rows.only("pk", "task").filter(pk__in=ids))
    done = action.change(list(ids), by=by, params=params, where=alias)
    return [_change(action, change, list(changed), params, before) for change, changed in done.items()]


def _change(action: Action, change: JobChange, ids: list[int], params: Params, before: Sequence[Model]) -> Change:
    there, entry = set(ids), f"{change.words.format(**params)}."
    rows = None if change.source else [row for row in before if row.pk in there]
    return Change(MODELS[change.source or action.source], ids, entry, change.message, rows=rows)


def _explain(action: Action, ids: Collection[int], alias: str) -> Counter[Any]:
    return Counter(reason.words for reason in why_skipped(ids, action.why, database=alias).values())


def _on_jobs(action: Action) -> AdminAction:
    return AdminAction(
        name=action.name,
        permission=action.permission,
        label=action.label,
        selected=action.selected,
        question=action.question,
        question_for_all=action.question_for_all,
        consequence=action.consequence,
        perform=functools.partial(_perform, action),
        explain=functools.partial(_explain, action),
        form=functools.partial(ParamForm, action.param) if action.param else None,
        is_destructive=action.is_destructive,
        many=action,
    )


JOB_ACTIONS = {source: tuple(_on_jobs(one) for one in ACTIONS if one.source is source) for source in Source}


# Queues


class PauseForm(forms.Form):
    """The reason and the length of a pause."""

    reason = forms.CharField(label=_("Reason"), required=False, max_length=LONGEST_REASON)
    minutes = forms.IntegerField(
        label=_("Minutes"),
        required=False,
        min_value=1,
        max_value=MOST_MINUTES,
        help_text=_("The pause ends by itself after this time. Leave empty to pause until the queue is resumed."),
    )


def _there(names: Collection[str], alias: str) -> list[str]:
    return list(Queue.objects.using(alias).filter(pk__in=names).order_by("pk").values_list("pk", flat=True))


def _there_or_with_jobs(names: Collection[str], alias: str) -> list[str]:
    """Return queues that can be paused: a pause makes the row of one that no worker has served."""
    there = _there(names, alias)
    others = [name for name in names if name not in there]
    return sorted([*there, *(line.name for line in lines_of(others, alias) if line.is_known)])


def _pause(names: Collection[str], by: str, alias: str, params: Params) -> list[Change]:
    message = ngettext_lazy("%(count)d queue is paused.", "%(count)d queues are paused.", "count")
    resume_at = dt.timedelta(minutes=params["minutes"]) if params["minutes"] else None
    there = _there_or_with_jobs(names, alias)
    for name in there:
        pause_queue(name, by=by, reason=params["reason"], resume_at=resume_at, database=alias)
    entry = f"Paused: {params['reason']}" if params["reason"] else "Paused."
    return [Change(Queue, there, entry, message, "name")]


def _resume(names: Collection[str], by: str, alias: str, _params: Params) -> list[Change]:
    message = ngettext_lazy("%(count)d queue was resumed.", "%(count)d queues were resumed.", "count")
    done = [name for name in _there(names, alias) if resume_queue(name, by=by, database=alias)]
    return [Change(Queue, done, "Resumed.", message, "name")]


def _why_not_paused(names: Collection[str], _alias: str) -> Counter[Any]:
    return Counter({GONE: len(names)})


def _why_not_resumed(names: Collection[str], alias: str) -> Counter[Any]:
    there = len(_there(names, alias))
    return +Counter({_("not paused"): there, GONE: len(names) - there})


PAUSE_QUEUES = AdminAction(
    name="pause",
    permission="pause_queue",
    label=_("Pause"),
    selected=_("Pause selected %(verbose_name_plural)s"),
    question=ngettext_lazy("Pause %(count)d queue?", "Pause %(count)d queues?", "count"),
    consequence=_(
        "No worker starts their jobs any more. Jobs that run are left alone, and jobs can still be enqueued. A queue "
        "that is paused already gets the new reason and time."
    ),
    perform=_pause,
    explain=_why_not_paused,
    form=PauseForm,
)
RESUME_QUEUES = AdminAction(
    name="resume",
    permission="pause_queue",
    label=_("Resume"),
    selected=_("Resume selected %(verbose_name_plural)s"),
    question=ngettext_lazy("Resume %(count)d queue?", "Resume %(count)d queues?", "count"),
    consequence=_("Workers start their jobs again, as far as their limits allow."),
    perform=_resume,
    explain=_why_not_resumed,
)


# Schedules

CHANGING = _("changed by another session meanwhile; try again")


def _names(ids: Collection[int], alias: str) -> dict[str, int]:
    return dict(Schedule.objects.using(alias).filter(pk__in=ids).values_list("name", "pk"))


def _performs(
    act: Callable[..., Collection[str]], entry: str, message: Any
) -> Callable[[Collection[int], str, str, Params], list[Change]]:
    def perform(ids: Collection[int], by: str, alias: str, _params: Params) -> list[Change]:
        names = _names(ids, alias)
        done = act(list(names), by=by, database=alias)
        return [Change(Schedule, [names[name] for name in done], entry, message, "name")]

    return perform


def _run(names: Collection[str], *, by: str, database: str) -> list[str]:
    """Run those that can be run; of the others, ``_why_not_run`` tells the reason."""
    return [name for name in names if not _problem(name, by=by, database=database)]


def _problem(name: str, *, by: str, database: str) -> str:
    try:
        with transaction.atomic(using=database):
            run_schedules([name], by=by, database=database)
    except PgQueueError as error:
        return str(error)
    return ""


def _why_not_run(ids: Collection[int], alias: str) -> Counter[Any]:
    """Try once more, and take it back, to hear what keeps each from being run."""
    names = _names(ids, alias)
    reasons: Counter[Any] = Counter({GONE: len(ids) - len(names)} if len(names) < len(ids) else {})
    with transaction.atomic(using=alias):
        reasons.update(_problem(name, by="", database=alias) or str(CHANGING) for name in names)
        transaction.set_rollback(True, using=alias)
    return reasons


def _explains(condition: dict[str, Any], words: Any) -> Callable[[Collection[int], str], Counter[Any]]:
    def explain(ids: Collection[int], alias: str) -> Counter[Any]:
        there = Schedule.objects.using(alias).filter(pk__in=ids)
        already, count = there.filter(**condition).count(), there.count()
        reasons = {words: already, CHANGING: count - already, GONE: len(ids) - count}
        return Counter({why: number for why, number in reasons.items() if number})

    return explain


PAUSE_SCHEDULES = AdminAction(
    name="pause",
    permission="pause_schedule",
    label=_("Pause"),
    selected=_("Pause selected %(verbose_name_plural)s"),
    question=ngettext_lazy("Pause %(count)d schedule?", "Pause %(count)d schedules?", "count"),
    consequence=_("They miss their ticks until they are resumed. Jobs that are enqueued or run are left alone."),
    perform=_performs(
        pause_schedules,
        "Paused.",
        ngettext_lazy("%(count)d schedule was paused.", "%(count)d schedules were paused.", "count"),
    ),
    explain=_explains({"is_enabled": False}, _("paused already")),
)
RESUME_SCHEDULES = AdminAction(
    name="resume",
    permission="pause_schedule",
    label=_("Resume"),
    selected=_("Resume selected %(verbose_name_plural)s"),
    question=ngettext_lazy("Resume %(count)d schedule?", "Resume %(count)d schedules?", "count"),
    consequence=_("They go on with their next tick. Those that they missed meanwhile are not made up."),
    perform=_performs(
        resume_schedules,
        "Resumed.",
        ngettext_lazy("%(count)d schedule was resumed.", "%(count)d schedules were resumed.", "count"),
    ),
    explain=_explains({"is_enabled": True}, _("not paused")),
)
RUN = AdminAction(
    name="run",
    permission="run_schedule",
    label=_("Run now"),
    selected=_("Run selected %(verbose_name_plural)s now"),
    question=ngettext_lazy("Run %(count)d schedule now?", "Run %(count)d schedules now?", "count"),
    consequence=_("A job of each is enqueued now, besides those of its ticks, whether it is paused or not."),
    perform=_performs(
        _run,
        "Run now.",
        ngettext_lazy(
            "A job of %(count)d schedule was enqueued.", "Jobs of %(count)d schedules were enqueued.", "count"
        ),
    ),
    explain=_why_not_run,
)
RESTORE = AdminAction(
    name="restore",
    permission="change_schedule",
    label=_("Use the code's again"),
    question=ngettext_lazy(
        "Use what the code has for %(count)d schedule?", "Use what the code has for %(count)d schedules?", "count"
    ),
    consequence=_("What was edited here is lost. Within a minute a worker makes them as the code has them."),
    perform=_performs(
        restore_schedules,
        "Restored.",
        ngettext_lazy("%(count)d schedule was restored.", "%(count)d schedules were restored.", "count"),
    ),
    explain=_explains({"edited_at": None}, _("as the code has them, or made here")),
    is_destructive=True,
)


# Workers

WORKER_GONE = _("not here any more, or just being changed by its heartbeat; try again")


def _stop(ids: Collection[int], by: str, alias: str, _params: Params) -> list[Change]:
    message = ngettext_lazy(
        "%(count)d worker process was asked to stop.", "%(count)d worker processes were asked to stop.", "count"
    )
    return [Change(Worker, request_stop(ids, by=by, database=alias), "Asked to stop.", message, "host")]


def _why_not_asked(ids: Collection[int], alias: str) -> Counter[Any]:
    asked = Worker.objects.using(alias).filter(pk__in=ids, stop_requested_at__isnull=False).count()
    return +Counter({_("asked before"): asked, WORKER_GONE: len(ids) - asked})


STOP = AdminAction(
    name="stop",
    permission="stop_worker",
    label=_("Ask to stop"),
    selected=_("Ask selected %(verbose_name_plural)s to stop"),
    question=ngettext_lazy("Ask %(count)d worker process to stop?", "Ask %(count)d worker processes to stop?", "count"),
    consequence=_(
        "The whole command stops, with all its processes, also those that are not named here. It takes no more jobs, "
        "and those that run have its shutdown timeout to end; what does not end goes back. Whatever has started the "
        "command may start it again. If no other worker serves its queues, their jobs wait."
    ),
    perform=_stop,
    explain=_why_not_asked,
    is_destructive=True,
)
