from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django.contrib import admin, messages
from django.core.exceptions import BadRequest
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.utils.html import format_html
from django.utils.translation import gettext, pgettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgqueue import queues
from django_pgqueue.admin.actions import ActionsAdmin, AdminAction
from django_pgqueue.admin.base import NUL, ReadOnlyAdmin
from django_pgqueue.admin.charts import STYLES, throughput_chart
from django_pgqueue.admin.databases import PRESERVED, is_elsewhere
from django_pgqueue.admin.formatting import Column, label, linked, live_column, moment_of
from django_pgqueue.admin.forms import RATE, LimitsForm
from django_pgqueue.admin.links import Links
from django_pgqueue.admin.row_actions import PAUSE_QUEUES, RESTORE_LIMITS, RESUME_QUEUES
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import bounded, statement
from django_pgqueue.insights import throughput
from django_pgqueue.insights.formatting import brief, duration
from django_pgqueue.insights.overview import (
    PAUSED,
    BoundedCount,
    QueueLine,
    QueuePace,
    is_restorable,
    limits_of,
    limits_of_code,
    limits_source,
    lines_of,
    paces,
    pause_of,
)
from django_pgqueue.insights.throughput import LATE
from django_pgqueue.models import Queue
from django_pgqueue.states import LONGEST_QUEUE

NUMBERS = ("queued", "scheduled", "limited", "running", "dead")
PACE = ("oldest", "empty_in", "p95_wait", "workers")
TILES = (*NUMBERS, *PACE[:-1], "p95_run", *PACE[-1:])

LIMIT = "limit_queue"  # permission

MOST_NEW = 100  # queues without a row that the list names


class Cell(NamedTuple):
    """A number, and the list of the counted rows."""

    text: str
    address: str = ""
    kind: str = ""  # for the stylesheet: bad, warning
    note: str = ""
    label: str = ""  # of a tile


def cells_of(line: QueueLine, pace: QueuePace, links: Links) -> dict[str, Cell]:
    """Return the figures of a queue that the list of queues shows, and the overview."""
    return {
        **{status: jobs_cell(getattr(line, status), links, status, line.name) for status in NUMBERS[1:-1]},
        "queued": _queued(line, links),
        "dead": Cell(str(line.dead), links.to_list("deadjob", queue=line.name) if line.dead.value else ""),
        "oldest": _oldest(line),
        "empty_in": _empty_in(line, pace),
        "wait": _share(pace.hour.wait_seconds(LATE)),
        "run": _share(pace.hour.run_seconds(LATE)),
        "workers": Cell(str(line.workers), links.to_list("worker"), "bad" if line.is_unserved else ""),
    }


def _queued(line: QueueLine, links: Links) -> Cell:
    cell = jobs_cell(line.queued, links, "queued", line.name)
    return cell._replace(text=line.queued_of_most, kind="bad" if line.is_full else "")


def _oldest(line: QueueLine) -> Cell:
    if line.oldest_seconds is None:
        return Cell("-")
    oldest, p99 = brief(line.oldest_seconds), "" if line.p99_seconds is None else brief(line.p99_seconds)
    return Cell(oldest, note=gettext("p99 %(time)s") % {"time": p99} if p99 not in ("", oldest) else "")


def jobs_cell(number: BoundedCount, links: Links, status: str, queue: str = "") -> Cell:
    return Cell(str(number), links.to_list("job", status=status, queue=queue) if number.may_be_some else "")


def _empty_in(line: QueueLine, pace: QueuePace) -> Cell:
    if not line.queued.value:
        return Cell("-")
    if pace.empty_in_seconds is None:
        return Cell(gettext("paused")) if line.is_paused else Cell(gettext("stalled"), kind="warning")
    return Cell(brief(pace.empty_in_seconds))


def _share(seconds: float | None) -> Cell:
    return Cell("-" if seconds is None else duration(seconds))


def figure(name: str, description: Any) -> Column:
    """Return a display method for one of the cells of a queue."""
    return live_column(name, description, lambda queue: linked(queue.cells[name].text, queue.cells[name].address))


def _state(queue: Any) -> str:
    if not queue.is_paused:
        return label("running", pgettext("a queue is", "open"))
    words = label("paused", gettext("paused")), pause_of(queue)
    return format_html('{} <span class="pgqueue-quiet">{}</span>', *words)


@admin.register(Queue)
class QueueAdmin(ReadOnlyAdmin, ActionsAdmin):
    """Queues: how many jobs they have, who has paused them and why, how they are limited."""

    form = LimitsForm
    actions = (PAUSE_QUEUES, RESUME_QUEUES, RESTORE_LIMITS)
    named_by = ()
    list_display = ("name", "state", *NUMBERS, *PACE, "limits")
    search_fields = ("name",)
    ordering = ("name",)
    fieldsets = (
        (None, {"fields": ("name", "state", "created_time")}),
        (_("Limits"), {"fields": ("max_running", "rate_limit", "rate_period_seconds", "rate_burst", "source")}),
    )
    readonly_fields = ("name", "state", "created_time", "source")

    class Media:
        css = {"all": STYLES}

    created_time = moment_of("created_at", _("first seen"))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the user sees queues and may limit them."""
        return self.may(request, LIMIT)

    def keys(self, texts: Iterable[str]) -> list[str]:
        names = list(dict.fromkeys(texts))
        if any(not 0 < len(name) <= LONGEST_QUEUE or "\0" in name for name in names):
            raise BadRequest("A queue's name has 1 to 128 characters.")
        return names

    def offers(self, action: AdminAction, row: Any) -> bool:
        makes_sense: dict[AdminAction, bool] = {RESUME_QUEUES: row.is_paused, RESTORE_LIMITS: is_restorable(row)}
        return makes_sense.get(action, True)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        queues: QuerySet[Any] = super().get_queryset(request).annotate(is_paused=PAUSED)
        return queues

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return a queue; one that is not stored where no worker has served it yet, but jobs are in it."""
        if found := super().get_object(request, object_id, from_field):
            return found
        if NUL in object_id or from_field or not lines_of([object_id], conf.database_here)[0].is_known:
            return None
        queue: Any = Queue(name=object_id)  # as it is: Django has unquoted it already
        queue.is_paused = False
        return queue

    def _named(self, ids: Sequence[Any]) -> list[Model]:
        """Return queues by their names, also those that no worker has served yet."""
        named = {queue.pk: queue for queue in super()._named(ids)}
        missing = [name for name in ids if name not in named]
        new = lines_of(missing, conf.database_here) if missing else ()
        named |= {line.name: Queue(name=line.name) for line in new if line.is_known}
        return [named[name] for name in ids if name in named]

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist, links = super().get_changelist_instance(request), self.links(request)
        new = CallerConnection().rows(statement("unregistered_queues"), {"limit": MOST_NEW})
        changelist.new_queues = [(name, links.to_row("queue", name)) for (name,) in sorted(new)]
        return changelist

    def complete(self, queues: list[Any], links: Links) -> None:
        lines = lines_of([queue.name for queue in queues], conf.database_here)
        pace = paces(lines, conf.database_here)
        cells = {line.name: cells_of(line, pace[line.name], links) for line in lines}
        for queue in queues:
            queue.cells = cells[queue.name]

    def context_of(self, request: HttpRequest, queue: Any) -> dict[str, Any]:
        with bounded():
            self.complete([queue], self.links(request))
            series = throughput.per_minute(conf.database_here, queue=queue.name)[:-1]
        columns = [getattr(self, name) for name in TILES]
        return super().context_of(request, queue) | {
            "tiles": [(column.short_description, column(queue)) for column in columns],
            "charts": throughput_chart(series, name="hour", span=gettext("last hour"), minutes=1),
        }

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's
        """Set the limits by ``queues.limit``, which also notifies the workers; tokens stay if the rate does."""
        limits, by, wanted = form.cleaned_data, request.user.get_username(), dict[str, Any]()
        if "max_running" in form.changed_data:
            wanted["max_running"] = limits["max_running"]
        if RATE & set(form.changed_data):
            number, period = limits["rate_limit"], limits["rate_period_seconds"]
            wanted |= {"rate": number and f"{number}/{period!r}s", "burst": limits["rate_burst"]}
        if wanted:  # otherwise limits of the code would be taken for some that were set by hand
            queues.limit(obj.pk, **wanted, by=by, database=conf.database_here)

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        """Stay on another database: Django's own answer links to the queue of this name at home."""
        if not is_elsewhere():
            return super().response_change(request, obj)
        words = gettext("The limits of the queue %(name)s were changed.") % {"name": obj.pk}
        self.message_user(request, words, messages.SUCCESS)
        preserved = QueryDict(self.get_preserved_filters(request)).get(PRESERVED, "")
        back = self.address("changelist", query=preserved)
        return HttpResponseRedirect(request.get_full_path() if "_continue" in request.POST else back)

    state = live_column("state", _("state"), _state)
    queued = figure("queued", _("queued"))
    scheduled = figure("scheduled", _("scheduled"))
    limited = figure("limited", _("limited"))
    running = figure("running", _("running"))
    dead = figure("dead", _("dead"))
    oldest = figure("oldest", _("oldest"))
    empty_in = figure("empty_in", _("time to empty"))
    p95_wait = figure("wait", _("p95 wait"))
    p95_run = figure("run", _("p95 run"))
    workers = figure("workers", _("workers"))

    @admin.display(description=_("limits"))
    def limits(self, queue: Queue) -> str:
        source = limits_source(queue)
        if not source:
            return limits_of(queue) or "-"
        return format_html('{} <span class="pgqueue-quiet">{}</span>', limits_of(queue) or gettext("no limit"), source)

    @admin.display(description=pgettext_lazy("where limits are from", "set"))
    def source(self, queue: Queue) -> str:
        """Say who has set the limits, and what the code has where that is something else."""
        source = limits_source(queue)
        if not is_restorable(queue):
            return source or "-"
        words = gettext("%(source)s; this wins over the code, which has: %(limits)s")
        return words % {"source": source, "limits": limits_of_code(queue.name) or gettext("no limit")}
