"""Base of every admin of the queue: its pages and their addresses, who may see them, and how long they may take.

No query of a page takes longer than ``READ_TIMEOUT_SECONDS``, and being stopped is no error: a list or a page of
figures must never be what holds a snapshot of a busy database, nor what a worker waits behind.
"""

import contextlib
import functools
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote, unquote
from django.contrib.admin.views.main import ERROR_FLAG, PAGE_VAR
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.text import Truncator, capfirst
from django.utils.translation import gettext as _
from django.utils.translation import override

from django_pgqueue.admin.changelist import READING, CappedPaginator, JobList
from django_pgqueue.admin.databases import (
    AT_HOME,
    DATABASE,
    PRESERVED,
    choices,
    current,
    is_elsewhere,
    located,
    on_its_database,
    rendered,
    with_name,
)
from django_pgqueue.admin.links import Links, crumbs
from django_pgqueue.conf import conf
from django_pgqueue.db.errors import one_line
from django_pgqueue.db.queries import TookTooLong, bounded

Page = Callable[..., HttpResponse]

NUL = "\0"  # in no text of PostgreSQL: asking for one is an error


def bounded_page(view: Page) -> Page:
    """Bound every query of a page of an admin, those that its template makes too: it is rendered here.

    A page that takes too long says so, with the remedy and the status 503. The answer to a POST is not bounded as a
    whole, but the page is the same if a ``bounded`` part of it was stopped.
    """

    @functools.wraps(view)
    def page(self: "QueueAdminBase", request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            if request.method not in READING:
                return view(self, request, *args, **kwargs)
            with bounded():
                return rendered(view(self, request, *args, **kwargs))
        except TookTooLong:
            return self.too_long(request)

    return page


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic for the type checker only
    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class QueueAdminBase(admin.ModelAdmin):  # type: ignore[type-arg]
    """Base of all admins. Its own pages are bounded; an added view that answers a GET is a ``bounded_page`` too."""

    # What the address bar may filter by, and nothing else: Django lets it compare any column with anything, and so
    # reveal, a letter at a time, values that a page leaves out. And no index would help.
    lookups: tuple[str, ...] = ()
    heavy: tuple[str, ...] = ()  # columns that the list leaves in the database
    sortable_by = ()
    paginator = CappedPaginator
    list_per_page = list_max_show_all = 100
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    class Media:
        css = {"all": ["django_pgqueue/admin.css"]}

    @property
    def urls(self) -> list[URLPattern]:
        patterns: list[URLPattern] = self.get_urls()
        for one in patterns:
            one.callback = on_its_database(self, one.callback)
        return patterns

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.using(conf.database_here) if is_elsewhere() else rows

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        return None if NUL in object_id else super().get_object(request, object_id, from_field)

    def get_preserved_filters(self, request: HttpRequest) -> str:
        """Let Django's own links, forms and redirects, which have these, lead to the database that is shown."""
        preserved = super().get_preserved_filters(request)
        if not current():
            return preserved
        query = located("", QueryDict(preserved).get(PRESERVED, "")).removeprefix("?")
        return urlencode({PRESERVED: query}) if query else ""

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> LogEntry:
        """Add the name of another database to Django's words, which are stored as English then."""
        if is_elsewhere():
            with override("en"):
                words = LogEntry(change_message=message if isinstance(message, str) else json.dumps(message))
                message = with_name(words.get_change_message())
        return super().log_change(request, obj, message)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup in self.lookups

    def may(self, request: HttpRequest, permission: str) -> bool:
        return self.has_view_permission(request) and request.user.has_perm(f"{self.opts.app_label}.{permission}")

    def address(self, name: str, *args: Any, query: str = "") -> str:
        """Return the address of the list, of a row's page (``change`` and its key) or of an action."""
        route = f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}"
        return located(reverse(route, args=[quote(arg) for arg in args], current_app=self.admin_site.name), query)

    def pattern(self, route: str, name: str, view: Page) -> URLPattern:
        """Return the URL pattern of a view; ``name``: as for ``address``."""
        return path(
            route, self.admin_site.admin_view(view), name=f"{self.opts.app_label}_{self.opts.model_name}_{name}"
        )

    def links(self, request: HttpRequest) -> Links:
        return Links(request, self.admin_site)

    def page(self, request: HttpRequest, template: str, title: Any, /, **context: Any) -> TemplateResponse:
        """Return a page that Django's admin does not have, by default right below the list."""
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "opts": self.opts,
            "media": self.media,
            "crumbs": crumbs(self.admin_site, self.opts, (title, "")),
            "databases": current(),
            **context,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, f"admin/pgqueue/{template}.html", context)

    def too_long(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        again = request.get_full_path() if request.method in READING else ""
        seconds, back = conf.read_timeout_seconds, self.address("changelist")
        page = self.page(request, "too_long", _("Stopped"), seconds=seconds, again=again, back=back)
        page.status_code = 503
        return page

    def away(self, request: HttpRequest, error: Exception) -> TemplateResponse:
        """Return the page for a database that does not answer."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        again, why = request.get_full_path() if request.method in READING else "", one_line(error.__cause__ or error)
        path = self.address("changelist").partition("?")[0]
        context = {"alias": conf.database_here, "why": why, "again": again, "databases": choices(path)}
        page = self.page(request, "away", _("No answer"), **context)
        page.status_code = 503
        return page

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobList]:
        return JobList

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Bound it here for a POST: an action begins with reading its list."""
        with contextlib.nullcontext() if request.method in READING else bounded():
            return super().get_changelist_instance(request)

    def complete(self, rows: list[Any], links: Links) -> None:
        """Give the rows on one page of the list what their table does not hold."""

    @bounded_page
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list under its name: "Select dead job to view" is no sentence in languages that inflect."""
        title = capfirst(self.opts.verbose_name_plural)
        databases = current() if self.opts.model_name in AT_HOME else choices(request.path)
        context = {"title": title, "databases": databases, **(extra_context or {})}
        response = super().changelist_view(request, context)
        if response.status_code == HTTPStatus.FOUND and response["Location"] == f"{request.path}?{ERROR_FLAG}=1":
            return HttpResponseRedirect(located(request.path, f"{ERROR_FLAG}=1"))
        return response

    @bounded_page
    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show a row under the name of its kind, for the same reason."""
        title = {"title": capfirst(self.opts.verbose_name)} if object_id else {}
        is_change_elsewhere = is_elsewhere() and request.method not in READING  # Django's transaction is at home
        with transaction.atomic(using=conf.database_here) if is_change_elsewhere else contextlib.nullcontext():
            return super().changeform_view(request, object_id, form_url, {**title, **(extra_context or {})})

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        context |= self._place()
        if row := kwargs.get("obj"):
            context |= self._place((Truncator(row).words(18), "")) | self.context_of(request, row)
        return super().render_change_form(request, context, *args, **kwargs)

    def context_of(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the context of the template of a row's page, in addition to its fields."""
        return {}

    delete_view = bounded_page(admin.ModelAdmin.delete_view)

    @bounded_page
    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        key = unquote(object_id)
        context = self._place((key, self.address("change", key)), (_("History"), ""))
        if is_elsewhere():  # of its further pages Django's template gives nothing but their number
            context["page_var"] = f"{urlencode({DATABASE: conf.database_here})}&{PAGE_VAR}"
        return super().history_view(request, object_id, {**context, **(extra_context or {})})

    def _place(self, *trail: tuple[Any, str]) -> dict[str, Any]:
        """Return the context that says on which database a page is; nothing where there is one only."""
        if not (databases := current()):
            return {}
        return {"databases": databases} | ({"crumbs": crumbs(self.admin_site, self.opts, *trail)} if trail else {})
