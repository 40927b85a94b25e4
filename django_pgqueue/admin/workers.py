from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from django.utils.translation import gettext, ngettext, pgettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.actions import ActionsAdmin, AdminAction
from django_pgqueue.admin.base import ReadOnlyAdmin
from django_pgqueue.admin.formatting import label, live_column, moment_of, sentence_of
from django_pgqueue.admin.job_tables import folded
from django_pgqueue.admin.links import Links
from django_pgqueue.admin.row_actions import QUIET, RESUME_WORKERS, STOP
from django_pgqueue.conf import conf
from django_pgqueue.insights.formatting import brief, grouped
from django_pgqueue.insights.worker_info import CAP, MOST_JOBS, WorkerState, jobs_of, served_text, states_of, with_clock
from django_pgqueue.models import Worker

FACTS = ("state", "lease", "slots", "memory", "up", "listens", "served")
PROCESS = ("host", "said_pid", "name", "said_version", "said_concurrency", "started_time", "command")


def _state(state: WorkerState) -> str:
    if not state.is_alive:
        return label("lost", gettext("silent"))
    if state.row.stop_requested_at is not None:
        by = gettext("asked by %(name)s") % {"name": state.row.stop_requested_by or gettext("a user")}
        return format_html('{} <span class="pgqueue-quiet">{}</span>', label("paused", gettext("stopping")), by)
    if state.row.quiet_since is not None:
        by = gettext("asked by %(name)s") % {"name": state.row.quiet_by or gettext("a user")}
        return format_html('{} <span class="pgqueue-quiet">{}</span>', label("paused", gettext("quiet")), by)
    return label("running", gettext("at work")) if state.held else label("queued", gettext("idle"))


def _slots(state: WorkerState) -> str:
    words = gettext("%(busy)s of %(all)s") % {"busy": grouped(state.busy), "all": grouped(state.row.concurrency)}
    more = "+" if state.held > CAP else ""
    ahead = gettext("%(count)s fetched ahead") % {"count": f"{grouped(state.ahead)}{more}"} if state.ahead else ""
    return format_html('{} <span class="pgqueue-quiet">{}</span>', words, ahead)


def _listens(worker: Worker) -> str:
    """Say how its command learns of work: by NOTIFY, or by polling if it does not listen."""
    return pgettext("hears of work", "at once") if worker.session_pid else gettext("by polling")


def _lease(state: WorkerState) -> str:
    silent = brief(state.silent_seconds)
    if not state.is_alive:
        return gettext("silent for %(silent)s; its jobs are reaped") % {"silent": silent}
    said = {"silent": silent, "left": brief(state.left_seconds)}
    return gettext("heard %(silent)s ago; if it stays silent, its jobs are reaped in %(left)s") % said


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin, ActionsAdmin):
    """Worker processes: whether they are alive, the jobs that they run, and buttons to make them quiet or stop."""

    actions = (QUIET, RESUME_WORKERS, STOP)
    named_by = ("host", "pid")
    heavy = ("metadata",)
    list_display = ("process", "name", "state", "lease", "slots", "memory", "up", "listens", "served", "said_version")
    ordering = ("host", "name", "pid", "id")
    fieldsets = ((None, {"fields": FACTS}), folded(_("Process"), *PROCESS))
    readonly_fields = (*FACTS, *PROCESS)
    change_list_template = "admin/pgqueue/worker/change_list.html"
    change_form_template = "admin/pgqueue/worker/change_form.html"

    state = live_column("state", _("state"), lambda worker: _state(worker.standing))
    lease = live_column("lease", _("lease"), lambda worker: _lease(worker.standing))
    slots = live_column("slots", _("slots"), lambda worker: _slots(worker.standing))
    memory = live_column(
        "memory", _("memory"), lambda row: filesizeformat(row.memory_bytes) if row.memory_bytes else "-"
    )
    up = live_column("up", _("up for"), lambda worker: brief(worker.standing.up_seconds))
    listens = live_column("listens", _("hears of work"), _listens)
    started_time = moment_of("started_at", _("started at"))
    said_pid = sentence_of("pid", _("pid"), Worker)
    said_version = sentence_of("version", _("version"), Worker)
    said_concurrency = sentence_of("concurrency", _("concurrency"), Worker)

    def offers(self, action: AdminAction, row: Any) -> bool:
        if action.name == STOP.name or row.stop_requested_at is not None:
            return row.stop_requested_at is None
        return (row.quiet_since is None) is (action.name == QUIET.name)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return with_clock(super().get_queryset(request))

    def complete(self, workers: list[Any], links: Links) -> None:
        for state in states_of(workers, conf.database_here):
            state.row.standing = state  # type: ignore[attr-defined]

    def context_of(self, request: HttpRequest, worker: Any) -> dict[str, Any]:
        links = self.links(request)
        self.complete([worker], links)
        found = jobs_of(worker.pk, conf.database_here, limit=MOST_JOBS + 1)
        return super().context_of(request, worker) | {
            "jobs": [(job, links.to_row("job", job.id), brief(job.seconds)) for job in found[:MOST_JOBS]],
            "has_more": len(found) > MOST_JOBS,
        }

    @admin.display(description=_("process"))
    def process(self, worker: Worker) -> str:
        return f"{worker.host} {worker.pid}"

    @admin.display(description=_("queues"))
    def served(self, worker: Worker) -> str:
        return served_text(worker)

    @admin.display(description=_("command"))
    def command(self, worker: Worker) -> str:
        """Name the other processes of the same command: they stop together."""
        others = (
            Worker.objects.using(conf.database_here).filter(supervisor_id=worker.supervisor_id).exclude(pk=worker.pk)
        )
        pids = [str(pid) for pid in others.order_by("pid").values_list("pid", flat=True)[:CAP]]
        if not pids:
            return gettext("This is its only process.")
        text = ngettext("Together with process %(pids)s.", "Together with processes %(pids)s.", len(pids))
        return text % {"pids": ", ".join(pids)}
