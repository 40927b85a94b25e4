"""Search box and filters of a list of jobs: parsed, and offered."""

import datetime as dt
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import SEARCH_VAR, ChangeList
from django.db.models import BooleanField, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_pgqueue.admin.changelist import list_database, names
from django_pgqueue.admin.keyset import is_integer
from django_pgqueue.conf import conf
from django_pgqueue.jobs.actions import LIVE
from django_pgqueue.jobs.search import Filter, is_visible, meant, positions
from django_pgqueue.models import Queue, Stage
from django_pgqueue.states import REASONS, STATUSES, DeathReason, Status
from django_pgqueue.workflows.records import workflow_id_of

HELP = _(
    "An id · how the name of a task begins · key:… a unique key · tag:… a tag · arg:… an argument's value · name=… "
    "that of the argument of that name. Redacted arguments cannot be searched."
)
HELP_WITHOUT_KEY = _(
    "An id · how the name of a task begins · tag:… a tag · arg:… an argument's value · name=… that of the argument of "
    "that name. Redacted arguments cannot be searched."
)

IN_KWARGS = "jsonb_path_exists(kwargs, '$.* ? (@ == $one[*])', jsonb_build_object('one', %s::jsonb))"


PREFIXES = {"key": "unique_key", "tag": "tag", "arg": "argument"}  # of terms; the fields that the rest is for


def search_of(term: str) -> dict[str, Any]:
    """Return the fields of ``RequestedFilter`` for the text in the search box."""
    term = term.strip()
    is_number = re.fullmatch(r"-?\d+", term, re.ASCII) is not None
    if "\0" in term or (is_number and not is_integer(term)):
        return {"finds_nothing": True}
    if is_number:
        return {"id": int(term)}
    prefix, colon, value = term.partition(":")
    if colon and prefix in PREFIXES:
        return {PREFIXES[prefix]: value.strip()}
    name, sign, value = term.partition("=")
    if sign and name.strip().isidentifier():
        return {"argument": value.strip(), "argument_name": name.strip()}
    return {"task_prefix": term} if term else {}


def has_tag(tag: str) -> Q:
    return Q(RawSQL("tags @> %s::text[]", ([tag],), BooleanField()))


def has_argument(value: str, name: str | None) -> Q:
    """Return the condition that an argument, or that of the name, is stored with the value."""
    spelled = meant(value)
    if name is None:
        in_args = Q(*(Q(args__contains=[one]) for one in spelled), _connector=Q.OR)
        return in_args | Q(RawSQL(IN_KWARGS, (json.dumps(spelled),), BooleanField()))  # noqa: S611
    in_kwargs = Q(*(Q(kwargs__contains={name: one}) for one in spelled), _connector=Q.OR)
    for task, place in positions(name):
        in_kwargs |= Q(task=task) & Q(*(Q((f"args__{place}", one)) for one in spelled), _connector=Q.OR)
    return in_kwargs


# Filters

MOST_DAYS = 31  # that are offered


@dataclass(frozen=True, kw_only=True)
class RequestedFilter:
    """The filter in the address of a list, and one term of a search at most; empty: anything."""

    status: str = ""
    queue: str = ""
    reason: str = ""
    task: str = ""
    cause: int | None = None
    stage: int | None = None  # of a workflow
    day: dt.date | None = None
    id: int | None = None
    task_prefix: str | None = None
    unique_key: str | None = None
    tag: str | None = None
    argument: str | None = None
    argument_name: str | None = None
    finds_nothing: bool = False  # no job can be so

    @property
    def narrowed(self) -> Q:
        chosen = {name: getattr(self, name) for name in ("status", "queue", "reason", "task") if getattr(self, name)}
        return Q(**chosen)

    @property
    def of_stage(self) -> Q:
        return Q() if self.stage is None else Q(stage_id=self.stage)

    @property
    def of_cause(self) -> Q:
        return Q() if self.cause is None else Q(cause=self.cause)

    @property
    def of_key(self) -> Q:
        return Q() if self.unique_key is None else Q(unique_key=self.unique_key)

    def may_see(self, job: Any) -> bool:
        """Whether the argument of a job may be seen by which it was found."""
        return is_visible(job.task, job.args, job.kwargs, self.argument or "", self.argument_name)


def requested_filter(request: HttpRequest, lookups: tuple[str, ...]) -> RequestedFilter:
    """Read the address; IncorrectLookupParameters where it asks for what cannot be."""
    given: dict[str, Any] = {name: request.GET[name] for name in lookups if request.GET.get(name)}
    if any("\0" in value for value in given.values()):
        raise IncorrectLookupParameters
    cause, stage, day = given.pop("cause", None), given.pop("stage", None), given.pop("day", None)
    if given.get("status") not in {None, *Status} or given.get("reason") not in {None, *DeathReason}:
        raise IncorrectLookupParameters
    return RequestedFilter(
        **given,
        cause=_integer(cause) if cause else None,
        stage=_integer(stage) if stage else None,
        day=_date(day) if day else None,
        **search_of(request.GET.get(SEARCH_VAR, "")),
    )


def filter_of(asked: RequestedFilter, *, is_live: bool) -> Filter | None:
    """Return what a list shows, for an action on all of it; None: one job, or none, by its id."""
    if asked.id is not None or asked.finds_nothing:
        return None
    kinds = (asked.status or asked.reason,) if asked.status or asked.reason else ()
    return Filter(
        queues=(asked.queue,) if asked.queue else (),
        tasks=(asked.task,) if asked.task else (),
        tags=() if asked.tag is None else (asked.tag,),
        kinds=kinds or (LIVE if is_live and asked.unique_key is None else ()),
        task_prefix=asked.task_prefix,
        cause=asked.cause,
        stage=asked.stage,
        unique_key=asked.unique_key,
        day=asked.day.isoformat() if asked.day else None,
        argument=asked.argument,
        argument_name=asked.argument_name,
    )


def _integer(text: str) -> int:
    if not is_integer(text):
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
        """Let a click on All leave out the queue too, which alone means queued jobs."""
        everything, *statuses = super().choices(changelist)
        yield {**everything, "query_string": changelist.get_query_string(remove=["status", "queue"])}
        yield from statuses


class ReasonFilter(ChoiceFilter):
    """Offers every reason, found or not; looking which occur is not worth a query."""

    title, parameter_name = _("reason"), "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(reason.value, REASONS[reason]) for reason in DeathReason]


class NameFilter(ChoiceFilter):
    """Offers the names that an index begins with, and the one that was chosen: it may have no jobs any more."""

    query: str

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        offered, chosen = self.offered(), self.value()
        return [(name, name) for name in sorted({*offered, chosen} if chosen else offered)]

    def offered(self) -> list[str]:
        return names(self.query, list_database(self.request))


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


class StageFilter(ChoiceFilter):
    """Says that the list is narrowed to the members of one stage; the page of its workflow has the link."""

    title, parameter_name = _("stage"), "stage"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        value = request.GET.get("stage", "")
        return [(value, stage_named(int(value), list_database(request)))] if is_integer(value) else []


def stage_named(stage_id: int, alias: str) -> str:
    name = Stage.objects.using(alias).filter(pk=stage_id).values_list("name", flat=True).first()
    said = {"stage": name, "workflow": workflow_id_of(stage_id)}
    return gettext("%(stage)s of workflow %(workflow)s") % said if name is not None else str(stage_id)


class SeenQueueFilter(NameFilter):
    title, parameter_name = _("queue"), "queue"

    def offered(self) -> list[str]:
        return list(
            Queue.objects.using(list_database(self.request)).order_by("name").values_list("name", flat=True)[:100]
        )


class DayFilter(ChoiceFilter):
    """Offers the days of which succeeded jobs are kept. A day is a partition, in UTC."""

    title, parameter_name = _("day (UTC)"), "day"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        today = timezone.now().astimezone(dt.UTC).date()
        days = [(today - dt.timedelta(days=ago)).isoformat() for ago in range(min(conf.retention_days + 1, MOST_DAYS))]
        chosen = self.value()
        return [(day, day) for day in (days if chosen is None or chosen in days else [*days, chosen])]
