import json
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Case, Func, IntegerField, Q, When
from django.db.models.fields.json import KeyTransform
from django.db.models.lookups import LessThanOrEqual
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils import timezone
from django.utils.formats import time_format
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue import registry
from django_pgqueue.admin.actions import ActionsAdmin
from django_pgqueue.admin.base import bounded_page
from django_pgqueue.admin.changelist import list_database, names
from django_pgqueue.admin.databases import choices, located
from django_pgqueue.admin.filters import (
    HELP,
    DeadQueueFilter,
    DeadTaskFilter,
    ErrorGroupFilter,
    ReasonFilter,
    RequestedFilter,
    StageFilter,
)
from django_pgqueue.admin.formatting import column_of, entry_line, label, live_column, moment, moment_of
from django_pgqueue.admin.job_tables import METADATA, OPTIONS, JobsAdmin, folded
from django_pgqueue.admin.keyset import NEWEST, BadCursor, IndexOrder, Route
from django_pgqueue.admin.links import Links, crumbs
from django_pgqueue.admin.retry_with import PERMISSION, retry_view
from django_pgqueue.admin.row_actions import JOB_ACTIONS
from django_pgqueue.conf import conf
from django_pgqueue.insights.dead_groups import CAP, DeadGroup, HourCount, dead_groups
from django_pgqueue.insights.formatting import at_most, grouped
from django_pgqueue.jobs.actions import PURGE, RETRY
from django_pgqueue.jobs.redaction import REDACTED, scrub_json, scrubber
from django_pgqueue.jobs.search import Source
from django_pgqueue.models import DeadJob
from django_pgqueue.states import REASONS

MOST_TASKS = 1000  # whose names a search compares

LARGEST_ARGUMENTS = 100_000  # bytes, as stored, in which the list looks for sensitive values
STORED_SIZE = Func("args", function="pg_column_size", output_field=IntegerField()) + Func(
    "kwargs", function="pg_column_size", output_field=IntegerField()
)
IS_SMALL = LessThanOrEqual(STORED_SIZE, LARGEST_ARGUMENTS)
ARGUMENTS = {f"small_{name}": Case(When(IS_SMALL, then=name)) for name in ("args", "kwargs")}  # NULL if larger

LATEST = IndexOrder(("died_at", "id"), ("-died_at", "-id"), is_descending=True)
INDEXED = ("task", "queue", "reason")  # the one that is likely to narrow the most first


@admin.register(DeadJob)
class DeadJobAdmin(JobsAdmin):
    """Jobs that will not run again by themselves, the latest first."""

    actions = JOB_ACTIONS[Source.DEAD]
    lookups = ("reason", "queue", "task", "cause", "stage")
    ordering = ("-died_at", "-id")
    list_display = ("id", "task_and_error", "died", "reason_label", "queue", "attempts_of")
    change_list_template = "admin/pgqueue/deadjob/change_list.html"
    list_filter = (ReasonFilter, DeadQueueFilter, DeadTaskFilter, ErrorGroupFilter, StageFilter)
    search_help_text = HELP
    fieldsets = (
        folded(
            _("Times"), "enqueued_time", "run_time", "first_started_time", "started_time", "died_time", "expires_time"
        ),
        METADATA,
        OPTIONS,
    )

    reason_label = live_column("reason", _("reason"), lambda job: label(job.reason, job.get_reason_display()))
    died = column_of("died_at", _("died at"), moment)
    died_time = moment_of("died_at", _("died at"))

    def get_urls(self) -> list[URLPattern]:
        return [
            self.pattern("causes/", "causes", partial(dead_groups_view, self)),
            self.pattern("<path:object_id>/retry_with/", "retry_with", partial(retry_view, self)),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"causes_address": self.address("causes"), **(extra_context or {})})

    def context_of(self, request: HttpRequest, job: Any) -> dict[str, Any]:
        retry = self.address("retry_with", job.pk) if self.may(request, PERMISSION) else ""
        return super().context_of(request, job) | {"retry_address": retry}

    def route(self, request: HttpRequest) -> Route:
        """Compare the names of tasks here: in most collations a btree index cannot find a prefix."""
        asked = self.asked(request)
        narrowed = asked.narrowed
        if asked.stage is not None:
            of_stage, narrowed = asked.of_stage, narrowed & asked.of_cause & asked.of_key
            return self.searched(asked, narrowed, NEWEST, of_stage) or Route(NEWEST, of_stage, narrowed or None)
        base, rest = self._indexed(asked)
        if asked.unique_key is not None:
            return Route(LATEST, base, narrowed & Q(unique_key=asked.unique_key))
        if asked.task_prefix is not None and not narrowed and asked.cause is None:
            known = names("dead_tasks", list_database(request), MOST_TASKS)
            tasks = [task for task in known if task.startswith(asked.task_prefix)]
            if len(tasks) == 1 and len(known) < MOST_TASKS:
                return Route(LATEST, Q(task=tasks[0]))
        return self.searched(asked, narrowed, LATEST, base) or Route(LATEST, base, rest)

    def _indexed(self, asked: RequestedFilter) -> tuple[Q, Q | None]:
        if asked.cause is not None:
            return Q(cause=asked.cause), asked.narrowed or None
        names = [name for name in INDEXED if getattr(asked, name)]
        base = Q(**{name: getattr(asked, name) for name in names[:1]})
        return base, Q(**{name: getattr(asked, name) for name in names[1:]}) or None

    def complete(self, jobs: list[DeadJob], links: Links) -> None:
        """Read the last error of each, without sensitive values; of one with larger arguments nothing is shown."""
        page = DeadJob.objects.using(conf.replica_here).filter(pk__in=[job.pk for job in jobs]).annotate(**ARGUMENTS)
        found = page.values_list("pk", KeyTransform("-1", "errors"), "task", "small_args", "small_kwargs")
        latest = {job_id: _scrubbed(entry, *call) for job_id, entry, *call in found}
        for job in jobs:
            job.latest = latest.get(job.pk)  # type: ignore[attr-defined]

    @admin.display(description=_("task and last error"))
    def task_and_error(self, job: DeadJob) -> str:
        error = entry_line(job.latest)  # type: ignore[attr-defined]
        markup = '<a href="{}">{}</a><div class="pgqueue-quiet pgqueue-line" title="{}">{}</div>'
        return format_html(markup, self.address("change", job.pk), job.task, error, error)


def _scrubbed(entry: Any, task: str, args: Any, kwargs: Any) -> Any:
    known = args is not None and kwargs is not None
    return scrub_json(entry, scrubber(registry.find(task), args, kwargs) if known else lambda _text: REDACTED)


# Dead jobs by cause: what broke last night, and what to do about all of it at once


HEIGHTS = 8


class HourBar(NamedTuple):
    height: int  # 0 to ``HEIGHTS``
    words: str


@bounded_page
def dead_groups_view(admin: ActionsAdmin, request: HttpRequest) -> HttpResponse:
    if not admin.has_view_permission(request):
        raise PermissionDenied
    found = dead_groups(conf.database_here, now=timezone.now(), behind=_begins(request))
    last = found.causes[-1] if found.causes else None
    return admin.page(
        request,
        "causes",
        gettext("Dead jobs by cause"),
        crumbs=crumbs(admin.admin_site, admin.opts, (gettext("By cause"), "")),
        lines=[_cause_row(cause, admin, request) for cause in found.causes],
        first=located(request.path) if "after" in request.GET else "",
        is_partial=found.is_partial,
        next=located("", urlencode({"after": _cursor(last)})) if last and found.is_more else "",
        databases=choices(request.path),
    )


def _begins(request: HttpRequest) -> Sequence[str] | None:
    cursor = request.GET.get("after")
    if not cursor:
        return None
    try:
        return LATEST.values(cursor)
    except BadCursor:
        messages.warning(request, gettext("The address does not say where that page begins. This is the first one."))
        return None


def _cursor(cause: DeadGroup) -> str:
    return json.dumps([cause.last_at.isoformat(), str(cause.number)])


def _cause_row(cause: DeadGroup, admin: ActionsAdmin, request: HttpRequest) -> dict[str, Any]:
    narrowed = urlencode({"cause": cause.number})
    offered = [(RETRY, gettext("Retry these…")), (PURGE, gettext("Purge these…"))]
    return {
        "cause": cause,
        "reason": label(cause.reason, str(REASONS.get(cause.reason, cause.reason))),
        "jobs": at_most(cause.jobs, CAP),
        "first": moment(cause.first_at),
        "last": moment(cause.last_at),
        "bars": [HourBar(math.ceil(HEIGHTS * hour.number / (cause.most or 1)), _hour(hour)) for hour in cause.hours],
        "day": _day(cause),
        "caption": gettext("deaths by the hour, last 24 h; highest: %(number)s") % {"number": grouped(cause.most)},
        "address": admin.address("changelist", query=narrowed),  # of the list of these jobs
        "latest": admin.address("change", cause.job_id),
        "actions": [
            (words, admin.address(f"{action.name}_matching", query=narrowed))
            for action, words in offered
            if admin.may(request, action.permission)
        ],
    }


def _hour(hour: HourCount) -> str:
    begins = timezone.localtime(hour.begins_at)
    return f"{time_format(begins.time(), 'H:i')}: {grouped(hour.number)}"


def _day(cause: DeadGroup) -> str:
    if not cause.most:
        return gettext("None in the last 24 hours.")
    hours = ", ".join(_hour(hour) for hour in cause.hours if hour.number)
    return gettext("In the last 24 hours, by the hour: %(hours)s.") % {"hours": hours}
