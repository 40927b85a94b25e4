from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.core.exceptions import BadRequest
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext, pgettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.actions import AdminAction
from django_pgqueue.admin.base import NUL, ActingAdmin
from django_pgqueue.admin.changelist import CappedPaginator, JobList
from django_pgqueue.admin.charts import STYLES, throughput_chart
from django_pgqueue.admin.formatting import label, linked, live, moment_of
from django_pgqueue.admin.forms import RATE, LimitsForm
from django_pgqueue.admin.links import Links
from django_pgqueue.admin.row_actions import PAUSE_QUEUES, RESUME_QUEUES
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.flow.queue_limits import UNCHANGED, limit_queue
from django_pgqueue.insights import throughput
from django_pgqueue.insights.bounded import bounded
from django_pgqueue.insights.formatting import brief, duration
from django_pgqueue.insights.overview import PAUSED, limits_of, lines_of, paces, pause_of
from django_pgqueue.insights.throughput import LATE
from django_pgqueue.models import Queue
from django_pgqueue.states import LONGEST_QUEUE, Status

NUMBERS = ("queued", "scheduled", "waiting", "running", "dead")
PACE = ("oldest", "empty_in", "p95_wait", "workers")
TILES = (*NUMBERS, *PACE[:-1], "p95_run", *PACE[-1:])

MOST_NEW = 100  # queues without a row that the list names


@admin.register(Queue)
class QueueAdmin(ActingAdmin):
    """Queues: how many jobs they have, who has paused them and why, how they are limited."""

    form = LimitsForm  # type: ignore[assignment]  # generic for the type checker only
    actions = (PAUSE_QUEUES, RESUME_QUEUES)
    named_by = ()
    heavy: tuple[str, ...] = ()
    list_display = ("name", "state", *NUMBERS, *PACE, "limits")
    search_fields = ("name",)
    ordering = ("name",)
    sortable_by = ()
    paginator = CappedPaginator
    list_per_page = 100
    list_max_show_all = 100
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    fieldsets = (
        (None, {"fields": ("name", "state", "created_time")}),
        (_("Limits"), {"fields": ("max_running", "rate_limit", "rate_period_seconds", "rate_burst")}),
    )
    readonly_fields = ("name", "state", "created_time")

    class Media:
        css = {"all": STYLES}

    created_time = moment_of("created_at", _("first seen"))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Limits are changed by those who see queues and may pause them."""
        return self.may(request, PAUSE_QUEUES.permission)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        names = (f"{self.opts.app_label}.{right}_queue" for right in ("view", "change"))
        return any(map(request.user.has_perm, names))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def keys(self, texts: Iterable[str]) -> list[str]:
        names = list(dict.fromkeys(texts))
        if any(not 0 < len(name) <= LONGEST_QUEUE or "\0" in name for name in names):
            raise BadRequest("A queue's name has 1 to 128 characters.")
        return names

    def offers(self, action: AdminAction, row: Any) -> bool:
        return action is not RESUME_QUEUES or row.is_paused

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        queues: QuerySet[Any] = super().get_queryset(request).annotate(is_paused=PAUSED)
        return queues

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return a queue; one that is not stored where no worker has served it yet, but jobs are in it."""
        if found := super().get_object(request, object_id, from_field):
            return found
        if NUL in object_id or from_field or not lines_of([object_id], conf.database)[0].is_known:
            return None
        queue: Any = Queue(name=object_id)  # as it is: Django has unquoted it already
        queue.is_paused = False
        return queue

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobList]:
        return JobList

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        links = Links(request, self.admin_site)
        new = CallerConnection().rows(statement("unregistered_queues"), {"limit": MOST_NEW})
        changelist.new_queues = [(name, links.to_row("queue", name)) for (name,) in sorted(new)]
        for queue in changelist.result_list:
            queue.links = links
        return changelist

    def complete(self, queues: list[Any]) -> None:
        alias = conf.database
        lines = {line.name: line for line in lines_of([queue.name for queue in queues], alias)}
        pace = paces(lines.values(), alias)
        for queue in queues:
            queue.line, queue.pace = lines[queue.name], pace[queue.name]

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if queue := kwargs.get("obj"):
            queue.links = Links(request, self.admin_site)
            with bounded():
                self.complete([queue])
                series = throughput.per_minute(conf.database, queue=queue.name)[:-1]
            shown = (getattr(self, name) for name in TILES)
            context["tiles"] = [(column.short_description, column(queue)) for column in shown]
            context["charts"] = throughput_chart(series, name="hour", span=gettext("last hour"), minutes=1)
        return super().render_change_form(request, context, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's
        """Set the limits as ``limit_queue`` does, which also tells the workers; tokens stay where the rate does."""
        limits, has_rate = form.cleaned_data, RATE & set(form.changed_data)
        limit_queue(
            obj.pk,
            max_running=limits["max_running"],
            rate=limits["rate_limit"] if has_rate else UNCHANGED,
            period=limits["rate_period_seconds"] or 1.0 if has_rate else 1.0,
            burst=limits["rate_burst"] if has_rate else None,
            database=conf.database,
        )

    @admin.display(description=_("state"))
    def state(self, queue: Any) -> str:
        if not queue.is_paused:
            return live(f"{queue.name} state", label("running", pgettext("a queue is", "open")))
        words = label("paused", gettext("paused")), pause_of(queue)
        return live(f"{queue.name} state", format_html('{} <span class="pgqueue-quiet">{}</span>', *words))

    @admin.display(description=_("queued"))
    def queued(self, queue: Any) -> str:
        return self._number(queue, "queued", queue.links.to_jobs(Status.QUEUED, queue.name))

    @admin.display(description=_("scheduled"))
    def scheduled(self, queue: Any) -> str:
        return self._number(queue, "scheduled", queue.links.to_jobs(Status.SCHEDULED, queue.name))

    @admin.display(description=_("waiting"))
    def waiting(self, queue: Any) -> str:
        return self._number(queue, "waiting", queue.links.to_jobs(Status.WAITING, queue.name))

    @admin.display(description=_("running"))
    def running(self, queue: Any) -> str:
        return self._number(queue, "running", queue.links.to_jobs(Status.RUNNING, queue.name))

    @admin.display(description=_("dead"))
    def dead(self, queue: Any) -> str:
        return self._number(queue, "dead", queue.links.to_list("deadjob", queue=queue.name))

    @admin.display(description=_("oldest"))
    def oldest(self, queue: Any) -> str:
        return self._duration(queue, "oldest", queue.line.oldest_seconds)

    @admin.display(description=_("time to empty"))
    def empty_in(self, queue: Any) -> str:
        if queue.line.queued.value and queue.pace.drain_seconds is None:
            words = gettext("paused") if queue.is_paused else gettext("stalled")
            return live(f"{queue.name} drain", words)
        return self._duration(queue, "drain", queue.pace.drain_seconds or None)

    @admin.display(description=_("p95 wait"))
    def p95_wait(self, queue: Any) -> str:
        return self._share(queue, "wait", queue.pace.hour.wait_seconds(LATE))

    @admin.display(description=_("p95 run"))
    def p95_run(self, queue: Any) -> str:
        return self._share(queue, "run", queue.pace.hour.run_seconds(LATE))

    @admin.display(description=_("workers"))
    def workers(self, queue: Any) -> str:
        return live(f"{queue.name} workers", linked(queue.line.workers, queue.links.to_list("worker")))

    @admin.display(description=_("limits"))
    def limits(self, queue: Queue) -> str:
        return limits_of(queue) or "-"

    def _number(self, queue: Any, name: str, address: str) -> str:
        number = getattr(queue.line, name)
        return live(f"{queue.name} {name}", linked(number, address if number.may_be_some else ""))

    def _share(self, queue: Any, name: str, seconds: float | None) -> str:
        return live(f"{queue.name} {name}", "-" if seconds is None else duration(seconds))

    def _duration(self, queue: Any, name: str, seconds: float | None) -> str:
        return live(f"{queue.name} {name}", "-" if seconds is None else brief(seconds))
