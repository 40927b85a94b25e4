"""Lists that cost the same for a table of any size.

Every page is read along an index, counting stops at ``CAP``, and what the address bar may ask for is a closed list.
"""

import json
from typing import Any

from django.contrib import messages
from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin.databases import DATABASE, is_elsewhere, located
from django_pgqueue.admin.formatting import to_the_second
from django_pgqueue.admin.keyset import LAST, BadCursor, Route, Window, instant_of, page_of, window_of
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.insights.formatting import grouped
from django_pgqueue.models import DeadJob, Job, SucceededJob, Workflow

CAP = 10_000
READING = {"GET", "HEAD"}

MOST_CHOICES = 100
MOST_CHECKED = 1000  # rows that are checked again: whether the value they were found by may be seen

AFTER, BEFORE, BELOW = "after", "before", "below"
CURSORS = (AFTER, BEFORE, BELOW)

NOTHING: dict[type[Model], tuple[Any, Any]] = {
    Job: (gettext_lazy("No jobs match."), gettext_lazy("There are no jobs.")),
    DeadJob: (gettext_lazy("No dead jobs match."), gettext_lazy("There are no dead jobs.")),
    SucceededJob: (gettext_lazy("No succeeded jobs match."), gettext_lazy("There are no succeeded jobs.")),
    Workflow: (gettext_lazy("No workflows match."), gettext_lazy("There are no workflows.")),
}


class CappedPaginator(Paginator):  # type: ignore[type-arg]  # generic for the type checker only
    """Counts to ``CAP`` and no further; pages end there too."""

    @cached_property
    def count(self) -> int:
        return min(self._counted, CAP)

    @property
    def is_capped(self) -> bool:
        return self._counted > CAP

    @cached_property
    def _counted(self) -> int:
        """Count in the order of the list: the count then reads the same index as the page."""
        jobs: Any = self.object_list
        counted: int = jobs[: CAP + 1].count()
        return counted


class JobList(ChangeList):
    """Ignores orders from the address bar, leaves heavy columns unread, and lets the admin complete a page."""

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        return list(self.model_admin.get_ordering(request))

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        return super().get_queryset(request, exclude_parameters).defer(*self.model_admin.heavy)  # type: ignore[attr-defined]

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = list(self.result_list)
        if not self.query or is_elsewhere():  # else the search form speaks of results, with a link to all at home
            self.full_result_count = self.result_count
        self._complete(request)

    def _complete(self, request: HttpRequest) -> None:
        model_admin: Any = self.model_admin
        model_admin.complete(self.result_list, model_admin.links(request))

    def get_filters_params(self, params: Any = None) -> Any:
        """Leave out the database, which is none of the filters."""
        found = super().get_filters_params(params)
        if len(conf.databases) > 1:
            found.pop(DATABASE, None)
        return found

    def url_for_result(self, result: Any) -> str:
        return located(super().url_for_result(result))


class KeysetList(JobList):
    """Pages by keys instead of numbers, and looks through a window for what no index finds."""

    is_keyset = True  # for the template
    looked = ""  # the window that was searched, in words; empty where an index has found all
    further = ""  # address of the next window
    looked_words: Any = gettext_lazy("Searched the jobs %(first)s to %(last)s.")
    looked_to_end: Any = gettext_lazy("Searched the jobs from %(first)s to the end.")
    further_words: Any = gettext_lazy("Search older jobs")

    def get_filters_params(self, params: Any = None) -> Any:
        """Leave out where the page begins: links to filters begin at the beginning."""
        for name in CURSORS:
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        return super().get_filters_params(params)

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        self.root_queryset = self.root_queryset.using(list_database(request))
        rows = super().get_queryset(request, exclude_parameters)
        self.route: Route = self.model_admin.route(request)  # type: ignore[attr-defined]
        self.begins, self.is_astray = self._begins(request)
        self.window: Window | None = None
        rows = rows.filter(self.route.base).order_by(*self.route.along.order)
        return rows if self.route.rest is None else self._within_window(rows)

    def _begins(self, request: HttpRequest) -> tuple[dict[str, str], bool]:
        begins = {name: request.GET.get(name, "") for name in CURSORS}
        try:
            for name, key in begins.items():
                if key and (name, key) != (BEFORE, LAST):
                    self.route.along.behind(key)
        except BadCursor:
            return dict.fromkeys(CURSORS, ""), True
        return begins, False

    def _within_window(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        along, below = self.route.along, self.begins[BELOW]
        self.window = window_of(rows, along, below)
        if self.window is None:
            return rows.none()
        if below:
            rows = rows.filter(along.behind(below))
        if not self.window.is_all:
            rows = rows.filter(along.down_to(self.window.last))
        rows = rows.filter(self.route.rest)
        return rows if self.route.shown is None else self._seen(rows)

    def _seen(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Leave out jobs found by a value that must not be shown; the window ends after too many of them."""
        keyed = self.route.along.keyed(rows.defer(None)).only("pk", "task", "args", "kwargs")
        found = list(keyed[: MOST_CHECKED + 1])
        if len(found) > MOST_CHECKED and self.window:
            found = found[:MOST_CHECKED]
            self.window = self.window._replace(last=found[-1].cursor_key)
        return rows.filter(pk__in=[row.pk for row in found if self.route.shown and self.route.shown(row)])

    def get_results(self, request: HttpRequest) -> None:
        after, before = self.begins[AFTER], self.begins[BEFORE]
        page = page_of(self.queryset, self.route.along, self.list_per_page, after=after, before=before)
        if self.is_astray:
            messages.warning(request, _("The address does not say where that page begins. This is the first one."))
        self.paginator: Any = self.model_admin.get_paginator(request, self.queryset, self.list_per_page)
        self.result_list = page.rows
        self.result_count = self.full_result_count = self.paginator.count
        self.show_full_result_count = self.can_show_all = self.multi_page = False
        self.show_admin_actions = True
        model_admin: Any = self.model_admin
        is_in_vain = self.query and not self.result_list
        self.elsewhere = model_admin.elsewhere(request, self.query) if is_in_vain else []
        self.page_num = 1
        self.links: dict[str, str] = {}
        if page.has_previous:
            self.links |= {"first": self._address(), "previous": self._address(**{BEFORE: page.rows[0].cursor_key})}
        if page.has_next:
            last = self._address(**{BEFORE: LAST})
            self.links |= {"next": self._address(**{AFTER: page.rows[-1].cursor_key}), "last": last}
        self._tell_window()
        self._complete(request)

    @property
    def counted(self) -> str:
        rows = self.opts.verbose_name if self.result_count == 1 else self.opts.verbose_name_plural
        more = "+" if self.paginator.is_capped else ""
        return f"{grouped(self.result_count)}{more} {rows}"

    @property
    def nothing(self) -> str:
        if self.window is not None and not self.window.is_all:
            return _("No matches here.")
        no_match, none = NOTHING[self.model]
        return str(no_match if self.query or self.has_active_filters else none)

    def _address(self, **cursor: str) -> str:
        window = {BELOW: self.begins[BELOW]} if self.begins[BELOW] else {}
        return self.get_query_string(window | cursor)

    def _tell_window(self) -> None:
        if self.window is None or (self.window.is_all and not self.begins[BELOW]):
            return
        first = _end(self.window.first)
        if self.window.is_all:
            self.looked = str(self.looked_to_end) % {"first": first}
            return
        self.looked = str(self.looked_words) % {"first": first, "last": _end(self.window.last)}
        self.further = self._address(**{BELOW: self.window.last})


def _end(cursor: str) -> str:
    key: list[str] = json.loads(cursor)
    instant = next(filter(None, map(instant_of, key)), None)
    if instant is not None:
        return to_the_second(timezone.localtime(instant))
    return next((grouped(int(part)) for part in reversed(key) if part.lstrip("-").isdecimal()), key[0])


def list_database(request: HttpRequest) -> str:
    """Return the alias that a list of jobs is read from: the replica's, unless an action selects from it."""
    return conf.replica_here if request.method in READING else conf.database_here


def names(query: str, alias: str, limit: int = MOST_CHOICES) -> list[str]:
    """Return the names that a filter offers, found by hopping along an index."""
    return [name for (name,) in CallerConnection(alias).rows(statement(query), {"limit": limit})]
