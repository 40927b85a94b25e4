"""Base of the admins of the queue's tables: read-only, closed to other lookups, changed by actions."""

import functools
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.views.main import PAGE_VAR
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.actions import ActionsAdmin, AdminAction, act
from django_pgqueue.admin.bounded import ReadOnlyAdmin, bounded_page
from django_pgqueue.admin.changelist import CappedPaginator, KeysetList
from django_pgqueue.admin.confirm_all import matching
from django_pgqueue.admin.filters import RequestedFilter, Search, filter_of, has_argument, requested_filter, shows
from django_pgqueue.admin.formatting import json_of, live, moment_of, sentence_of
from django_pgqueue.admin.job_page import JobPage, go_where_it_is
from django_pgqueue.admin.keyset import IndexOrder, Route
from django_pgqueue.admin.links import Links
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import DeadJob, FinishedJob, Job

ANY = Q()

NUL = "\0"  # in no text of PostgreSQL: asking for one is an error, and not merely in vain

# What any page of a job shows at its end.
DETAILS: tuple[Any, ...] = (
    (_("Metadata"), {"fields": ("pretty_metadata",), "classes": ("collapse",)}),
    (
        _("Options"),
        {
            "fields": (
                "said_timeout",
                "said_lease",
                "said_keep",
                "said_keep_seconds",
                "said_lost",
                "said_backend",
                "said_scope",
                "said_limit",
            ),
            "classes": ("collapse",),
        },
    ),
)


class ActingAdmin(ActionsAdmin):
    """A table whose rows change by actions, from the list and from a row's page.

    From Django 6.1 on actions can be located on a row's page: as a list to choose from and a button that runs the
    choice. The buttons here take one press, are there only if the action can do anything to the row, and warn by their
    colour. Both lead to the same confirmation.
    """

    class Media:
        css = {"all": ["django_pgqueue/admin.css"]}

    def get_urls(self) -> list[URLPattern]:
        return [
            path(
                f"{action.name}/",
                self.admin_site.admin_view(functools.partial(self._act, action)),
                name=f"{self.opts.app_label}_{self.opts.model_name}_{action.name}",
            )
            for action in self.actions
        ] + super().get_urls()

    def render_change_form(  # noqa: PLR0917 - the same
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,  # noqa: FBT001, FBT002 - Django's signature
        change: bool = False,  # noqa: FBT001, FBT002
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        offered = [one for one in self.actions if obj and self.may(request, one.permission) and self.offers(one, obj)]
        context["buttons"] = [(action, self.address(action.name)) for action in offered]
        return super().render_change_form(request, context, add, change, form_url, obj)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        return None if NUL in object_id else super().get_object(request, object_id, from_field)

    def _act(self, action: AdminAction, request: HttpRequest) -> HttpResponse:
        return act(self, request, action)


class JobsAdmin(ReadOnlyAdmin, ActingAdmin):
    """Reading a table of jobs. Rows change by actions only.

    Attributes:
        heavy: columns that the list leaves in the database.
    """

    heavy: tuple[str, ...] = ("args", "kwargs", "metadata", "progress", "errors")
    takes_all = True

    list_per_page = 100
    list_max_show_all = 100
    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    change_form_template = "admin/django_pgqueue/job.html"

    enqueued_time = moment_of("enqueued_at", _("enqueued at"))
    run_time = moment_of("run_at", _("run at"))
    first_started_time = moment_of("first_started_at", _("first started at"))
    started_time = moment_of("started_at", _("started at"))
    expires_time = moment_of("expires_at", _("expires at"))
    said_timeout = sentence_of("timeout_seconds", _("timeout in seconds"))
    said_lease = sentence_of("lease_seconds", _("lease in seconds"))
    said_keep = sentence_of("keep", _("keep"))
    said_keep_seconds = sentence_of("keep_seconds", _("keep for seconds"))
    said_lost = sentence_of("lost", _("workers lost"))
    said_backend = sentence_of("backend", _("backend"))
    said_scope = sentence_of("unique_scope", _("scope of the unique key"))
    said_limit = sentence_of("concurrency_limit", _("limit of the concurrency key"))
    pretty_metadata = json_of("metadata", _("metadata"))

    @admin.display(description=_("attempts"))
    def attempts_of(self, job: Any) -> str:
        return live(f"{job.pk} attempts", f"{job.attempts}/{job.max_attempts}")

    def get_urls(self) -> list[URLPattern]:
        return [
            path(
                f"{action.name}/matching/",
                self.admin_site.admin_view(functools.partial(self._match, action=action)),
                name=f"{self.opts.app_label}_{self.opts.model_name}_{action.name}_matching",
            )
            for action in self.actions
            if action.many
        ] + super().get_urls()

    @bounded_page
    def _match(self, request: HttpRequest, *, action: AdminAction) -> HttpResponse:
        return matching(self, request, action)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetList]:
        return KeysetList

    def asked(self, request: HttpRequest) -> RequestedFilter:
        """Return what the address of a list asks for; IncorrectLookupParameters where it cannot be."""
        return requested_filter(request, self.lookups)

    def chosen(self, request: HttpRequest) -> Filter | None:
        return filter_of(self.asked(request))

    def route(self, request: HttpRequest) -> Route:
        raise NotImplementedError

    def searched(self, search: Search, narrowed: Q, along: IndexOrder, base: Q = ANY) -> Route | None:
        """Return how what was searched for is read, where that is the same for all tables; None: it is not."""
        if search.finds_nothing:
            return Route(along, Q(pk__in=[]))
        if search.id is not None:
            return Route(along, Q(pk=search.id))
        if search.argument is not None:
            return Route(along, base, narrowed & has_argument(search.argument, search.argument_name), shows(search))
        if search.task_prefix is not None:
            return Route(along, base, narrowed & Q(task__startswith=search.task_prefix))
        return None

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Have the box shown; what is typed is read by the route."""
        return ("=id",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        return queryset, False

    def elsewhere(self, request: HttpRequest, query: str) -> list[tuple[str, str]]:
        links = Links(request, self.admin_site)
        tables = {Job: _("Search live jobs"), DeadJob: _("Search dead jobs")}
        tables |= {FinishedJob: _("Search finished jobs")}
        found = [
            (str(words), links.to_list(str(model._meta.model_name), q=query))  # noqa: SLF001 - Django's own idiom
            for model, words in tables.items()
            if model is not self.model
        ]
        return [(words, address) for words, address in found if address]

    def complete(self, jobs: list[Any]) -> None:
        """Give the jobs on one page of the list what their table does not hold."""

    def render_change_form(  # noqa: PLR0917 - the same
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,  # noqa: FBT001, FBT002 - Django's signature
        change: bool = False,  # noqa: FBT001, FBT002
        form_url: str = "",
        obj: Any = None,
    ) -> HttpResponse:
        context["page"] = JobPage(self, request, obj)
        context["ways_on"] = self.ways_on(request, obj)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def ways_on(self, request: HttpRequest, job: Any) -> list[tuple[Any, str]]:
        """Return what leads on from the page of a job, besides its actions: words and addresses."""
        return []

    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: str) -> HttpResponse:
        """Go where the job is: it moves from table to table under the same id."""
        return go_where_it_is(self, request, object_id)

    @bounded_page
    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show what staff did to a job in whichever table it stood then: it keeps its id for life."""
        if not self.has_view_permission(request):  # Django looks for the row first, and tells what became of it
            raise PermissionDenied
        tables = ContentType.objects.get_for_models(Job, DeadJob, FinishedJob).values()
        entries = LogEntry.objects.filter(object_id=object_id, content_type__in=tables).select_related("user")
        page = self.get_paginator(request, entries.order_by("action_time"), self.list_per_page).get_page(
            request.GET.get(PAGE_VAR)
        )
        return super().history_view(request, object_id, {"action_list": page, **(extra_context or {})})
