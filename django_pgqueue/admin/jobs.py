from dataclasses import replace
from functools import partial
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.actions import AdminAction
from django_pgqueue.admin.enqueue import PERMISSION, enqueue_view
from django_pgqueue.admin.filters import HELP, LiveQueueFilter, RequestedFilter, StageFilter, StatusFilter
from django_pgqueue.admin.formatting import live_column, live_status, moment
from django_pgqueue.admin.job_tables import METADATA, OPTIONS, JobsAdmin, folded
from django_pgqueue.admin.keyset import NEWEST, IndexOrder, Route
from django_pgqueue.admin.links import Links
from django_pgqueue.admin.row_actions import JOB_ACTIONS
from django_pgqueue.conf import conf
from django_pgqueue.jobs.actions import LIVE
from django_pgqueue.jobs.search import Source
from django_pgqueue.models import Job, Negative, Worker
from django_pgqueue.states import Status, UniqueUntil

DUE = IndexOrder(("run_at", "ctid"), ("run_at",))
BY_KEY = IndexOrder(("id",), ("unique_key",))  # one at most
TIMED = [Status.SCHEDULED, Status.RESERVED]

# What an index has of each status, and in which order.
ROUTES: dict[str, tuple[IndexOrder, Q]] = {
    Status.SCHEDULED: (DUE, Q(status__in=TIMED)),
    Status.RESERVED: (DUE, Q(status__in=TIMED)),
    Status.QUEUED: (
        IndexOrder(("queue", "priority", "run_at", "id"), ("queue", Negative("priority"), "run_at", "id")),
        Q(status=Status.QUEUED),
    ),
    Status.LIMITED: (
        IndexOrder(
            ("concurrency_key", "priority", "run_at", "id"),
            ("concurrency_key", Negative("priority"), "run_at", "id"),
        ),
        Q(status=Status.LIMITED),
    ),
    Status.BLOCKED: (
        IndexOrder(("stage_id", "id"), ("stage_id", "id")),
        Q(status=Status.BLOCKED, stage_id__isnull=False),
    ),
    # Not by their places: rows of running jobs are written to, and move. A process has few, which are soon sorted.
    Status.RUNNING: (IndexOrder(("worker_id", "id"), ("worker_id", "id")), Q(status=Status.RUNNING)),
}
WHOLE = {Status.QUEUED, Status.RUNNING}  # a queue of these needs no window: by index, or as few as there are slots
KEYED = [UniqueUntil.END, UniqueUntil.START]


@admin.register(Job)
class JobAdmin(JobsAdmin):
    """Live jobs: scheduled, queued, running."""

    actions = JOB_ACTIONS[Source.LIVE]
    lookups = ("status", "queue", "stage")
    list_display = ("id", "task", "queue", "status_label", "due", "attempts_of", "worker", "priority")
    list_display_links = ("id", "task")
    list_filter = (StatusFilter, LiveQueueFilter, StageFilter)
    change_list_template = "admin/pgqueue/job/change_list.html"
    search_help_text = HELP
    fieldsets = (
        folded(_("Times"), "enqueued_time", "run_time", "first_started_time", "started_time", "expires_time"),
        METADATA,
        OPTIONS,
    )

    status_label = live_column("status", _("status"), live_status)
    due = live_column("due", _("run at"), lambda job: moment(job.run_at))
    worker = live_column(
        "worker", _("worker"), lambda job: (job.runs_on or job.worker_id) if job.status == Status.RUNNING else "-"
    )

    def get_urls(self) -> list[URLPattern]:
        return [self.pattern("enqueue/", "enqueue", partial(enqueue_view, self)), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        address = self.address("enqueue") if self.may(request, PERMISSION) else ""
        return super().changelist_view(request, {"enqueue_address": address, **(extra_context or {})})

    def offers(self, action: AdminAction, job: Job) -> bool:
        return action.many is None or job.status in action.many.can_change

    def asked(self, request: HttpRequest) -> RequestedFilter:
        asked = super().asked(request)
        if asked.queue and not asked.status and asked.stage is None and not request.GET.get(SEARCH_VAR, "").strip():
            return replace(asked, status=Status.QUEUED)
        return asked

    def route(self, request: HttpRequest) -> Route:
        asked = self.asked(request)
        narrowed = asked.narrowed
        if asked.unique_key is not None:
            return Route(BY_KEY, Q(unique_key=asked.unique_key, unique_until__in=KEYED) & narrowed & asked.of_stage)
        if not asked.status:
            narrowed &= Q(status__in=LIVE)
        if route := self.searched(asked, narrowed, NEWEST, asked.of_stage):
            return route
        if asked.stage is not None:
            return Route(NEWEST, asked.of_stage, narrowed)
        if not asked.status:
            return Route(NEWEST, Q(), narrowed)
        along, base = ROUTES[asked.status]
        has_few_others = asked.status == Status.SCHEDULED and not asked.queue  # there are few reserved rows
        if asked.status in WHOLE or has_few_others:
            return Route(along, base & narrowed)
        return Route(along, base, narrowed) if asked.queue or base != narrowed else Route(along, base)

    def complete(self, jobs: list[Job], links: Links) -> None:
        workers = Worker.objects.using(conf.replica_here).in_bulk({job.worker_id for job in jobs if job.worker_id})
        for job in jobs:
            job.runs_on = workers.get(job.worker_id)  # type: ignore[attr-defined]
