"""Actions of the admin: on jobs those of ``jobs/actions.py``, and those on queues, schedules and workers."""

import datetime as dt
import functools
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from django import forms
from django.db import Error, transaction
from django.db.models import Model
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_pgqueue import queues, schedules, workers
from django_pgqueue.admin.actions import AdminAction, Change
from django_pgqueue.admin.formatting import of_the_project
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.insights.formatting import MODELS
from django_pgqueue.insights.overview import is_restorable, lines_of
from django_pgqueue.jobs.actions import ACTIONS, MESSAGES, PURGE, Action, Param, Params
from django_pgqueue.jobs.search import Source
from django_pgqueue.models import Queue, Schedule, Worker

LONGEST_REASON = 1000
MOST_MINUTES = 366 * 24 * 60

GONE = _("not here any more")
CHANGING = _("changed by another session meanwhile; try again")


def explains(
    model: type[Model], done: dict[str, Any], words: Any, *, changing: Any = CHANGING, gone: Any = GONE
) -> Callable[[Collection[Any], str], Counter[Any]]:
    """Return what counts the rows of which ``done`` holds already (empty: all), the others there, and those gone."""

    def explain(keys: Collection[Any], alias: str) -> Counter[Any]:
        there = model._default_manager.using(alias).filter(pk__in=keys)  # noqa: SLF001 - Django's own idiom
        already, count = there.filter(**done).count(), there.count()
        reasons = Counter({words: already})
        reasons[changing] += count - already
        reasons[gone] += len(keys) - count
        return +reasons

    return explain


# Jobs


def field_of(param: Param) -> forms.Field:
    if param.value_type is str:
        return forms.CharField(label=capfirst(param.label), max_length=param.highest)
    return forms.IntegerField(
        label=capfirst(param.label), min_value=param.lowest, max_value=param.highest, help_text=param.help
    )


class ParamForm(forms.Form):
    def __init__(self, param: Param, data: Any = None) -> None:
        super().__init__(data)
        self.fields[param.name] = field_of(param)


def _perform(action: Action, ids: Collection[int], by: str, alias: str, params: Params) -> list[Change]:
    before: dict[int, Model] = {}
    if action.name == PURGE.name:  # the log names jobs that are gone
        rows = MODELS[action.source]._default_manager.using(alias)  # noqa: SLF001 - Django's own idiom
        before = rows.only("pk", "task").in_bulk(ids)
    done = action.change(list(ids), by=by, params=params, where=alias)
    return [
        Change(
            MODELS[change.source or action.source],
            list(changed),
            f"{change.label.format(**params)}.",
            MESSAGES[change],
            rows=None if change.source else [before[job_id] for job_id in changed if job_id in before],
        )
        for change, changed in done.items()
    ]


def _explain(action: Action, ids: Collection[int], alias: str) -> Counter[Any]:
    return Counter(reason.label for reason in action.why_skipped(ids, where=alias).values())


def _on_jobs(action: Action) -> AdminAction:
    return AdminAction(
        name=action.name,
        permission=action.permission,
        label=action.label,
        selected=action.selected,
        question=action.question,
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
        queues.pause(name, by=by, reason=params["reason"], resume_at=resume_at, database=alias)
    entry = f"Paused: {params['reason']}" if params["reason"] else "Paused."
    return [Change(Queue, there, entry, message)]


def _resume(names: Collection[str], by: str, alias: str, _params: Params) -> list[Change]:
    message = ngettext_lazy("%(count)d queue was resumed.", "%(count)d queues were resumed.", "count")
    done = [name for name in _there(names, alias) if queues.resume(name, by=by, database=alias)]
    return [Change(Queue, done, "Resumed.", message)]


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
    explain=lambda names, _alias: Counter({GONE: len(names)}),
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
    explain=explains(Queue, {}, _("not paused")),
)


def _restore_limits(names: Collection[str], by: str, alias: str, _params: Params) -> list[Change]:
    message = ngettext_lazy("%(count)d queue was restored.", "%(count)d queues were restored.", "count")
    rows = Queue.objects.using(alias).filter(pk__in=names).order_by("pk")
    done = [row.name for row in rows if is_restorable(row) and queues.restore(row.name, by=by, database=alias)]
    return [Change(Queue, done, "Restored.", message)]


RESTORE_LIMITS = AdminAction(
    name="restore",
    permission="limit_queue",
    label=_("Use the code's again"),
    question=ngettext_lazy(
        "Use the limits of the code for %(count)d queue?", "Use the limits of the code for %(count)d queues?", "count"
    ),
    consequence=_("Limits that were set by hand are lost. Those of the code count at once."),
    perform=_restore_limits,
    explain=explains(Queue, {}, _("as the code has them, or not in the code")),
    is_destructive=True,
)


# Schedules


def _names(ids: Collection[int], alias: str) -> dict[str, int]:
    return dict(Schedule.objects.using(alias).filter(pk__in=ids).values_list("name", "pk"))


def _performs(
    act: Callable[..., Collection[str]], entry: str, message: Any
) -> Callable[[Collection[int], str, str, Params], list[Change]]:
    def perform(ids: Collection[int], by: str, alias: str, _params: Params) -> list[Change]:
        names = _names(ids, alias)
        done = act(list(names), by=by, database=alias)
        return [Change(Schedule, [names[name] for name in done], entry, message)]

    return perform


def _run(names: Collection[str], *, by: str, database: str) -> list[str]:
    """Run those that can be run; ``_why_not_run`` returns the reasons for the others."""
    return [name for name in names if not _problem(name, by=by, database=database)]


def _problem(name: str, *, by: str, database: str) -> str:
    try:
        with transaction.atomic(using=database):
            schedules.run([name], by=by, database=database)
    except PgQueueError as error:
        return str(error)
    except Error:
        raise
    except Exception as error:  # noqa: BLE001 - of code of the project; its text may hold sensitive values
        return of_the_project(error)
    return ""


def _why_not_run(ids: Collection[int], alias: str) -> Counter[Any]:
    """Try once more, and undo it, to find out what keeps each from being run."""
    names = _names(ids, alias)
    reasons: Counter[Any] = Counter({GONE: len(ids) - len(names)} if len(names) < len(ids) else {})
    with transaction.atomic(using=alias):
        reasons.update(_problem(name, by="", database=alias) or str(CHANGING) for name in names)
        transaction.set_rollback(True, using=alias)
    return reasons


PAUSE_SCHEDULES = AdminAction(
    name="pause",
    permission="pause_schedule",
    label=_("Pause"),
    selected=_("Pause selected %(verbose_name_plural)s"),
    question=ngettext_lazy("Pause %(count)d schedule?", "Pause %(count)d schedules?", "count"),
    consequence=_("They miss their ticks until they are resumed. Jobs that are enqueued or run are left alone."),
    perform=_performs(
        schedules.pause,
        "Paused.",
        ngettext_lazy("%(count)d schedule was paused.", "%(count)d schedules were paused.", "count"),
    ),
    explain=explains(Schedule, {"is_enabled": False}, _("paused already")),
)
RESUME_SCHEDULES = AdminAction(
    name="resume",
    permission="pause_schedule",
    label=_("Resume"),
    selected=_("Resume selected %(verbose_name_plural)s"),
    question=ngettext_lazy("Resume %(count)d schedule?", "Resume %(count)d schedules?", "count"),
    consequence=_("They go on with their next tick. Those that they missed meanwhile are not made up."),
    perform=_performs(
        schedules.resume,
        "Resumed.",
        ngettext_lazy("%(count)d schedule was resumed.", "%(count)d schedules were resumed.", "count"),
    ),
    explain=explains(Schedule, {"is_enabled": True}, _("not paused")),
)
RUN = AdminAction(
    name="run",
    permission="run_schedule",
    label=_("Run now"),
    selected=_("Run selected %(verbose_name_plural)s now"),
    question=ngettext_lazy("Run %(count)d schedule now?", "Run %(count)d schedules now?", "count"),
    consequence=_("A job of each is enqueued now, in addition to those of its ticks, whether it is paused or not."),
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
    consequence=_("Edits made here are lost. Within a minute a worker restores the definition in the code."),
    perform=_performs(
        schedules.restore,
        "Restored.",
        ngettext_lazy("%(count)d schedule was restored.", "%(count)d schedules were restored.", "count"),
    ),
    explain=explains(Schedule, {"edited_at": None}, _("as the code has them, or made here")),
    is_destructive=True,
)


# Workers

WORKER_GONE = _("not here any more, or just being changed by its heartbeat; try again")


def _stop(ids: Collection[int], by: str, alias: str, _params: Params) -> list[Change]:
    message = ngettext_lazy(
        "%(count)d worker process was asked to stop.", "%(count)d worker processes were asked to stop.", "count"
    )
    return [Change(Worker, workers.stop(ids, by=by, database=alias), "Asked to stop.", message)]


def _quiet(ids: Collection[int], by: str, alias: str, _params: Params) -> list[Change]:
    message = ngettext_lazy(
        "%(count)d worker process was asked to be quiet.", "%(count)d worker processes were asked to be quiet.", "count"
    )
    return [Change(Worker, workers.quiet(ids, by=by, database=alias), "Asked to be quiet.", message)]


def _resume_workers(ids: Collection[int], by: str, alias: str, _params: Params) -> list[Change]:
    message = ngettext_lazy(
        "%(count)d worker process was asked to claim jobs again.",
        "%(count)d worker processes were asked to claim jobs again.",
        "count",
    )
    return [Change(Worker, workers.resume(ids, by=by, database=alias), "Asked to claim jobs again.", message)]


QUIET = AdminAction(
    name="quiet",
    permission="quiet_worker",
    label=_("Make quiet"),
    selected=_("Make selected %(verbose_name_plural)s quiet"),
    question=ngettext_lazy("Make %(count)d worker process quiet?", "Make %(count)d worker processes quiet?", "count"),
    consequence=_(
        "The whole command, with all its processes, finishes the jobs that run and claims no others until it is asked "
        "to, or started again. If no other worker serves its queues, their jobs wait."
    ),
    perform=_quiet,
    explain=explains(
        Worker, {"quiet_since__isnull": False}, _("quiet already"), changing=WORKER_GONE, gone=WORKER_GONE
    ),
)
RESUME_WORKERS = AdminAction(
    name="resume",
    permission="quiet_worker",
    label=_("Claim jobs again"),
    selected=_("Let selected %(verbose_name_plural)s claim jobs again"),
    question=ngettext_lazy(
        "Let %(count)d worker process claim jobs again?", "Let %(count)d worker processes claim jobs again?", "count"
    ),
    consequence=_("The whole command claims jobs again, with all its processes."),
    perform=_resume_workers,
    explain=explains(Worker, {"quiet_since": None}, _("not quiet"), changing=WORKER_GONE, gone=WORKER_GONE),
)
STOP = AdminAction(
    name="stop",
    permission="stop_worker",
    label=_("Ask to stop"),
    selected=_("Ask selected %(verbose_name_plural)s to stop"),
    question=ngettext_lazy("Ask %(count)d worker process to stop?", "Ask %(count)d worker processes to stop?", "count"),
    consequence=_(
        "The whole command stops, with all its processes, also those that are not named here. It takes no more jobs, "
        "and those that run have its shutdown timeout to end; jobs that do not end go back to their queues. The "
        "process manager may start the command again. If no other worker serves its queues, their jobs wait."
    ),
    perform=_stop,
    explain=explains(
        Worker, {"stop_requested_at__isnull": False}, _("asked before"), changing=WORKER_GONE, gone=WORKER_GONE
    ),
    is_destructive=True,
)
