import functools
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.db.models import QuerySet
from django.db.models.fields.json import KeyTransform
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.actions import choose
from django_pgqueue.admin.base import DETAILS, JobsAdmin
from django_pgqueue.admin.formatting import label, moment, moment_of, one_line
from django_pgqueue.admin.listing import by_id, names, with_chosen
from django_pgqueue.admin.retry_changed import may_retry, retry_view
from django_pgqueue.admin.verbs import PURGE, REQUEUE
from django_pgqueue.base.states import Reason
from django_pgqueue.models import DeadJob

MOST_TASKS = 1000  # that a search looks through


class ReasonFilter(admin.SimpleListFilter):
    """Offers every reason, found or not; looking which occur is not worth a query."""

    title = _("reason")
    parameter_name = "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(reason, reason.replace("_", " ")) for reason in Reason]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        if self.value() not in set(Reason):
            raise IncorrectLookupParameters
        return queryset.filter(reason=self.value())


class NameFilter(admin.SimpleListFilter):
    """Offers the names that an index begins with."""

    query: str

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in with_chosen(names(self.query), self.value())]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter((self.parameter_name, self.value())) if self.value() else queryset


class QueueFilter(NameFilter):
    """Reads pgqueue_dead_jobs_queue."""

    title, parameter_name, query = _("queue"), "queue", "dead_queues"


class TaskFilter(NameFilter):
    """Reads pgqueue_dead_jobs_task."""

    title, parameter_name, query = _("task"), "task", "dead_tasks"


@admin.register(DeadJob)
class DeadJobAdmin(JobsAdmin):
    """Jobs that will not run again by themselves, the latest first."""

    verbs = (REQUEUE, PURGE)
    lookups = ("reason", "queue", "task")
    actions = ("requeue", "purge")
    ordering = ("-died_at", "-id")
    list_display = ("id", "task_and_error", "reason_label", "queue", "attempts_of", "died")
    list_filter = (ReasonFilter, QueueFilter, TaskFilter)
    search_fields = ("=id", "^task")
    search_help_text = _("The id of a job, or how the name of its task begins.")
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

    @admin.action(permissions=["requeue"], description=_("Requeue selected %(verbose_name_plural)s (retry)"))
    def requeue(self, request: HttpRequest, queryset: QuerySet[DeadJob]) -> HttpResponse:
        return choose(self, request, REQUEUE, queryset)

    @admin.action(permissions=["purge"], description=_("Purge selected %(verbose_name_plural)s (remove for good)"))
    def purge(self, request: HttpRequest, queryset: QuerySet[DeadJob]) -> HttpResponse:
        return choose(self, request, PURGE, queryset)

    def has_requeue_permission(self, request: HttpRequest) -> bool:
        return self.may(request, REQUEUE)

    def has_purge_permission(self, request: HttpRequest) -> bool:
        return self.may(request, PURGE)

    def chosen_kind(self, request: HttpRequest) -> str | None:
        return request.GET.get("reason")

    def get_urls(self) -> list[URLPattern]:
        retry = self.admin_site.admin_view(functools.partial(retry_view, self))
        return [path("<path:object_id>/retry/", retry, name="django_pgqueue_deadjob_retry"), *super().get_urls()]

    def ways_on(self, request: HttpRequest, job: Any) -> list[tuple[Any, str]]:
        if not may_retry(self, request):
            return []
        return [(_("Retry with changed arguments…"), self.address("retry", job.pk))]

    def get_search_results(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        search_term: str,
    ) -> tuple[QuerySet[Any], bool]:
        """Find an id, or the tasks whose names begin so.

        Names are compared here: in most collations a btree index cannot find a prefix. The tasks found come one after
        the other, each in the order of its index.
        """
        term = search_term.strip()
        if not term:
            return queryset, False
        if term.isdecimal():
            return by_id(queryset, term), False
        tasks = [task for task in names("dead_tasks", MOST_TASKS) if task.startswith(term)]
        return queryset.filter(task__in=tasks).order_by("task", "-died_at", "-id"), False

    def complete(self, jobs: list[DeadJob]) -> None:
        page = DeadJob.objects.filter(pk__in=[job.pk for job in jobs])
        latest = dict(page.values_list("pk", KeyTransform("-1", "errors")))
        for job in jobs:
            job.latest = latest.get(job.pk)  # type: ignore[attr-defined]

    @admin.display(description=_("reason"))
    def reason_label(self, job: DeadJob) -> str:
        return label(job.reason, job.get_reason_display())

    @admin.display(description=_("died at"))
    def died(self, job: DeadJob) -> str:
        return moment(job.died_at)

    @admin.display(description=_("task and last error"))
    def task_and_error(self, job: DeadJob) -> str:
        error = one_line(job.latest)  # type: ignore[attr-defined]
        markup = '<a href="{}">{}</a><div class="pgqueue-quiet pgqueue-line" title="{}">{}</div>'
        return format_html(markup, self.address("change", job.pk), job.task, error, error)
