import json
from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db import connections
from django.db.models import Case, QuerySet, Value, When
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, pgettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgqueue import registry
from django_pgqueue.admin.actions import ActionsAdmin, AdminAction
from django_pgqueue.admin.formatting import arguments_of, label, linked, live_column, moment, moment_of, pretty_json
from django_pgqueue.admin.forms import TIMING, ScheduleForm
from django_pgqueue.admin.links import Links
from django_pgqueue.admin.row_actions import PAUSE_SCHEDULES, RESTORE, RESUME_SCHEDULES, RUN
from django_pgqueue.conf import conf
from django_pgqueue.db.queries import bounded
from django_pgqueue.doctor.schedules import IS_LATE
from django_pgqueue.exceptions import InvalidSchedule
from django_pgqueue.insights.formatting import duration
from django_pgqueue.insights.schedule_info import (
    ScheduleRun,
    in_words,
    is_strange,
    outcomes,
    problem,
    runs,
    timing,
    upcoming,
)
from django_pgqueue.jobs.redaction import shown, shown_by_name
from django_pgqueue.models import Schedule
from django_pgqueue.schedules.manage import GONE
from django_pgqueue.schedules.periodic import declared
from django_pgqueue.states import DEAD, NEVER, SUCCEEDED, label_of
from django_pgqueue.stored_values import aware, seconds_between


def _upcoming(schedule: Schedule) -> str:
    try:
        ticks = upcoming(schedule)
    except InvalidSchedule as error:
        return str(error)
    markup = '<time datetime="{0}">{0}</time><br>'
    return format_html_join("", markup, ((tick,) for tick in ticks)) or gettext("None while it is paused.")


def _outcome(schedule: Any) -> str:
    last, job_id = schedule.last_job, schedule.last_job_id
    if last is None:
        return gettext("none yet")
    if last == GONE:
        return format_html("{} {}", label("gone", gettext("nothing was kept")), job_id)
    words = label(last.reason or last.status, label_of(last.status, last.reason))
    return format_html("{} {}", words, linked(job_id, _page_of_job(job_id, last.status, schedule.links)))


def _state(schedule: Any) -> str:
    if not schedule.is_enabled:
        by = schedule.paused_by
        return label("paused", gettext("paused by %(name)s") % {"name": by} if by else gettext("paused"))
    if problem(schedule):
        return label("exhausted", gettext("passed over"))
    if schedule.is_late:
        return label("exhausted", gettext("late"))
    return label("running", pgettext("a schedule is", "on"))


def _page_of_job(job_id: int, status: str, links: Links) -> str:
    return links.to_row({DEAD: "deadjob", SUCCEEDED: "succeededjob"}.get(status, "job"), job_id)


@admin.register(Schedule)
class ScheduleAdmin(ActionsAdmin):
    """Schedules: those of the code, whose edits here win, and those that are made here."""

    form = ScheduleForm
    actions = (RUN, PAUSE_SCHEDULES, RESUME_SCHEDULES, RESTORE)
    named_by = ("name",)
    heavy = ("args", "kwargs", "options")
    list_display = ("name", "timing", "next_time", "outcome", "state", "origin")
    search_fields = ("name", "task")
    ordering = ("name",)
    paginator = Paginator  # type: ignore[assignment]  # there are few: all are counted
    list_max_show_all = 200
    show_full_result_count = True
    fieldsets = (
        (None, {"fields": ("name", "task", "state", "origin")}),
        (_("When"), {"fields": ("cron", "every_seconds", "timezone", "in_words", "upcoming")}),
        (_("Job"), {"fields": ("args", "kwargs", "options")}),
        (_("Spread and downtime"), {"fields": ("jitter_seconds", "catch_up", "catch_up_limit")}),
        (_("Last tick"), {"fields": ("last_time", "outcome", "last_error")}),
    )
    only_shown = ("state", "origin", "in_words", "upcoming", "last_time", "outcome", "last_error")

    next_time = live_column("next", _("next"), lambda row: moment(row.next_at) if row.is_enabled else "-")
    upcoming = live_column("upcoming", _("next runs"), _upcoming)
    outcome = live_column("outcome", _("last job"), _outcome)
    state = live_column("state", _("state"), _state)
    last_time = moment_of("last_at", _("due at"))
    hidden_args = arguments_of("args", _("args"))
    hidden_kwargs = arguments_of("kwargs", _("kwargs"))

    @admin.display(description=_("options"))
    def hidden_options(self, schedule: Schedule) -> str:
        return pretty_json(_visible_options(schedule.options))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Keep what the code declares: it would be back within a minute. It can be paused."""
        if obj is not None and obj.source == "code" and obj.name in declared():
            return False
        return super().has_delete_permission(request, obj)

    def offers(self, action: AdminAction, row: Any) -> bool:
        makes_sense: dict[AdminAction, bool] = {
            PAUSE_SCHEDULES: row.is_enabled,
            RESUME_SCHEDULES: not row.is_enabled,
            RESTORE: bool(row.edited_at),
        }
        return makes_sense.get(action, True)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        is_late = Case(When(IS_LATE, then=Value(True)), default=Value(False))
        schedules: QuerySet[Any] = super().get_queryset(request).annotate(is_late=is_late)
        return schedules

    def context_of(self, request: HttpRequest, schedule: Any) -> dict[str, Any]:
        links = self.links(request)
        with bounded():
            self.complete([schedule], links)
            rows = [_run_row(run, links) for run in runs(schedule, conf.database_here)]
        return super().context_of(request, schedule) | {"runs": rows}

    def complete(self, schedules: list[Any], links: Links) -> None:
        jobs = outcomes(schedules, conf.database_here)
        for schedule in schedules:
            schedule.last_job, schedule.links = jobs.get(schedule.pk), links

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        hidden: dict[Any, str] = _hidden_fields(obj)
        missing = self.only_shown if obj is None else () if in_words(obj) else ("in_words",)
        shown = [
            (title, [hidden.get(name, name) for name in parts["fields"] if name not in missing])
            for title, parts in self.fieldsets
        ]
        return [(title, {"fields": fields}) for title, fields in shown if fields]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Keep what the code says, and the task whose arguments are hidden: another one may not declare them so."""
        of_code = ("name", "task") if obj is not None and obj.source == "code" else ()
        hidden = _hidden_fields(obj)
        return (*self.only_shown, *of_code, *(("task",) if "args" in hidden else ()), *hidden.values())

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's
        """Write the changed fields and nothing else: a worker may just have advanced the schedule."""
        with connections[conf.database_here].cursor() as cursor:
            cursor.execute("SELECT statement_timestamp()")
            [now] = cursor.fetchone()
        fields = {name for name in form.changed_data if getattr(obj, name) != form.initial.get(name)}
        if not change or TIMING & fields:
            obj.next_at = form.rhythm.next_after(aware(now))
            fields.add("next_at")
        if not change:
            obj.save()
        elif fields:
            obj.last_error = ""
            obj.edited_at = now if obj.source == "code" else None
            obj.save(update_fields=[*fields, "last_error", "edited_at"])

    @admin.display(description=_("when"))
    def timing(self, schedule: Schedule) -> str:
        if not schedule.cron:
            return gettext("every %(time)s") % {"time": timing(schedule)}
        if words := in_words(schedule):
            return format_html('{} <span class="pgqueue-note">{}</span>', words, timing(schedule))
        return timing(schedule)

    @admin.display(description=_("in words"))
    def in_words(self, schedule: Schedule) -> str:
        return in_words(schedule) or "-"

    @admin.display(description=pgettext_lazy("where a schedule is from", "from"))
    def origin(self, schedule: Schedule) -> str:
        if schedule.source != "code":
            return gettext("made here")
        if is_strange(schedule):
            return gettext("code, but not this one: workers with this code leave it alone")
        if schedule.edited_at:
            return gettext("code, edited here: the edits win")
        return gettext("code")


def _hidden_fields(schedule: Any) -> dict[str, str]:
    """Return fields of which a part is hidden from staff, with those that show the rest; they cannot be edited."""
    if schedule is None:
        return {}
    hidden = {}
    visible = shown(registry.find(schedule.task), schedule.args, schedule.kwargs)
    if _as_text([schedule.args, schedule.kwargs]) != _as_text(list(visible)):
        hidden = {"args": "hidden_args", "kwargs": "hidden_kwargs"}
    if _as_text(schedule.options) != _as_text(_visible_options(schedule.options)):
        hidden["options"] = "hidden_options"
    return hidden


def _visible_options(options: Any) -> Any:
    """Return options as people may see them: metadata belongs to no parameter, and may hold sensitive values."""
    if not isinstance(options, dict) or "metadata" not in options:
        return options
    return {**options, "metadata": shown_by_name(options["metadata"])}


def _as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _run_row(run: ScheduleRun, links: Links) -> dict[str, Any]:
    has_started = aware(run.started_at) != NEVER
    waited = max(seconds_between(run.run_at, run.started_at), 0.0) if has_started else None
    return {
        "id": run.id,
        "page": _page_of_job(run.id, run.status, links),
        "due": moment(run.run_at),
        "outcome": label(run.reason or run.status, label_of(run.status, run.reason)),
        "error": run.error or "",
        "waited": "-" if waited is None else duration(waited),
        "took": "-" if run.run_seconds is None else duration(run.run_seconds),
        "attempts": run.attempts,
    }
