from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import psycopg
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import Error
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgqueue.admin.base import QueueAdminBase, ReadOnlyAdmin, bounded_page
from django_pgqueue.admin.charts import STYLES, throughput_chart
from django_pgqueue.admin.databases import choices, showing
from django_pgqueue.admin.links import Links, crumbs
from django_pgqueue.admin.queues import NUMBERS, Cell, cells_of, jobs_cell
from django_pgqueue.conf import conf
from django_pgqueue.db.errors import one_line
from django_pgqueue.db.queries import TookTooLong, bounded
from django_pgqueue.doctor import NOT_LOOKED_AT, Finding, Level, findings
from django_pgqueue.insights import throughput
from django_pgqueue.insights.formatting import brief, grouped, short
from django_pgqueue.insights.overview import QueueLine, QueuePace, lines, living_workers, paces, pause_of, total
from django_pgqueue.insights.side_by_side import SideBySide
from django_pgqueue.models import Overview, Worker
from django_pgqueue.states import Status

MOST_SHOWN = 100
PERCENT = 100

COLUMNS = (*NUMBERS, "oldest", "empty_in", "hour", "day", "wait", "workers")

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

STATES = {"workflows-stuck": "stuck", "workflows-overdue": "overdue"}  # of the list of workflows, by the finding

SHOW = {
    "worker": gettext_lazy("Show workers"),
    "bulkaction": gettext_lazy("Show bulk actions"),
    "schedule": gettext_lazy("Show schedules"),
    "job": gettext_lazy("Show jobs"),
}


@admin.register(Overview)
class OverviewAdmin(ReadOnlyAdmin, QueueAdminBase):
    """One page: the health of the queue and its work."""

    class Media:
        css = {"all": ["django_pgqueue/overview.css", *STYLES]}

    def get_urls(self) -> list[URLPattern]:
        return [self.pattern("", "changelist", self.changelist_view)]

    @bounded_page
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        trail = crumbs(self.admin_site, self.opts)
        figures = self._shown(self.links(request), request)
        context = {"crumbs": trail, "databases": choices(request.path), **figures, **(extra_context or {})}
        return self.page(request, "overview", _("Overview"), **context)

    def _shown(self, links: Links, request: HttpRequest) -> dict[str, Any]:
        alias, others = conf.database_here, {one.alias: one.address for one in choices(request.path) if one.address}
        looks = SideBySide(list(others), _shard)
        workers = list(living_workers(alias))
        per_minute = throughput.per_minute(alias)
        per_quarter, by_queue = throughput.of_day(alias)
        try:
            with bounded(alias):
                queues, is_counted = lines(alias, workers), True
        except TookTooLong:
            queues, is_counted = [], False
        found = [_finding_row(finding, links) for finding in findings(alias, queues=queues)]
        shards = [_told(look, name, others[name]) for name, look in looks.results().items()]
        found += [_shard_finding(finding, shard, links) for shard in shards for finding in shard.findings]
        found.sort(key=lambda row: row["finding"].level is not Level.ERROR)
        hour, day = throughput.total(per_minute), throughput.total(per_quarter)
        return {
            "verdict": _verdict(found, is_counted=is_counted),
            "level": found[0]["finding"].level if found else "good" if is_counted else Level.WARNING,
            "findings": found,
            "is_counted": is_counted,
            "seconds": conf.read_timeout_seconds,
            "tiles": _tiles(queues, workers, hour, day, links) if is_counted else [],
            **_rows(queues, alias, by_queue, links),
            "shards": shards,
            "charts": [
                *throughput_chart(per_minute[:-1], name="hour", span=_("last hour"), minutes=1),
                *throughput_chart(per_quarter[:-1], name="day", span=_("last day"), minutes=throughput.QUARTER),
            ],
        }


def _verdict(found: Sequence[Any], *, is_counted: bool) -> str:
    if found:
        return ngettext("%(number)s finding", "%(number)s findings", len(found)) % {"number": len(found)}
    return _("All is well.") if is_counted else _("Nothing was found, but not everything was seen.")


def _rows(
    queues: Sequence[QueueLine], alias: str, day: Mapping[str, throughput.StatsCounts], links: Links
) -> dict[str, Any]:
    pace = paces(queues, alias, day=day)
    shown = sorted(queues, key=_urgency)[:MOST_SHOWN]
    return {
        "rows": [_queue_row(queue, pace[queue.name], links) for queue in sorted(shown, key=lambda queue: queue.name)],
        "more": len(queues) - len(shown),
        "all_queues": links.to_list("queue"),
    }


class Shard(NamedTuple):
    """A database that holds a queue, other than the one that the page is for."""

    name: str
    address: str
    findings: list[Finding]
    cells: list[Cell]  # none if it does not answer


def _shard(alias: str) -> Shard:
    workers = list(living_workers(alias))
    with bounded(alias):
        queues = lines(alias, workers)
    found = findings(alias, queues=queues)
    cells = [
        *(Cell(str(total(getattr(queue, status) for queue in queues))) for status in NUMBERS),
        _oldest_of(queues),
        Cell(str(len(workers)), kind="" if workers else "bad"),
    ]
    return Shard(alias, "", found, cells)


def _told(look: Shard | Exception, alias: str, address: str) -> Shard:
    if isinstance(look, Error | psycopg.Error | TookTooLong):
        return Shard(alias, address, [_away(look)], [])
    if isinstance(look, Exception):
        raise look
    return look._replace(address=address)


def _away(error: Exception) -> Finding:
    return Finding(
        name=NOT_LOOKED_AT,
        level=Level.ERROR,
        what=one_line(error.__cause__ or error),
        remedy=_("Look at the server, and at this alias in DATABASES."),
    )


def _shard_finding(finding: Finding, shard: Shard, links: Links) -> dict[str, Any]:
    """Return a finding that names its database, with links to there."""
    words = _("On the database %(database)s: %(what)s") % {"database": shard.name, "what": finding.what}
    with showing(shard.name):
        return _finding_row(replace(finding, what=words), links)


def _oldest_of(queues: Sequence[QueueLine]) -> Cell:
    """Return the age of the oldest job that could run and does not; those of paused queues may not."""
    ages = [queue.oldest_seconds for queue in queues if queue.oldest_seconds is not None and not queue.is_paused]
    return Cell(brief(max(ages)) if ages else "-")


def _finding_row(finding: Finding, links: Links) -> dict[str, Any]:
    words, address = _page_of(finding, links)
    return {"finding": finding, "words": words, "address": address}


def _page_of(finding: Finding, links: Links) -> tuple[Any, str]:
    """Return what a link from a finding says, and its address; without one there is no link."""
    if finding.name == "failing":
        return _("Show dead jobs by cause"), links.to_causes()
    if queues := finding.facts.get("queues"):
        if len(queues) == 1:
            return _("Show queue"), links.to_row("queue", queues[0])
        return _("Show queues"), links.to_list("queue")
    if workflows := finding.facts.get("workflows"):
        return _page_of_workflows(workflows, STATES.get(finding.name, "open"), links)
    if model := PAGES.get(finding.name):
        return SHOW[model], links.to_list(model)
    return "", ""


def _page_of_workflows(ids: Sequence[int], status: str, links: Links) -> tuple[Any, str]:
    if len(ids) == 1:
        return _("Show workflow"), links.to_row("workflow", ids[0])
    return _("Show workflows"), links.to_list("workflow", status=status)


def _tiles(
    queues: Sequence[QueueLine],
    workers: Sequence[Worker],
    hour: throughput.StatsCounts,
    day: throughput.StatsCounts,
    links: Links,
) -> list[Cell]:
    slots = sum(worker.concurrency for worker in workers)
    commands = {worker.supervisor_id for worker in workers}
    dead = total(queue.dead for queue in queues)
    running = total(queue.running for queue in queues)
    paused = sum(queue.is_paused for queue in queues)
    pauses = ngettext("%(number)s queue paused", "%(number)s queues paused", paused) % {"number": paused}
    of_slots = ngettext("of %(number)s slot", "of %(number)s slots", slots) % {"number": grouped(slots)}
    processes = ngettext("%(number)s process", "%(number)s processes", len(workers)) % {"number": len(workers)}
    return [
        jobs_cell(total(queue.queued for queue in queues), links, Status.QUEUED)._replace(label=_("queued")),
        _oldest_of(queues)._replace(note=pauses if paused else "", label=_("oldest waiting")),
        jobs_cell(running, links, Status.RUNNING)._replace(note=of_slots, label=_("running")),
        Cell(
            str(len(commands)),
            links.to_list("worker"),
            kind="" if workers else "bad",
            note=processes,
            label=_("workers alive"),
        ),
        _done(hour)._replace(label=_("succeeded in the last hour")),
        _done(day)._replace(label=_("succeeded in the last day")),
        Cell(str(dead), links.to_causes() if dead.value else "", label=_("dead")),
    ]


def _queue_row(queue: QueueLine, pace: QueuePace, links: Links) -> dict[str, Any]:
    cells = cells_of(queue, pace, links) | {"hour": _done(pace.hour.counts), "day": _done(pace.day)}
    return {
        "queue": Cell(queue.name, links.to_row("queue", queue.name)),
        "pause": pause_of(queue.row) if queue.is_paused else "",
        "cells": [cells[name] for name in COLUMNS],
    }


def _urgency(queue: QueueLine) -> tuple[int, str]:
    return -(queue.queued.value + queue.limited.value + queue.running.value), queue.name


def _done(counts: throughput.StatsCounts) -> Cell:
    rate = counts.failure_rate
    failed = _("%(percent)s %% failed") % {"percent": short(PERCENT * rate, 2)} if rate else ""
    return Cell(grouped(counts.succeeded), kind="bad" if counts.is_failing else "", note=failed)
