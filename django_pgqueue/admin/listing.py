"""Lists that cost the same whatever the size of their table.

Every page is read along an index, counting stops at ``CAP``, and what the address bar may ask for is a closed list.
"""

from typing import Any

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from django_pgqueue.db import CallerConnection
from django_pgqueue.lifecycle.sql import statement

CAP = 10_000
MOST_CHOICES = 100
LONGEST_ID = 19  # digits


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
        if not self.query:
            self.full_result_count = self.result_count  # else the search form speaks of results
        self.model_admin.complete(self.result_list)  # type: ignore[attr-defined]


def by_id(queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
    """Return the job with the id that was searched for, or none."""
    return queryset.filter(pk=int(term)) if term.isdecimal() and len(term) <= LONGEST_ID else queryset.none()


def with_chosen(offered: list[str], chosen: str | None) -> list[str]:
    """Add the name that the address bar chose, which may have no jobs any more."""
    return sorted({*offered, chosen} if chosen else offered)


def names(query: str, limit: int = MOST_CHOICES) -> list[str]:
    """Return the names that a filter offers, found by hopping along an index."""
    return [name for (name,) in CallerConnection().rows(statement(query), {"limit": limit})]
