from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgqueue.admin.bounded import ReadOnlyAdmin, bounded_page
from django_pgqueue.admin.charts import STYLES, throughput_chart
from django_pgqueue.admin.links import Links, crumbs
from django_pgqueue.conf import conf
from django_pgqueue.doctor import Finding, Level, findings
from django_pgqueue.insights import throughput
from django_pgqueue.insights.bounded import TookTooLong, bounded
from django_pgqueue.insights.formatting import brief, duration, short, whole
from django_pgqueue.insights.overview import (
    BoundedCount,
    QueueLine,
    QueuePace,
    lines,
    living_workers,
    paces,
    pause_of,
    total,
)
from django_pgqueue.insights.throughput import LATE
from django_pgqueue.models import Overview, Worker
from django_pgqueue.states import Status

TEMPLATE = "admin/django_pgqueue/overview.html"
MOST_SHOWN = 100
PERCENT = 100


PAGES = {  # the list that belongs to a finding
    "no-workers": "worker",
    "polling": "worker",
    "versions-differ": "worker",
    "connections-short": "worker",
    "bulk-actions-stalled": "bulkaction",
    "schedules-late": "schedule",
    "schedules-refused": "schedule",
    "unknown-tasks": "job",
}

SHOW = {
    "worker": gettext_lazy("Show workers"),
    "bulkaction": gettext_lazy("Show bulk actions"),
    "schedule": gettext_lazy("Show schedules"),
    "job": gettext_lazy("Show jobs"),
}


class LinkTarget(NamedTuple):
    """A link from a finding; without an address there is none."""

    words: Any = ""
    address: str = ""


class Cell(NamedTuple):
    """A number, and the list that shows what was counted."""

    text: str
    address: str = ""
    kind: str = ""  # for the stylesheet: bad, warning
    note: str = ""


class Tile(NamedTuple):
    """One of the figures on top."""

    label: str
    cell: Cell


class QueueRow(NamedTuple):
    """One queue in the table."""

    queue: Cell
    pause: str
    cells: Sequence[Cell]


@admin.register(Overview)
class OverviewAdmin(ReadOnlyAdmin):
    """One page: is the queue healthy, and what is going on in it."""

    class Media:
        css = {"all": ["django_pgqueue/admin.css", "django_pgqueue/overview.css", *STYLES]}

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.changelist_view), name=name)]

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm(f"{self.opts.app_label}.view_overview"))

    @bounded_page
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": _("Overview"),
            "opts": self.opts,
            "media": self.media,
            "crumbs": crumbs(self.admin_site, self.opts),
            **self._shown(Links(request, self.admin_site)),
            **(extra_context or {}),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, TEMPLATE, context)

    def _shown(self, links: Links) -> dict[str, Any]:
        alias = conf.database
        workers = list(living_workers(alias))
        per_minute, (per_quarter, by_queue) = throughput.per_minute(alias), throughput.of_day(alias)
        try:
            with bounded(alias):
                queues, is_counted = lines(alias, workers), True
        except TookTooLong:
            queues, is_counted = [], False
        found = findings(alias, queues=queues)
        hour, day = throughput.total(per_minute), throughput.total(per_quarter)
        return {
            "verdict": _verdict(found, is_counted=is_counted),
            "level": found[0].level if found else "good" if is_counted else Level.WARNING,
            "findings": [(finding, _page_of(finding, links)) for finding in found],
            "is_counted": is_counted,
            "seconds": conf.admin_timeout_seconds,
            "tiles": _tiles(queues, workers, hour, day, links) if is_counted else [],
            **_rows(queues, alias, by_queue, links),
            "charts": [
                *throughput_chart(per_minute[:-1], name="hour", span=_("last hour"), minutes=1),
                *throughput_chart(per_quarter[:-1], name="day", span=_("last day"), minutes=throughput.QUARTER),
            ],
        }


def _verdict(found: Sequence[Finding], *, is_counted: bool) -> str:
    if found:
        return ngettext("%(number)s finding", "%(number)s findings", len(found)) % {"number": len(found)}
    return _("All is well.") if is_counted else _("Nothing was found, but not everything was seen.")


def _rows(
    queues: Sequence[QueueLine], alias: str, day: Mapping[str, throughput.StatsCounts], links: Links
) -> dict[str, Any]:
    pace = paces(queues, alias, day=day)
    shown = sorted(queues, key=_urgency)[:MOST_SHOWN]
    return {
        "rows": [_row(queue, pace[queue.name], links) for queue in sorted(shown, key=lambda queue: queue.name)],
        "more": len(queues) - len(shown),
        "all_queues": links.to_list("queue"),
    }


def _page_of(finding: Finding, links: Links) -> LinkTarget:
    if finding.name == "failing":
        return LinkTarget(_("Show dead jobs by cause"), links.to_causes())
    if queues := finding.facts.get("queues"):
        if len(queues) == 1:
            return LinkTarget(_("Show queue"), links.to_row("queue", queues[0]))
        return LinkTarget(_("Show queues"), links.to_list("queue"))
    if model := PAGES.get(finding.name):
        return LinkTarget(SHOW[model], links.to_list(model))
    return LinkTarget()


def _tiles(
    queues: Sequence[QueueLine],
    workers: Sequence[Worker],
    hour: throughput.StatsCounts,
    day: throughput.StatsCounts,
    links: Links,
) -> list[Tile]:
    ages = [queue.oldest_seconds for queue in queues if queue.oldest_seconds is not None and not queue.is_paused]
    slots, commands = sum(worker.concurrency for worker in workers), {worker.supervisor_id for worker in workers}
    dead = total(queue.dead for queue in queues)
    running, paused = total(queue.running for queue in queues), sum(queue.is_paused for queue in queues)
    pauses = ngettext("%(number)s queue paused", "%(number)s queues paused", paused) % {"number": paused}
    of_slots = ngettext("of %(number)s slot", "of %(number)s slots", slots)
    return [
        Tile(_("queued"), _jobs(total(queue.queued for queue in queues), links, Status.QUEUED)),
        Tile(_("oldest waiting"), Cell(brief(max(ages)) if ages else "-", note=pauses if paused else "")),
        Tile(
            _("running"),
            _jobs(running, links, Status.RUNNING)._replace(note=of_slots % {"number": whole(slots)}),
        ),
        Tile(
            _("workers alive"),
            Cell(
                str(len(commands)),
                links.to_list("worker"),
                "" if workers else "bad",
                ngettext("%(number)s process", "%(number)s processes", len(workers)) % {"number": len(workers)},
            ),
        ),
        Tile(_("succeeded in the last hour"), _done(hour)),
        Tile(_("succeeded in the last day"), _done(day)),
        Tile(_("dead"), Cell(str(dead), links.to_causes() if dead.value else "")),
    ]


def _row(queue: QueueLine, pace: QueuePace, links: Links) -> QueueRow:
    wait = pace.hour.wait_seconds(LATE)
    return QueueRow(
        Cell(queue.name, links.to_row("queue", queue.name)),
        pause_of(queue.row) if queue.is_paused else "",
        [
            _jobs(queue.queued, links, Status.QUEUED, queue.name),
            _jobs(queue.scheduled, links, Status.SCHEDULED, queue.name),
            _jobs(queue.waiting, links, Status.WAITING, queue.name),
            _jobs(queue.running, links, Status.RUNNING, queue.name),
            _dead(queue.dead, links, queue.name),
            Cell("-" if queue.oldest_seconds is None else brief(queue.oldest_seconds)),
            _drain(queue, pace),
            _done(pace.hour.counts),
            _done(pace.day),
            Cell("-" if wait is None else duration(wait)),
            Cell(str(queue.workers), links.to_list("worker"), "bad" if queue.is_unserved else ""),
        ],
    )


def _urgency(queue: QueueLine) -> tuple[int, str]:
    return -(queue.queued.value + queue.waiting.value + queue.running.value), queue.name


def _jobs(number: BoundedCount, links: Links, status: str, queue: str = "") -> Cell:
    return Cell(str(number), links.to_jobs(status, queue) if number.may_be_some else "")


def _dead(number: BoundedCount, links: Links, queue: str) -> Cell:
    return Cell(str(number), links.to_list("deadjob", queue=queue) if number.value else "")


def _drain(queue: QueueLine, pace: QueuePace) -> Cell:
    if not queue.queued.value:
        return Cell("-")
    if pace.drain_seconds is None:
        return Cell(_("paused")) if queue.is_paused else Cell(_("stalled"), kind="warning")
    return Cell(brief(pace.drain_seconds))


def _done(counts: throughput.StatsCounts) -> Cell:
    rate = counts.failure_rate
    failed = _("%(percent)s %% failed") % {"percent": short(PERCENT * rate, 2)} if rate else ""
    return Cell(whole(counts.succeeded), kind="bad" if counts.is_failing else "", note=failed)
