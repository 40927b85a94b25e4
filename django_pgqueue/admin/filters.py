"""Filters of the lists of jobs: a closed list, read from the address in one place."""

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import SEARCH_VAR, ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.changelist import names, with_chosen
from django_pgqueue.admin.search_box import Search, search_of
from django_pgqueue.conf import conf
from django_pgqueue.jobs.actions import LIVE
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import Queue
from django_pgqueue.states import REASONS, STATUSES, Reason, Status

MOST_DAYS = 31  # that are offered


@dataclass(frozen=True, kw_only=True)
class RequestedFilter:
    """The filter in the address of a list; empty: anything."""

    status: str = ""
    queue: str = ""
    reason: str = ""
    task: str = ""
    cause: int | None = None
    day: dt.date | None = None
    search: Search = field(default_factory=Search)

    @property
    def narrowed(self) -> Q:
        """The condition of what was chosen by name."""
        chosen = {name: getattr(self, name) for name in ("status", "queue", "reason", "task") if getattr(self, name)}
        return Q(**chosen)


def requested_filter(request: HttpRequest, lookups: tuple[str, ...]) -> RequestedFilter:
    """Read the address.

    Raises:
        IncorrectLookupParameters: it asks for what cannot be.
    """
    given = {name: request.GET[name] for name in lookups if request.GET.get(name)}
    if any("\0" in value for value in given.values()):
        raise IncorrectLookupParameters
    cause, day = given.pop("cause", None), given.pop("day", None)
    if given.get("status") not in {None, *Status} or given.get("reason") not in {None, *Reason}:
        raise IncorrectLookupParameters
    return RequestedFilter(
        **given,
        cause=_number(cause) if cause else None,
        day=_date(day) if day else None,
        search=search_of(request.GET.get(SEARCH_VAR, "")),
    )


def filter_of(asked: RequestedFilter, *, is_live: bool = False) -> Filter | None:
    """Return what a list shows, for an action on all of it; None: one job, or none, by its id."""
    search = asked.search
    if search.id is not None or search.finds_nothing:
        return None
    kinds = (asked.status or asked.reason,) if asked.status or asked.reason else ()
    return Filter(
        queues=(asked.queue,) if asked.queue else (),
        tasks=(asked.task,) if asked.task else (),
        kinds=kinds or (LIVE if is_live and search.unique_key is None else ()),
        task_prefix=search.task_prefix,
        cause=asked.cause,
        unique_key=search.unique_key,
        day=asked.day.isoformat() if asked.day else None,
        argument=search.argument,
        argument_name=search.argument_name,
    )


def _number(text: str) -> int:
    if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII) or abs(int(text)) >= 2**63:
        raise IncorrectLookupParameters
    return int(text)


def _date(text: str) -> dt.date:
    try:
        day = parse_date(text)
    except ValueError:
        day = None
    if day is None or not 1970 <= day.year <= 9000:  # noqa: PLR2004 - what the database and datetime both know
        raise IncorrectLookupParameters
    return day


class ChoiceFilter(admin.SimpleListFilter):
    """Offers what the list can be narrowed to. The list narrows itself, by its route."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset


class StatusFilter(ChoiceFilter):
    """Offers every status. Without a choice all are shown but the reserved rows, which only hold a unique key."""

    title, parameter_name = _("status"), "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(status.value, STATUSES[status]) for status in Status]

    def value(self) -> str | None:
        queue = self.request.GET.get("queue")
        return super().value() or (Status.QUEUED.value if queue and not self.request.GET.get(SEARCH_VAR) else None)

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        yield {
            "selected": self.value() is None,
            "query_string": changelist.get_query_string(remove=["status", "queue"]),
            "display": gettext("All"),
        }
        for status, display in self.lookup_choices:
            yield {
                "selected": self.value() == status,
                "query_string": changelist.get_query_string({"status": status}),
                "display": display,
            }


class ReasonFilter(ChoiceFilter):
    """Offers every reason, found or not; looking which occur is not worth a query."""

    title, parameter_name = _("reason"), "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(reason.value, REASONS[reason]) for reason in Reason]


class NameFilter(ChoiceFilter):
    """Offers the names that an index begins with."""

    query: str

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in with_chosen(names(self.query), self.value())]


class LiveQueueFilter(NameFilter):
    """Offers the queues that have queued jobs; a queue alone means these."""

    title, parameter_name, query = _("queue"), "queue", "queued_queues"


class DeadQueueFilter(NameFilter):
    """Reads pgqueue_dead_jobs_queue."""

    title, parameter_name, query = _("queue"), "queue", "dead_queues"


class DeadTaskFilter(NameFilter):
    """Reads pgqueue_dead_jobs_task."""

    title, parameter_name, query = _("task"), "task", "dead_tasks"


class ErrorGroupFilter(ChoiceFilter):
    """Says that the list is narrowed to one cause; they are chosen on a page of their own."""

    title, parameter_name = _("cause"), "cause"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        value = request.GET.get("cause")
        return [(value, gettext("one cause"))] if value else []


class SeenQueueFilter(ChoiceFilter):
    """Offers the queues that there have been."""

    title, parameter_name = _("queue"), "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        seen = list(Queue.objects.order_by("name").values_list("name", flat=True)[:100])
        return [(name, name) for name in with_chosen(seen, self.value())]


class DayFilter(ChoiceFilter):
    """Offers the days of which finished jobs are kept. A day is a partition, in UTC."""

    title, parameter_name = _("day (UTC)"), "day"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        today = timezone.now().astimezone(dt.UTC).date()
        days = [(today - dt.timedelta(days=ago)).isoformat() for ago in range(min(conf.retention_days + 1, MOST_DAYS))]
        chosen = self.value()
        return [(day, day) for day in (days if chosen is None or chosen in days else [*days, chosen])]
