from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from django.utils.translation import gettext, ngettext, pgettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.actions import AdminAction
from django_pgqueue.admin.base import ActingAdmin
from django_pgqueue.admin.bounded import ReadOnlyAdmin
from django_pgqueue.admin.changelist import CappedPaginator, JobList
from django_pgqueue.admin.formatting import exact_moment, label, live, sentence_of
from django_pgqueue.admin.links import Links
from django_pgqueue.admin.row_actions import STOP
from django_pgqueue.conf import conf
from django_pgqueue.insights.formatting import brief, whole
from django_pgqueue.insights.worker_info import CAP, MOST_JOBS, WorkerState, jobs_of, served_text, states_of, with_clock
from django_pgqueue.models import Worker

FACTS = ("state", "lease", "slots", "memory", "up", "hears", "served")
PROCESS = ("host", "said_pid", "name", "said_version", "said_concurrency", "started_time", "command")


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin, ActingAdmin):
    """Worker processes: whether they live, what they are at, and how to have them stopped."""

    actions = (STOP,)
    named_by = ("host", "pid")
    heavy: tuple[str, ...] = ("metadata",)
    list_display = ("process", "name", "state", "lease", "slots", "memory", "up", "hears", "served", "said_version")
    ordering = ("host", "name", "pid", "id")
    sortable_by = ()
    paginator = CappedPaginator
    list_per_page = 100
    list_max_show_all = 100
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    fieldsets = (
        (None, {"fields": FACTS}),
        (
            _("Process"),
            {
                "fields": PROCESS,
                "classes": ("collapse",),
            },
        ),
    )
    readonly_fields = (*FACTS, *PROCESS)
    change_list_template = "admin/django_pgqueue/worker/change_list.html"
    change_form_template = "admin/django_pgqueue/worker/change_form.html"

    said_pid = sentence_of("pid", _("pid"), Worker)
    said_version = sentence_of("version", _("version"), Worker)
    said_concurrency = sentence_of("concurrency", _("concurrency"), Worker)

    def offers(self, action: AdminAction, row: Any) -> bool:
        return row.stop_requested_at is None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return with_clock(super().get_queryset(request))  # type: ignore[arg-type]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobList]:
        return JobList

    def complete(self, workers: Iterable[Any]) -> None:
        for state in states_of(workers, conf.database):
            state.row.standing = state  # type: ignore[attr-defined]

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if worker := kwargs.get("obj"):
            found = jobs_of(worker.pk, conf.database, limit=MOST_JOBS + 1)
            links = Links(request, self.admin_site)
            context["jobs"] = [(job, links.to_row("job", job.id), brief(job.seconds)) for job in found[:MOST_JOBS]]
            context["has_more"] = len(found) > MOST_JOBS
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description=_("process"))
    def process(self, worker: Worker) -> str:
        return f"{worker.host} {worker.pid}"

    @admin.display(description=_("state"))
    def state(self, worker: Any) -> str:
        return live(f"state {worker.pk}", _state(_standing(self, worker)))

    @admin.display(description=_("lease"))
    def lease(self, worker: Any) -> str:
        return live(f"lease {worker.pk}", _lease(_standing(self, worker)))

    @admin.display(description=_("slots"))
    def slots(self, worker: Any) -> str:
        state = _standing(self, worker)
        words = gettext("%(busy)s of %(all)s") % {"busy": whole(state.busy), "all": whole(worker.concurrency)}
        more = "+" if state.held > CAP else ""
        ahead = gettext("%(count)s fetched ahead") % {"count": f"{whole(state.ahead)}{more}"} if state.ahead else ""
        return live(f"slots {worker.pk}", format_html('{} <span class="pgqueue-quiet">{}</span>', words, ahead))

    @admin.display(description=_("memory"))
    def memory(self, worker: Any) -> str:
        return live(f"memory {worker.pk}", filesizeformat(worker.memory_bytes) if worker.memory_bytes else "-")

    @admin.display(description=_("up for"))
    def up(self, worker: Any) -> str:
        return live(f"up {worker.pk}", brief(_standing(self, worker).up_seconds))

    @admin.display(description=_("hears of work"))
    def hears(self, worker: Any) -> str:
        """Return whether its command listens: one that does not finds work by polling."""
        words = pgettext("hears of work", "at once") if worker.session_pid else gettext("by polling")
        return live(f"hears {worker.pk}", words)

    @admin.display(description=_("queues"))
    def served(self, worker: Worker) -> str:
        return served_text(worker)

    @admin.display(description=_("started at"))
    def started_time(self, worker: Worker) -> str:
        return exact_moment(worker.started_at)

    @admin.display(description=_("command"))
    def command(self, worker: Worker) -> str:
        """Name the other processes of the same command: they stop together."""
        others = Worker.objects.using(conf.database).filter(supervisor_id=worker.supervisor_id).exclude(pk=worker.pk)
        pids = [str(pid) for pid in others.order_by("pid").values_list("pid", flat=True)[:CAP]]
        if not pids:
            return gettext("This is its only process.")
        text = ngettext("Together with process %(pids)s.", "Together with processes %(pids)s.", len(pids))
        return text % {"pids": ", ".join(pids)}


def _standing(model_admin: WorkerAdmin, worker: Any) -> WorkerState:
    if not hasattr(worker, "standing"):
        model_admin.complete([worker])
    standing: WorkerState = worker.standing
    return standing


def _state(state: WorkerState) -> str:
    if not state.is_alive:
        return label("lost", gettext("silent"))
    if state.is_asked_to_stop:
        by = gettext("asked by %(name)s") % {"name": state.row.stop_requested_by}
        return format_html('{} <span class="pgqueue-quiet">{}</span>', label("paused", gettext("stopping")), by)
    return label("running", gettext("at work")) if state.held else label("queued", gettext("idle"))


def _lease(state: WorkerState) -> str:
    silent = brief(state.silent_seconds)
    if not state.is_alive:
        return gettext("silent for %(silent)s; its jobs are reaped") % {"silent": silent}
    said = {"silent": silent, "left": brief(state.left_seconds)}
    return gettext("heard %(silent)s ago; if it stays silent, its jobs are reaped in %(left)s") % said
