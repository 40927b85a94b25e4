import functools
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.db.models.fields.json import KeyTransform
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.actions import choose
from django_pgqueue.admin.base import DETAILS, JobsAdmin
from django_pgqueue.admin.changelist import names
from django_pgqueue.admin.dead_groups import dead_groups_view
from django_pgqueue.admin.filters import (
    DeadQueueFilter,
    DeadTaskFilter,
    ErrorGroupFilter,
    ReasonFilter,
    RequestedFilter,
)
from django_pgqueue.admin.formatting import label, live, moment, moment_of, one_line
from django_pgqueue.admin.job_actions import PURGE, RETRY
from django_pgqueue.admin.keyset import DIED_AT, ID, IndexOrder, Route
from django_pgqueue.admin.retry_with import may_retry, retry_view
from django_pgqueue.admin.search_box import HELP
from django_pgqueue.models import DeadJob

MOST_TASKS = 1000  # whose names a search compares

LATEST = IndexOrder((DIED_AT, ID), ("-died_at", "-id"), is_descending=True)
INDEXED = ("task", "queue", "reason")  # the one that is likely to narrow the most first


@admin.register(DeadJob)
class DeadJobAdmin(JobsAdmin):
    """Jobs that will not run again by themselves, the latest first."""

    verbs = (RETRY, PURGE)
    lookups = ("reason", "queue", "task", "cause")
    actions = ("retry", "purge")
    ordering = ("-died_at", "-id")
    list_display = ("id", "task_and_error", "died", "reason_label", "queue", "attempts_of")
    change_list_template = "admin/django_pgqueue/deadjob/change_list.html"
    list_filter = (ReasonFilter, DeadQueueFilter, DeadTaskFilter, ErrorGroupFilter)
    search_help_text = HELP
    fieldsets = (
        (
            _("Times"),
            {
                "fields": (
                    "enqueued_time",
                    "run_time",
                    "first_started_time",
                    "started_time",
                    "died_time",
                    "expires_time",
                ),
                "classes": ("collapse",),
            },
        ),
        *DETAILS,
    )

    died_time = moment_of("died_at", _("died at"))

    @admin.action(permissions=["retry"], description=_("Retry selected %(verbose_name_plural)s"))
    def retry(self, request: HttpRequest, queryset: QuerySet[DeadJob]) -> HttpResponse:
        return choose(self, request, RETRY, queryset)

    @admin.action(permissions=["purge"], description=_("Purge selected %(verbose_name_plural)s (remove for good)"))
    def purge(self, request: HttpRequest, queryset: QuerySet[DeadJob]) -> HttpResponse:
        return choose(self, request, PURGE, queryset)

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return self.may(request, RETRY)

    def has_purge_permission(self, request: HttpRequest) -> bool:
        return self.may(request, PURGE)

    def get_urls(self) -> list[URLPattern]:
        retry = self.admin_site.admin_view(functools.partial(retry_view, self))
        causes = self.admin_site.admin_view(functools.partial(dead_groups_view, self))
        return [
            path("causes/", causes, name="django_pgqueue_deadjob_causes"),
            path("<path:object_id>/retry_with/", retry, name="django_pgqueue_deadjob_retry_with"),
            *super().get_urls(),
        ]

    def ways_on(self, request: HttpRequest, job: Any) -> list[tuple[Any, str]]:
        if not may_retry(self, request):
            return []
        return [(_("Retry with changed arguments…"), self.address("retry_with", job.pk))]

    def route(self, request: HttpRequest) -> Route:
        """Read along the index of one filter, the latest first; what else is asked for is looked for in a window.

        Names of tasks are compared here: in most collations a btree index cannot find a prefix.
        """
        asked = self.asked(request)
        search, narrowed = asked.search, asked.narrowed
        base, rest = self._indexed(asked)
        if search.unique_key is not None:
            return Route(LATEST, base, narrowed & Q(unique_key=search.unique_key))
        if search.task_prefix is not None and not narrowed and asked.cause is None:
            tasks = [task for task in names("dead_tasks", MOST_TASKS) if task.startswith(search.task_prefix)]
            if len(tasks) == 1:
                return Route(LATEST, Q(task=tasks[0]))
        return self.searched(search, narrowed, LATEST, base) or Route(LATEST, base, rest)

    def _indexed(self, asked: RequestedFilter) -> tuple[Q, Q | None]:
        """Return the condition that an index is for, and the other ones."""
        if asked.cause is not None:
            return Q(cause=asked.cause), asked.narrowed or None
        names = [name for name in INDEXED if getattr(asked, name)]
        base = Q(**{name: getattr(asked, name) for name in names[:1]})
        return base, Q(**{name: getattr(asked, name) for name in names[1:]}) or None

    def complete(self, jobs: list[DeadJob]) -> None:
        page = DeadJob.objects.filter(pk__in=[job.pk for job in jobs])
        latest = dict(page.values_list("pk", KeyTransform("-1", "errors")))
        for job in jobs:
            job.latest = latest.get(job.pk)  # type: ignore[attr-defined]

    @admin.display(description=_("reason"))
    def reason_label(self, job: DeadJob) -> str:
        return live(f"{job.pk} reason", label(job.reason, job.get_reason_display()))

    @admin.display(description=_("died at"))
    def died(self, job: DeadJob) -> str:
        return moment(job.died_at)

    @admin.display(description=_("task and last error"))
    def task_and_error(self, job: DeadJob) -> str:
        error = one_line(job.latest)  # type: ignore[attr-defined]
        markup = '<a href="{}">{}</a><div class="pgqueue-quiet pgqueue-line" title="{}">{}</div>'
        return format_html(markup, self.address("change", job.pk), job.task, error, error)
