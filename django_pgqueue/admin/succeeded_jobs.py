import datetime as dt
from dataclasses import replace

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.filters import HELP_WITHOUT_KEY, DayFilter, RequestedFilter, SeenQueueFilter, StageFilter
from django_pgqueue.admin.formatting import column_of, live_column, moment, moment_of
from django_pgqueue.admin.job_tables import METADATA, JobsAdmin, folded
from django_pgqueue.admin.keyset import NEWEST, Route
from django_pgqueue.admin.row_actions import JOB_ACTIONS
from django_pgqueue.insights.formatting import duration
from django_pgqueue.jobs.search import Source
from django_pgqueue.models import SucceededJob


@admin.register(SucceededJob)
class SucceededJobAdmin(JobsAdmin):
    """Jobs that succeeded, for as long as they are kept; the newest job first, which need not have ended last."""

    actions = JOB_ACTIONS[Source.SUCCEEDED]
    heavy = (*JobsAdmin.heavy, "result")
    lookups = ("queue", "day", "stage")
    list_display = ("id", "task", "queue", "run", "attempts", "succeeded")
    list_display_links = ("id", "task")
    list_filter = (DayFilter, SeenQueueFilter, StageFilter)
    search_help_text = HELP_WITHOUT_KEY
    fieldsets = (
        folded(_("Times"), "enqueued_time", "run_time", "first_started_time", "started_time", "succeeded_time"),
        METADATA,
        folded(_("Options"), "said_lost", "said_backend"),
    )

    run = column_of("run_seconds", _("run time"), duration)
    succeeded = live_column("succeeded", _("succeeded"), lambda job: moment(job.succeeded_at))
    succeeded_time = moment_of("succeeded_at", _("succeeded at"))

    def asked(self, request: HttpRequest) -> RequestedFilter:
        asked = super().asked(request)
        return replace(asked, finds_nothing=asked.unique_key is not None or asked.finds_nothing)  # they have no keys

    def route(self, request: HttpRequest) -> Route:
        """Read by the id, in the partition of the day where one is chosen; all else is looked for in a window."""
        asked = self.asked(request)
        base, narrowed = _on_the_day(asked), asked.narrowed & asked.of_stage
        return self.searched(asked, narrowed, NEWEST, base) or Route(NEWEST, base, narrowed or None)


def _on_the_day(asked: RequestedFilter) -> Q:
    if asked.day is None:
        return Q()
    begins = dt.datetime.combine(asked.day, dt.time(), dt.UTC)
    return Q(succeeded_at__gte=begins, succeeded_at__lt=begins + dt.timedelta(days=1))
