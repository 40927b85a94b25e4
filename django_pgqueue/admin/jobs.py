from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.actions import choose
from django_pgqueue.admin.base import DETAILS, JobsAdmin
from django_pgqueue.admin.formatting import label, moment
from django_pgqueue.admin.listing import by_id, names, with_chosen
from django_pgqueue.admin.verbs import KILL, MOVE, RUN_NOW, SET_PRIORITY, Verb
from django_pgqueue.base.states import Status
from django_pgqueue.models import Job, Negative, Worker

# The statuses that an index finds, each in the order of that index; a second column would make the database sort.
ORDERS: dict[str, list[Any]] = {
    Status.SCHEDULED: ["run_at"],
    Status.QUEUED: ["queue", Negative("priority"), "run_at", "id"],
    Status.RUNNING: ["worker_id"],
}
WITH_QUEUE = {Status.QUEUED, Status.RUNNING}  # by index, and few: as many as the workers have slots


def chosen_status(request: HttpRequest) -> str | None:
    """Return the status that the list is narrowed to; a queue alone means its queued jobs."""
    return request.GET.get("status") or (Status.QUEUED if request.GET.get("queue") else None)


class StatusFilter(admin.SimpleListFilter):
    """Narrows to a status that has an index, and offers only these."""

    title = _("status")
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(status, status) for status in ORDERS]

    def value(self) -> str | None:
        return chosen_status(self.request)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() is None:
            return queryset
        if self.value() not in ORDERS:
            raise IncorrectLookupParameters
        return queryset.filter(status=self.value())

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        yield {
            "selected": self.value() is None,
            "query_string": changelist.get_query_string(remove=["status", "queue"]),
            "display": gettext("All"),
        }
        for status, display in self.lookup_choices:
            kept = status in WITH_QUEUE
            yield {
                "selected": self.value() == status,
                "query_string": changelist.get_query_string({"status": status}, [] if kept else ["queue"]),
                "display": display,
            }


class QueueFilter(admin.SimpleListFilter):
    """Narrows queued or running jobs to a queue. No index finds the scheduled jobs of one."""

    title = _("queue (queued or running)")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(queue, queue) for queue in with_chosen(names("queued_queues"), self.value())]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        if chosen_status(request) not in WITH_QUEUE:
            raise IncorrectLookupParameters
        return queryset.filter(queue=self.value())

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        status = chosen_status(self.request)
        yield {
            "selected": not self.value(),
            "query_string": changelist.get_query_string(remove=["queue"]),
            "display": gettext("All"),
        }
        for queue, display in self.lookup_choices:
            narrowed = {"queue": queue, "status": status if status in WITH_QUEUE else Status.QUEUED}
            yield {
                "selected": self.value() == queue,
                "query_string": changelist.get_query_string(narrowed),
                "display": display,
            }


@admin.register(Job)
class JobAdmin(JobsAdmin):
    """Live jobs: scheduled, queued, running."""

    verbs = (RUN_NOW, MOVE, SET_PRIORITY, KILL)
    lookups = ("status", "queue")
    actions = ("run_now", "move", "set_priority", "kill")
    list_display = ("id", "task", "queue", "status_label", "priority", "due", "attempts_of", "worker")
    list_display_links = ("id", "task")
    list_filter = (StatusFilter, QueueFilter)
    search_fields = ("=id",)
    search_help_text = _("The id of a job.")
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

    @admin.action(permissions=["run"], description=_("Run selected %(verbose_name_plural)s now"))
    def run_now(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse:
        return choose(self, request, RUN_NOW, queryset)

    @admin.action(permissions=["move"], description=_("Move selected %(verbose_name_plural)s to a queue…"))
    def move(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse:
        return choose(self, request, MOVE, queryset)

    @admin.action(
        permissions=["reprioritize"], description=_("Change the priority of selected %(verbose_name_plural)s…")
    )
    def set_priority(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse:
        return choose(self, request, SET_PRIORITY, queryset)

    @admin.action(permissions=["kill"], description=_("Kill selected %(verbose_name_plural)s"))
    def kill(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse:
        return choose(self, request, KILL, queryset)

    def has_run_permission(self, request: HttpRequest) -> bool:
        return self.may(request, RUN_NOW)

    def has_move_permission(self, request: HttpRequest) -> bool:
        return self.may(request, MOVE)

    def has_reprioritize_permission(self, request: HttpRequest) -> bool:
        return self.may(request, SET_PRIORITY)

    def has_kill_permission(self, request: HttpRequest) -> bool:
        return self.may(request, KILL)

    def chosen_kind(self, request: HttpRequest) -> str | None:
        return chosen_status(request)

    def offers(self, verb: Verb, job: Job) -> bool:
        if verb is RUN_NOW:
            return job.status == Status.SCHEDULED
        return verb is KILL or job.status not in {Status.RUNNING, Status.HELD}

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        return ORDERS.get(chosen_status(request) or "", ["-id"])

    def get_search_results(
        self,
        request: HttpRequest,
        queryset: QuerySet[Any],
        search_term: str,
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        return (by_id(queryset, term) if term else queryset), False

    def complete(self, jobs: list[Job]) -> None:
        workers = Worker.objects.in_bulk({job.worker_id for job in jobs if job.worker_id})
        for job in jobs:
            job.runs_on = workers.get(job.worker_id)  # type: ignore[attr-defined]

    @admin.display(description=_("status"))
    def status_label(self, job: Job) -> str:
        asked = job.status == Status.RUNNING and job.cancel_requested_at is not None
        return label(job.status, gettext("running, asked to stop") if asked else job.status)

    @admin.display(description=_("run at"))
    def due(self, job: Job) -> str:
        return moment(job.run_at)

    @admin.display(description=_("worker"))
    def worker(self, job: Job) -> str:
        if job.status != Status.RUNNING:
            return "-"
        return str(job.runs_on or job.worker_id)  # type: ignore[attr-defined]
