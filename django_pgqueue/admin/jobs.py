from dataclasses import replace

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.actions import AdminAction
from django_pgqueue.admin.base import DETAILS, JobsAdmin
from django_pgqueue.admin.filters import HELP, LiveQueueFilter, RequestedFilter, Search, StatusFilter, filter_of
from django_pgqueue.admin.formatting import label, live, moment
from django_pgqueue.admin.keyset import (
    CONCURRENCY_KEY,
    ID,
    NEWEST,
    PLACE,
    PRIORITY,
    QUEUE,
    RUN_AT,
    WORKER,
    IndexOrder,
    Route,
)
from django_pgqueue.admin.row_actions import JOB_ACTIONS
from django_pgqueue.jobs.actions import LIVE
from django_pgqueue.jobs.search import Filter, Source
from django_pgqueue.models import Job, Negative, Worker
from django_pgqueue.states import Scope, Status

DUE = IndexOrder((RUN_AT, PLACE), ("run_at",))
BY_KEY = IndexOrder((ID,), ("unique_key",))  # one at most
TIMED = [Status.SCHEDULED, Status.RESERVED]

# What an index has of each status, and in which order.
ROUTES: dict[str, tuple[IndexOrder, Q]] = {
    Status.SCHEDULED: (DUE, Q(status__in=TIMED)),
    Status.RESERVED: (DUE, Q(status__in=TIMED)),
    Status.QUEUED: (
        IndexOrder((QUEUE, PRIORITY, RUN_AT, ID), ("queue", Negative("priority"), "run_at", "id")),
        Q(status=Status.QUEUED),
    ),
    Status.WAITING: (
        IndexOrder((CONCURRENCY_KEY, PRIORITY, RUN_AT, ID), ("concurrency_key", Negative("priority"), "run_at", "id")),
        Q(status=Status.WAITING),
    ),
    # Not by their places: rows of running jobs are written to, and move. A process has few, which are soon sorted.
    Status.RUNNING: (IndexOrder((WORKER, ID), ("worker_id", "id")), Q(status=Status.RUNNING)),
}
WHOLE = {Status.QUEUED, Status.RUNNING}  # a queue of these needs no window: by index, or as few as there are slots
KEYED = [Scope.LIVE, Scope.START]


@admin.register(Job)
class JobAdmin(JobsAdmin):
    """Live jobs: scheduled, queued, running."""

    actions = JOB_ACTIONS[Source.LIVE]
    lookups = ("status", "queue")
    list_display = ("id", "task", "queue", "status_label", "due", "attempts_of", "worker", "priority")
    list_display_links = ("id", "task")
    list_filter = (StatusFilter, LiveQueueFilter)
    search_help_text = HELP
    fieldsets = (
        (
            _("Times"),
            {
                "fields": ("enqueued_time", "run_time", "first_started_time", "started_time", "expires_time"),
                "classes": ("collapse",),
            },
        ),
        *DETAILS,
    )

    def offers(self, action: AdminAction, job: Job) -> bool:
        return action.many is None or action.many.suits(job.status)

    def asked(self, request: HttpRequest) -> RequestedFilter:
        asked = super().asked(request)
        if asked.queue and not asked.status and asked.search == Search():
            return replace(asked, status=Status.QUEUED)
        return asked

    def chosen(self, request: HttpRequest) -> Filter | None:
        return filter_of(self.asked(request), is_live=True)

    def route(self, request: HttpRequest) -> Route:
        asked = self.asked(request)
        search, narrowed = asked.search, asked.narrowed
        if search.unique_key is not None:
            return Route(BY_KEY, Q(unique_key=search.unique_key, unique_scope__in=KEYED) & narrowed)
        if not asked.status:
            narrowed &= Q(status__in=LIVE)
        if route := self.searched(search, narrowed, NEWEST):
            return route
        if not asked.status:
            return Route(NEWEST, Q(), narrowed)
        along, base = ROUTES[asked.status]
        if asked.status in WHOLE or (
            asked.status == Status.SCHEDULED and not asked.queue
        ):  # there are few reserved rows
            return Route(along, base & narrowed)
        return Route(along, base, narrowed) if asked.queue or base != narrowed else Route(along, base)

    def complete(self, jobs: list[Job]) -> None:
        workers = Worker.objects.in_bulk({job.worker_id for job in jobs if job.worker_id})
        for job in jobs:
            job.runs_on = workers.get(job.worker_id)  # type: ignore[attr-defined]

    @admin.display(description=_("status"))
    def status_label(self, job: Job) -> str:
        asked = job.status == Status.RUNNING and job.cancel_requested_at is not None
        words = gettext("running, asked to stop") if asked else job.get_status_display()
        return live(f"{job.pk} status", label(job.status, words))

    @admin.display(description=_("run at"))
    def due(self, job: Job) -> str:
        return live(f"{job.pk} due", moment(job.run_at))

    @admin.display(description=_("worker"))
    def worker(self, job: Job) -> str:
        runs_on = (job.runs_on or job.worker_id) if job.status == Status.RUNNING else "-"  # type: ignore[attr-defined]
        return live(f"{job.pk} worker", runs_on)
