"""Workflows: which are stuck, how far each is, and what staff can do about it."""

import contextlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, SEARCH_VAR
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db.models import BooleanField, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.translation import gettext, ngettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.actions import ActionsAdmin, AdminAction
from django_pgqueue.admin.base import NUL, ReadOnlyAdmin, bounded_page
from django_pgqueue.admin.changelist import KeysetList, list_database
from django_pgqueue.admin.databases import located, search_of_key
from django_pgqueue.admin.filters import ChoiceFilter, NameFilter
from django_pgqueue.admin.formatting import Renderer, exact_moment, label, linked, live_column, moment, pretty_json
from django_pgqueue.admin.keyset import NEWEST, IndexOrder, Route, is_integer
from django_pgqueue.admin.links import Links
from django_pgqueue.admin.workflow_actions import (
    KILL_WORKFLOWS,
    RETRY_WORKFLOWS,
    STAGE_ACTIONS,
    can_be_done,
    is_open,
)
from django_pgqueue.admin.workflow_graph import Bar, Graph, bar_of, graph_of
from django_pgqueue.conf import conf
from django_pgqueue.db.queries import bounded
from django_pgqueue.insights.formatting import Sentence, at_most, brief
from django_pgqueue.insights.workflow_info import (
    MOST_ALARMS,
    MOST_NAMED,
    StageLine,
    WorkflowLine,
    alarms,
    children_of,
    has_dead_members,
    line_of,
    lines_of,
    why,
    workflow_ref,
)
from django_pgqueue.jobs.redaction import shown_by_name
from django_pgqueue.models import Stage, Workflow
from django_pgqueue.states import OnDeath, StageStatus, WorkflowStatus
from django_pgqueue.stored_values import seconds_between
from django_pgqueue.workflows.records import STAGES_OF_ONE, workflow_id_of

MOST_BARS = 8  # of a workflow, in the list
MOST_STAGES = 500  # that the page of one shows
MOST_CHILDREN = 20
BAR = 64  # pixels

STUCK, OVERDUE = "stuck", "overdue"

BY_DEADLINE = IndexOrder(("deadline_at", "id"), ("deadline_at", "id"))

IS_STUCK = RawSQL(
    "EXISTS (SELECT FROM pgqueue_stuck_stages(pgqueue_workflows.id << 16, pgqueue_workflows.id + 1 << 16, NULL))",
    (),
    BooleanField(),
)


class StateFilter(ChoiceFilter):
    title, parameter_name = _("status"), "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        first, *ended = [(status.value, status.label) for status in WorkflowStatus]
        return [first, (STUCK, _("stuck")), (OVERDUE, _("overdue")), *ended]


class WorkflowNameFilter(NameFilter):
    """Reads pgqueue_workflows_name."""

    title, parameter_name, query = _("name"), "name", "workflow_names"


class WorkflowList(KeysetList):
    looked_words = _("Searched the workflows %(first)s to %(last)s.")
    looked_to_end = _("Searched the workflows from %(first)s to the end.")
    further_words = _("Search older workflows")


class StageBar(NamedTuple):
    stage: StageLine
    bar: Bar

    @property
    def number(self) -> str:
        if self.stage.status == StageStatus.SKIPPED:
            return gettext("skipped")
        return self.stage.short_text


def state_label(line: WorkflowLine) -> str:
    """Return the status in the colours of the stylesheet; what needs people is said first."""
    row = line.row
    if line.is_stuck:
        return label("exhausted", gettext("stuck"))
    if line.is_overdue(timezone.now()):
        return label("paused", gettext("overdue"))
    if row.status == WorkflowStatus.KILLED and row.ended_by:
        return label("lost", gettext("killed by %(name)s") % {"name": row.ended_by})
    kinds = {WorkflowStatus.OPEN: "running", WorkflowStatus.SUCCEEDED: "succeeded", WorkflowStatus.KILLED: "lost"}
    return label(kinds.get(WorkflowStatus(row.status), "exhausted"), row.get_status_display())


def _bars(line: WorkflowLine) -> str:
    bars = [StageBar(stage, bar_of(stage, BAR)) for stage in line.stages]
    return render_to_string("admin/pgqueue/workflow/bars.html", {"bars": bars, "has_more": line.has_more})


@admin.register(Workflow)
class WorkflowAdmin(ReadOnlyAdmin, ActionsAdmin):
    """Workflows, the newest first."""

    actions = (RETRY_WORKFLOWS, KILL_WORKFLOWS)
    named_by = ("name",)
    heavy = ("context",)
    lookups = ("status", "name")
    list_display = ("workflow", "state", "stages", "begun", "deadline", "parent")
    list_display_links = None
    list_filter = (StateFilter, WorkflowNameFilter)
    list_per_page = list_max_show_all = 50
    ordering = ("-id",)
    search_help_text = _("An id, or a whole unique key.")
    change_list_template = "admin/pgqueue/workflow/change_list.html"
    change_form_template = "admin/pgqueue/workflow/change_form.html"
    fieldsets = ((None, {"fields": ()}),)

    class Media:
        css = {"all": ["django_pgqueue/workflows.css"]}

    state = live_column("state", _("state"), lambda row: state_label(row.line))
    stages = live_column("stages", _("stages"), lambda row: _bars(row.line))
    begun = live_column("begun", _("begun"), lambda row: moment(row.begun_at))
    deadline = live_column("deadline", _("deadline"), lambda row: moment(row.deadline_at))

    @admin.display(description=_("workflow"))
    def workflow(self, row: Any) -> str:
        key = format_html(' <div class="pgqueue-quiet">{}</div>', row.unique_key) if row.unique_key else ""
        return format_html('<a href="{}">{}</a>{}', self.address("change", row.pk), row, key)

    @admin.display(description=pgettext_lazy("of a workflow", "parent"))
    def parent(self, row: Any) -> str:
        if row.parent_stage_id is None:
            return "-"
        parent_id = workflow_id_of(row.parent_stage_id)
        return linked(f"#{parent_id}", self.address("change", parent_id))

    # List

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[WorkflowList]:
        return WorkflowList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Bound the statements on a replica too."""
        alias = list_database(request)
        with contextlib.nullcontext() if alias == conf.database_here else bounded(alias):
            return super().changelist_view(request, {"alarms": self._alarms, **(extra_context or {})})

    def _alarms(self) -> Iterator[tuple[str, str]]:
        """Yield what needs people: words, and the address of the list. The template calls it, where it is bounded."""
        found = alarms(conf.replica_here)
        stuck = ngettext("%(number)s workflow is stuck", "%(number)s workflows are stuck", found.stuck)
        overdue = ngettext("%(number)s workflow is overdue", "%(number)s workflows are overdue", found.overdue)
        for status, words, number in ((STUCK, stuck, found.stuck), (OVERDUE, overdue, found.overdue)):
            if number:
                number_text = at_most(number, MOST_ALARMS)
                yield words % {"number": number_text}, self.address("changelist", query=urlencode({"status": status}))

    def route(self, request: HttpRequest) -> Route:
        """Read along the index of what narrows the list the most; a second condition is looked for in a window."""
        given = {name: request.GET.get(name, "") for name in self.lookups}
        status, name, term = given["status"], given["name"], request.GET.get(SEARCH_VAR, "").strip()
        if NUL in name + term or status not in {"", STUCK, OVERDUE, *WorkflowStatus}:
            raise IncorrectLookupParameters
        of_name = Q(name=name) if name else Q()
        if term:
            return self._searched(term, of_name & _of_status(status), list_database(request))
        if status == OVERDUE:
            return Route(BY_DEADLINE, _of_status(OVERDUE), of_name or None)
        if name:
            return Route(NEWEST, of_name, _of_status(status) or None)
        if status == STUCK:
            return Route(NEWEST, Q(status=WorkflowStatus.OPEN), _of_status(STUCK))
        return Route(NEWEST, _of_status(status))

    def _searched(self, term: str, narrowed: Q, alias: str) -> Route:
        """Find the open workflow with a key by its index; those that have ended are looked for."""
        if is_integer(term) and Workflow.objects.using(alias).filter(pk=int(term)).exists():
            return Route(NEWEST, Q(pk=int(term)) & narrowed)
        holder = Q(unique_key=term, status=WorkflowStatus.OPEN)
        if Workflow.objects.using(alias).filter(holder).exists():
            return Route(NEWEST, holder & narrowed)
        return Route(NEWEST, Q(), Q(unique_key=term) & narrowed)

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Have the search box shown; the route reads its text."""
        return ("=id",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        return queryset, False

    def elsewhere(self, request: HttpRequest, query: str) -> list[tuple[str, str]]:
        return search_of_key(request, self.model, query)

    def complete(self, rows: list[Any], links: Links) -> None:
        for line in lines_of(rows, conf.replica_here, most_stages=MOST_BARS):
            line.row.line = line  # type: ignore[attr-defined]

    # Page

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        return super().get_object(request, object_id, from_field) if is_integer(object_id) else None

    def offers(self, action: AdminAction, row: Any) -> bool:
        if action is KILL_WORKFLOWS:
            return is_open(row)
        return has_dead_members(row.line, conf.database_here)

    def context_of(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        row.line = line_of(row, conf.database_here, most_stages=MOST_STAGES)
        return super().context_of(request, row) | {
            "page": WorkflowPage(self, request, row.line),
            "title": str(row),
            "subtitle": "",
        }

    @bounded_page
    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show what staff did to a workflow and to its stages."""
        if not self.has_view_permission(request):  # Django looks for the row first, and reveals whether it is there
            raise PermissionDenied
        first = int(object_id) * STAGES_OF_ONE if is_integer(object_id) else 0
        stages = Stage.objects.using(conf.database_here).filter(pk__gte=first, pk__lt=first + STAGES_OF_ONE)
        ids = [str(stage_id) for stage_id in stages.order_by("pk").values_list("pk", flat=True)[:MOST_STAGES]]
        types = ContentType.objects.get_for_models(Workflow, Stage)
        entries = LogEntry.objects.filter(
            Q(content_type=types[Workflow], object_id=object_id) | Q(content_type=types[Stage], object_id__in=ids)
        ).select_related("user")
        page = self.get_paginator(request, entries.order_by("action_time"), self.list_per_page).get_page(
            request.GET.get(PAGE_VAR)
        )
        return super().history_view(request, object_id, {"action_list": page, **(extra_context or {})})


def _of_status(status: str) -> Q:
    if status == OVERDUE:
        return Q(status=WorkflowStatus.OPEN, deadline_at__lte=Now())
    if status == STUCK:
        return Q(status=WorkflowStatus.OPEN, on_death=OnDeath.WAIT) & Q(IS_STUCK)
    return Q(status=status) if status else Q()


class StageRow(NamedTuple):
    """A line of the table of stages."""

    stage: StageLine
    status: str
    opens: str
    done: str  # numbers, with links to the lists of these jobs
    live: str
    dead: str
    since: str
    buttons: list[tuple[AdminAction, str]]  # with addresses


Fact = tuple[str, str]


class WorkflowPage:
    """The parts of ``workflow/change_form.html``. All values of the workflow are text in it, never markup."""

    def __init__(self, admin: WorkflowAdmin, request: HttpRequest, line: WorkflowLine) -> None:
        self.admin, self.request, self.line, self.row = admin, request, line, line.row
        self.links = admin.links(request)
        self.renderer = Renderer(self.links, str)

    def why(self) -> list[tuple[str, Sentence]]:
        return [(self.renderer.sentence(one), one) for one in why(self.line, conf.database_here)]

    def facts(self) -> Iterator[Fact]:
        row = self.row
        yield gettext("Status"), state_label(self.line)
        yield gettext("Id"), format_html('<code class="pgqueue-copy">{}</code>', row.pk)
        yield gettext("Begun"), exact_moment(row.begun_at)
        if row.ended_at is not None:
            yield gettext("Ended"), exact_moment(row.ended_at)
        yield gettext("Took") if row.ended_at else gettext("Age"), brief(self._age)
        if row.deadline_at is not None:
            yield gettext("Deadline"), exact_moment(row.deadline_at)
        yield gettext("When a member dies"), row.get_on_death_display()
        if row.unique_key:
            yield gettext("Unique key"), format_html("<code>{}</code>", row.unique_key)
        yield from self._family()

    @property
    def _age(self) -> float:
        return seconds_between(self.row.begun_at, self.row.ended_at or timezone.now())

    def _family(self) -> Iterator[Fact]:
        if self.row.parent_stage_id is not None:
            parent_id = workflow_id_of(self.row.parent_stage_id)
            parent = Workflow.objects.using(conf.database_here).only("pk", "name").filter(pk=parent_id).first()
            words = self.renderer.ref(workflow_ref(parent)) if parent else f"#{parent_id}"
            yield gettext("Awaited by workflow"), words
        children = list(
            children_of(self.row.pk, conf.database_here)
            .only("pk", "name", "status")
            .order_by("-pk")[: MOST_CHILDREN + 1]
        )
        if children:
            links = [
                (self.renderer.ref(workflow_ref(one)), one.get_status_display()) for one in children[:MOST_CHILDREN]
            ]
            text = format_html_join(", ", "{} ({})", links)
            more = len(children) > MOST_CHILDREN
            yield gettext("Workflows of its members"), format_html("{}, …", text) if more else text

    @cached_property
    def graphs(self) -> list[Graph]:
        """Return the drawing for wide and for narrow screens; the stylesheet shows one."""
        if not self.line.stages:
            return []
        return [graph_of(self.line.stages, is_tall=is_tall) for is_tall in (False, True)]

    def stages(self) -> list[StageRow]:
        return [self._stage(stage) for stage in self.line.stages]

    @property
    def more_stages(self) -> str:
        return gettext("There are more; these are the first ones.") if self.line.has_more else ""

    @property
    def context(self) -> str:
        return pretty_json(shown_by_name(self.row.context)) if self.row.context else ""

    def _stage(self, stage: StageLine) -> StageRow:
        to_list = self.links.to_list
        return StageRow(
            stage,
            _stage_label(stage),
            self._opens(stage),
            linked(stage.done_text, to_list("succeededjob", stage=stage.id)) if stage.done else stage.done_text,
            linked(stage.live_text, to_list("job", stage=stage.id)) if stage.live else "0",
            linked(stage.dead_text, to_list("deadjob", stage=stage.id)) if stage.dead else "0",
            moment(stage.ended_at or stage.opened_at),
            self._buttons(stage),
        )

    def _opens(self, stage: StageLine) -> str:
        names = self.line.names_before(stage)
        if not names:
            return gettext("opens at once") if stage.status != StageStatus.BLOCKED else ""
        words = {
            "succeeded": gettext("opens when %(stages)s succeeded"),
            "ended": gettext("opens when %(stages)s ended, either way"),
            "died": gettext("opens if a member of %(stages)s died"),
        }[stage.opens_when]
        return words % {"stages": ", ".join([*names[:MOST_NAMED], *(["…"] if len(names) > MOST_NAMED else [])])}

    def _buttons(self, stage: StageLine) -> list[tuple[AdminAction, str]]:
        return [(action, address) for action, address in self._stage_actions if can_be_done(action, stage, self.row)]

    @cached_property
    def _stage_actions(self) -> list[tuple[AdminAction, str]]:
        """Return the actions on stages that this user may do; none on a site that has not registered their admin."""
        may = [one for one in STAGE_ACTIONS if self.admin.may(self.request, one.permission)]
        try:
            site = self.admin.admin_site.name
            return [(one, located(reverse(f"admin:pgqueue_stage_{one.name}", current_app=site))) for one in may]
        except NoReverseMatch:
            return []


def _stage_label(stage: StageLine) -> str:
    kinds = {StageStatus.BLOCKED: "scheduled", StageStatus.OPEN: "running", StageStatus.ENDED: "succeeded"}
    status = StageStatus(stage.status)
    words = str(status.label)
    if stage.is_killed:
        return label("lost", gettext("killed by %(name)s") % {"name": stage.killed_by or gettext("a user")})
    if not stage.is_sealed and not stage.is_over:
        words = gettext("%(status)s, not sealed") % {"status": words}
    return label(kinds.get(status, "limited"), words)
