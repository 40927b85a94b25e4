"""What staff may do to schedules: the verbs of ``schedules/manage.py``, in the words of the confirmation."""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from django.db import transaction
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_pgqueue.admin.verbs.verb import Change, Said, Verb
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.models import Schedule
from django_pgqueue.schedules.manage import pause_schedules, restore_schedules, resume_schedules, run_schedules

CHANGING = _("changed by somebody else meanwhile; try again")
GONE = _("not here any more")


def _names(ids: Collection[int], alias: str) -> dict[str, int]:
    return dict(Schedule.objects.using(alias).filter(pk__in=ids).values_list("name", "pk"))


def _performs(
    act: Callable[..., Collection[str]], entry: str, message: Any
) -> Callable[[Collection[int], str, str, Said], list[Change]]:
    def perform(ids: Collection[int], by: str, alias: str, _said: Said) -> list[Change]:
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


PAUSE = Verb(
    name="pause",
    permission="pause_schedule",
    label=_("Pause"),
    question=ngettext_lazy("Pause %(count)d schedule?", "Pause %(count)d schedules?", "count"),
    consequence=_("They miss their ticks until they are resumed. Jobs that are enqueued or run are left alone."),
    perform=_performs(
        pause_schedules,
        "Paused.",
        ngettext_lazy("%(count)d schedule was paused.", "%(count)d schedules were paused.", "count"),
    ),
    explain=_explains({"is_enabled": False}, _("paused already")),
)
RESUME = Verb(
    name="resume",
    permission="pause_schedule",
    label=_("Resume"),
    question=ngettext_lazy("Resume %(count)d schedule?", "Resume %(count)d schedules?", "count"),
    consequence=_("They go on with their next tick. Those that they missed meanwhile are not made up."),
    perform=_performs(
        resume_schedules,
        "Resumed.",
        ngettext_lazy("%(count)d schedule was resumed.", "%(count)d schedules were resumed.", "count"),
    ),
    explain=_explains({"is_enabled": True}, _("not paused")),
)
RUN = Verb(
    name="run",
    permission="run_schedule",
    label=_("Run now"),
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
RESTORE = Verb(
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
