import datetime as dt
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.base import DETAILS, JobsAdmin
from django_pgqueue.admin.filters import HELP_WITHOUT_KEY, DayFilter, RequestedFilter, SeenQueueFilter
from django_pgqueue.admin.formatting import live, moment, moment_of
from django_pgqueue.admin.keyset import NEWEST, Route
from django_pgqueue.admin.row_actions import JOB_ACTIONS
from django_pgqueue.insights.formatting import duration
from django_pgqueue.jobs.search import Filter, Source
from django_pgqueue.models import FinishedJob

GONE = {"said_timeout", "said_lease", "said_keep", "said_keep_seconds", "said_scope", "said_limit"}
KEPT: tuple[Any, ...] = tuple(
    (title, {**parts, "fields": tuple(name for name in parts["fields"] if name not in GONE)})
    for title, parts in DETAILS
)


@admin.register(FinishedJob)
class FinishedJobAdmin(JobsAdmin):
    """Jobs that succeeded, for as long as they are kept; the newest job first, which need not have finished last."""

    actions = JOB_ACTIONS[Source.FINISHED]
    heavy = (*JobsAdmin.heavy, "result")
    lookups = ("queue", "day")
    list_display = ("id", "task", "queue", "run", "attempts", "finished")
    list_display_links = ("id", "task")
    list_filter = (DayFilter, SeenQueueFilter)
    search_help_text = HELP_WITHOUT_KEY
    fieldsets = (
        (
            _("Times"),
            {
                "fields": ("enqueued_time", "run_time", "first_started_time", "started_time", "finished_time"),
                "classes": ("collapse",),
            },
        ),
        *KEPT,
    )

    finished_time = moment_of("finished_at", _("finished at"))

    def chosen(self, request: HttpRequest) -> Filter | None:
        if self.asked(request).search.unique_key is not None:  # finished jobs have none
            return None
        return super().chosen(request)

    def route(self, request: HttpRequest) -> Route:
        """Read by the id, in the partition of the day where one is chosen; all else is looked for in a window."""
        asked = self.asked(request)
        base, narrowed = _on_the_day(asked), asked.narrowed
        if asked.search.unique_key is not None:
            return Route(NEWEST, Q(pk__in=[]))
        return self.searched(asked.search, narrowed, NEWEST, base) or Route(NEWEST, base, narrowed or None)

    @admin.display(description=_("run time"))
    def run(self, job: Any) -> str:
        return duration(job.run_seconds)

    @admin.display(description=_("finished"))
    def finished(self, job: Any) -> str:
        return live(f"{job.pk} finished", moment(job.finished_at))


def _on_the_day(asked: RequestedFilter) -> Q:
    if asked.day is None:
        return Q()
    begins = dt.datetime.combine(asked.day, dt.time(), dt.UTC)
    return Q(finished_at__gte=begins, finished_at__lt=begins + dt.timedelta(days=1))
