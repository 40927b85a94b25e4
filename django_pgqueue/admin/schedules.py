from typing import Any

from django.contrib import admin
from django.db import connections
from django.db.models import Case, QuerySet, Value, When
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, pgettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgqueue import registry
from django_pgqueue.admin.actions import AdminAction
from django_pgqueue.admin.base import ActingAdmin
from django_pgqueue.admin.changelist import JobList
from django_pgqueue.admin.formatting import arguments_of, label, linked, live, moment, moment_of
from django_pgqueue.admin.forms import TIMING, ScheduleForm, is_shown_whole, page_of_job, run_rows
from django_pgqueue.admin.links import Links
from django_pgqueue.admin.row_actions import PAUSE_SCHEDULES, RESTORE, RESUME_SCHEDULES, RUN
from django_pgqueue.conf import conf
from django_pgqueue.doctor.schedules import IS_LATE
from django_pgqueue.exceptions import InvalidSchedule
from django_pgqueue.insights.bounded import bounded
from django_pgqueue.insights.schedule_info import in_words, is_strange, outcomes, problem, runs, timing, upcoming
from django_pgqueue.jobs.redaction import shown
from django_pgqueue.models import Schedule
from django_pgqueue.schedules.manage import GONE
from django_pgqueue.schedules.periodic import declared
from django_pgqueue.states import label_of
from django_pgqueue.stored_values import aware


@admin.register(Schedule)
class ScheduleAdmin(ActingAdmin):
    """Schedules: those of the code, whose edits here win, and those that are made here."""

    form = ScheduleForm  # type: ignore[assignment]  # generic for the type checker only
    actions = (RUN, PAUSE_SCHEDULES, RESUME_SCHEDULES, RESTORE)
    named_by = ("name",)
    heavy = ("args", "kwargs", "options")
    list_display = ("name", "timing", "next_time", "outcome", "state", "origin")
    search_fields = ("name", "task")
    ordering = ("name",)
    sortable_by = ()
    show_facets = admin.ShowFacets.NEVER
    fieldsets = (
        (None, {"fields": ("name", "task", "state", "origin")}),
        (_("When"), {"fields": ("cron", "every_seconds", "timezone", "in_words", "upcoming")}),
        (_("Job"), {"fields": ("args", "kwargs", "options")}),
        (_("Spread and downtime"), {"fields": ("jitter_seconds", "catch_up", "catch_up_limit")}),
        (_("Last tick"), {"fields": ("last_time", "outcome", "last_error")}),
    )
    only_shown = ("state", "origin", "in_words", "upcoming", "last_time", "outcome", "last_error")

    last_time = moment_of("last_at", _("due at"))
    hidden_args = arguments_of("args", _("args"))
    hidden_kwargs = arguments_of("kwargs", _("kwargs"))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Keep what the code declares: it would be back within a minute. It can be paused."""
        if obj is not None and obj.source == "code" and obj.name in declared():
            return False
        return super().has_delete_permission(request, obj)

    def offers(self, action: AdminAction, row: Any) -> bool:
        conditions = {
            PAUSE_SCHEDULES.name: row.is_enabled,
            RESUME_SCHEDULES.name: not row.is_enabled,
            RESTORE.name: bool(row.edited_at),
        }
        return bool(conditions.get(action.name, True))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        is_late = Case(When(IS_LATE, then=Value(True)), default=Value(False))
        schedules: QuerySet[Any] = super().get_queryset(request).annotate(is_late=is_late)
        return schedules

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        for schedule in changelist.result_list:
            schedule.links = Links(request, self.admin_site)
        return changelist

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if schedule := kwargs.get("obj"):
            schedule.links = Links(request, self.admin_site)
            with bounded():
                context["runs"] = run_rows(runs(schedule, conf.database), schedule.links)
        return super().render_change_form(request, context, *args, **kwargs)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobList]:
        return JobList

    def complete(self, schedules: list[Any]) -> None:
        jobs = outcomes(schedules, conf.database)
        for schedule in schedules:
            schedule.last_job = jobs.get(schedule.pk)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        hidden = {} if _may_edit_arguments(obj) else {"args": "hidden_args", "kwargs": "hidden_kwargs"}
        return [
            (title, {**parts, "fields": tuple(hidden.get(name, name) for name in self._fields(parts, obj))})
            for title, parts in self.fieldsets
            if self._fields(parts, obj)
        ]

    def _fields(self, parts: Any, obj: Any) -> tuple[str, ...]:
        missing = self.only_shown if obj is None else () if in_words(obj) else ("in_words",)
        return tuple(name for name in parts["fields"] if name not in missing)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Keep what the code says, and the task whose arguments are hidden: another one may not declare them so."""
        of_code = ("name", "task") if obj is not None and obj.source == "code" else ()
        hidden = () if _may_edit_arguments(obj) else ("task", "hidden_args", "hidden_kwargs")
        return (*self.only_shown, *of_code, *hidden)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's
        """Write what was changed and nothing else: a worker may just have moved the schedule on."""
        with connections[conf.database].cursor() as cursor:
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

    @admin.display(description=_("next"))
    def next_time(self, schedule: Schedule) -> str:
        return live(f"{schedule.pk} next", moment(schedule.next_at) if schedule.is_enabled else "-")

    @admin.display(description=_("next runs"))
    def upcoming(self, schedule: Schedule) -> str:
        try:
            ticks = upcoming(schedule)
        except InvalidSchedule as error:
            return str(error)
        markup = '<time datetime="{0}">{0}</time><br>'
        shown = format_html_join("", markup, ((tick,) for tick in ticks)) or gettext("None while it is paused.")
        return live(f"{schedule.pk} upcoming", shown)

    @admin.display(description=_("last job"))
    def outcome(self, schedule: Any) -> str:
        if not hasattr(schedule, "last_job"):
            self.complete([schedule])
        last, name = schedule.last_job, f"{schedule.pk} outcome"
        if last is None:
            return live(name, gettext("none yet"))
        if last == GONE:
            return live(name, format_html("{} {}", label("gone", gettext("nothing was kept")), schedule.last_job_id))
        words = label(last.reason or last.status, label_of(last.status, last.reason))
        address = page_of_job(schedule.last_job_id, last.status, schedule.links) if hasattr(schedule, "links") else ""
        return live(name, format_html("{} {}", words, linked(schedule.last_job_id, address)))

    @admin.display(description=_("state"))
    def state(self, schedule: Any) -> str:
        return live(f"{schedule.pk} state", _state(schedule))

    @admin.display(description=pgettext_lazy("where a schedule is from", "from"))
    def origin(self, schedule: Schedule) -> str:
        if schedule.source != "code":
            return gettext("made here")
        if is_strange(schedule):
            return gettext("code, but not this one: workers with this code leave it alone")
        if schedule.edited_at:
            return gettext("code, edited here: the edits win")
        return gettext("code")


def _state(schedule: Any) -> str:
    if not schedule.is_enabled:
        by = schedule.paused_by
        return label("paused", gettext("paused by %(name)s") % {"name": by} if by else gettext("paused"))
    if problem(schedule):
        return label("exhausted", gettext("passed over"))
    if schedule.is_late:
        return label("exhausted", gettext("late"))
    return label("running", pgettext("a schedule is", "on"))


def _may_edit_arguments(schedule: Any) -> bool:
    if schedule is None:
        return True
    visible = shown(registry.find(schedule.task), schedule.args, schedule.kwargs)
    return is_shown_whole(schedule.args, schedule.kwargs, visible)
