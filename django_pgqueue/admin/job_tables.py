"""Base of the admins of the tables of jobs: read-only, closed to other lookups, changed by actions."""

import contextlib
from functools import partial
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.admin.views.main import PAGE_VAR
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.actions import ActionsAdmin
from django_pgqueue.admin.base import ReadOnlyAdmin, bounded_page
from django_pgqueue.admin.changelist import KeysetList, list_database
from django_pgqueue.admin.confirm_all import matching
from django_pgqueue.admin.databases import search_of_key
from django_pgqueue.admin.filters import RequestedFilter, filter_of, has_argument, has_tag, requested_filter
from django_pgqueue.admin.formatting import live_column, moment_of, pretty_json_of, sentence_of
from django_pgqueue.admin.job_page import JobPage, go_where_it_is
from django_pgqueue.admin.keyset import IndexOrder, Route
from django_pgqueue.conf import conf
from django_pgqueue.db.queries import bounded
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.validation import is_text

ANY = Q()


def folded(title: Any, *fields: str) -> Any:
    """Return a fieldset that is closed until it is asked for."""
    return title, {"fields": fields, "classes": ("collapse",)}


METADATA = folded(_("Metadata"), "pretty_metadata")
OPTIONS = folded(
    _("Options"),
    "said_timeout",
    "said_lease",
    "said_keep",
    "said_keep_seconds",
    "said_lost",
    "said_snoozes",
    "said_backend",
    "said_until",
    "said_limit",
)


class JobsAdmin(ReadOnlyAdmin, ActionsAdmin):
    heavy: tuple[str, ...] = ("args", "kwargs", "metadata", "progress", "errors")
    takes_all = True
    change_form_template = "admin/pgqueue/job.html"

    attempts_of = live_column("attempts", _("attempts"), lambda job: f"{job.attempts}/{job.max_attempts}")
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
    said_snoozes = sentence_of("snoozes", _("snoozes"))
    said_backend = sentence_of("backend", _("backend"))
    said_until = sentence_of("unique_until", _("the unique key is held until"))
    said_limit = sentence_of("concurrency_limit", _("limit of the concurrency key"))
    pretty_metadata = pretty_json_of("metadata", _("metadata"))

    def get_urls(self) -> list[URLPattern]:
        routes = [
            self.pattern(f"{one.name}/matching/", f"{one.name}_matching", partial(matching, self, action=one))
            for one in self.actions
        ]
        return routes + super().get_urls()

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetList]:
        return KeysetList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Bound the statements on a replica too."""
        alias = list_database(request)
        with contextlib.nullcontext() if alias == conf.database_here else bounded(alias):
            return super().changelist_view(request, extra_context)

    def asked(self, request: HttpRequest) -> RequestedFilter:
        """Return what the address of a list asks for; IncorrectLookupParameters where it cannot be."""
        return requested_filter(request, self.lookups)

    def chosen(self, request: HttpRequest) -> Filter | None:
        return filter_of(self.asked(request), is_live=self.model is Job)

    def route(self, request: HttpRequest) -> Route:
        raise NotImplementedError

    def searched(self, asked: RequestedFilter, narrowed: Q, along: IndexOrder, base: Q = ANY) -> Route | None:
        """Return the route of a search, if it is the same for all tables; else None."""
        if asked.finds_nothing:
            return Route(along, Q(pk__in=[]))
        if asked.id is not None:
            return Route(along, Q(pk=asked.id))
        if asked.argument is not None:
            return Route(along, base, narrowed & has_argument(asked.argument, asked.argument_name), asked.may_see)
        if asked.tag is not None:
            return Route(along, base, narrowed & has_tag(asked.tag))
        if asked.task_prefix is not None:
            return Route(along, base, narrowed & Q(task__startswith=asked.task_prefix))
        return None

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        """Have the search box shown; the route reads its text."""
        return ("=id",)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        return queryset, False

    def elsewhere(self, request: HttpRequest, query: str) -> list[tuple[str, str]]:
        links, own = self.links(request), self.opts.model_name
        tables = (
            ("job", _("Search live jobs")),
            ("deadjob", _("Search dead jobs")),
            ("succeededjob", _("Search succeeded jobs")),
        )
        found = [(str(words), links.to_list(model, q=query)) for model, words in tables if model != own]
        others = [(words, address) for words, address in found if address]
        return [*search_of_key(request, self.model, query), *others]

    def context_of(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return super().context_of(request, row) | {"page": JobPage(self, request, row)}

    def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: str) -> HttpResponse:
        """Go where the job is: it moves from table to table under the same id."""
        return go_where_it_is(self, request, object_id)

    @bounded_page
    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show what staff did to a job while it was in any of the tables: its id stays the same."""
        if not self.has_view_permission(request):  # Django looks for the row first, and reveals whether it is there
            raise PermissionDenied
        tables = ContentType.objects.get_for_models(Job, DeadJob, SucceededJob).values()
        entries = LogEntry.objects.filter(content_type__in=tables).select_related("user")
        entries = entries.filter(object_id=object_id) if is_text(object_id) else entries.none()
        page = self.get_paginator(request, entries.order_by("action_time"), self.list_per_page).get_page(
            request.GET.get(PAGE_VAR)
        )
        return super().history_view(request, object_id, {"action_list": page, **(extra_context or {})})
