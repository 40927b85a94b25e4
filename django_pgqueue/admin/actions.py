"""Actions of the admin: choose, confirm, act, and report the result."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import router, transaction
from django.db.models import Model, QuerySet
from django.forms import Form
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_pgqueue.admin.base import QueueAdminBase
from django_pgqueue.admin.changelist import CURSORS
from django_pgqueue.admin.databases import with_name
from django_pgqueue.conf import conf
from django_pgqueue.db.queries import bounded
from django_pgqueue.insights.formatting import grouped
from django_pgqueue.jobs.actions import Action, Params
from django_pgqueue.jobs.search import Filter

MOST_JOBS = 1000  # that one action takes
MOST_NAMED = 20  # that the confirmation names
LARGEST_ID = 2**63 - 1


class Change(NamedTuple):
    model: type[Model]  # the table that has them now
    ids: list[Any]
    entry: str  # for the audit log; stored, so not translated
    message: Any  # lazy text with %(count)d
    rows: Sequence[Model] | None = None  # as they were, if no table has them now


@dataclass(frozen=True, kw_only=True, eq=False)
class AdminAction:
    """One thing that staff may do: a button on a row's page, and one of the ``actions`` of Django's list.

    It is done in the open transaction on the queue's database.
    """

    name: str  # and the last part of its address
    permission: str  # codename; checked when the action is offered, when it is confirmed and when it is done
    label: Any
    question: Any  # lazy text with %(count)d
    consequence: Any
    perform: Callable[[Collection[Any], str, str, Params], list[Change]]  # ids, who, alias, what the form says
    explain: Callable[[Collection[Any], str], Counter[Any]]  # ids and alias; counts why the other rows were skipped
    form: Callable[..., forms.Form] | None = None  # what else has to be known, asked for along with the confirmation
    is_destructive: bool = False  # the button warns
    many: Action | None = None  # that on jobs, which can also be done to all that match, in the background
    selected: Any = ""  # what the list says, with %(verbose_name_plural)s; empty: it is not offered there

    do_not_call_in_templates = True  # they call callables

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def short_description(self) -> Any:
        return self.selected

    def __call__(self, admin: "ActionsAdmin", request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        return admin.choose(request, self, queryset)


@contextmanager
def audited(request: HttpRequest) -> Iterator[Callable[[Iterable[Model], int, str], None]]:
    """Open a transaction for changes and their log entries; yield the function that logs (rows, flag, entry).

    Where the log is in another database, it commits first: a crash in between leaves an entry too many, not too few.
    """

    def log(rows: Iterable[Model], flag: int, entry: str) -> None:
        LogEntry.objects.log_actions(request.user.pk, rows, flag, with_name(entry))  # type: ignore[arg-type]

    with transaction.atomic(using=conf.database_here), transaction.atomic(using=router.db_for_write(LogEntry)):
        yield log


class ActionsAdmin(QueueAdminBase):
    """A table whose rows change by actions, from the list and from a row's page.

    From Django 6.1 on actions can be located on a row's page: as a list to choose from and a button that runs the
    choice. The buttons here take one press, are there only if the action can do anything to the row, and warn by their
    colour. Both lead to the same confirmation.
    """

    actions: tuple[AdminAction, ...] = ()  # each has a route
    named_by: tuple[str, ...] = ("task",)  # columns that the name of a row is made of
    largest_selection = MOST_JOBS
    takes_all = False  # actions are done to everything that matches, in the background

    def get_urls(self) -> list[URLPattern]:
        routes = [self.pattern(f"{one.name}/", one.name, partial(self.act, action=one)) for one in self.actions]
        return routes + super().get_urls()

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> Any:
        """Leave out actions that this user may not do, and those of a row's page only.

        Django 6.1 and newer say on which page the actions are shown.
        """
        where = {} if action_location is None else {"action_location": action_location}
        hidden = {one.name for one in self.actions if not (one.selected and self.may(request, one.permission))}
        return {name: found for name, found in super().get_actions(request, **where).items() if name not in hidden}

    def context_of(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        offered = [one for one in self.actions if self.may(request, one.permission) and self.offers(one, row)]
        return {"buttons": [(action, self.address(action.name)) for action in offered]}

    def keys(self, texts: Iterable[str]) -> list[Any]:
        """Return the primary keys in a request, each once; raise BadRequest for one that cannot be."""
        try:
            ids = list(dict.fromkeys(map(int, texts)))
        except ValueError as error:
            raise BadRequest(f"A job's id is a number: {error}.") from error
        if any(abs(job_id) > LARGEST_ID for job_id in ids):
            raise BadRequest("A job's id has 64 bits.")
        return ids

    def offers(self, action: AdminAction, row: Any) -> bool:
        return True

    def chosen(self, request: HttpRequest) -> Filter | None:
        """Return the filter of what the list shows, where ``takes_all``; None: it cannot be said as one."""
        return None

    # The steps of an action

    def choose(self, request: HttpRequest, action: AdminAction, queryset: QuerySet[Any]) -> HttpResponse:
        """Show the confirmation for the ticked rows, also for a job that does not match the filter any more."""
        is_for_all = request.POST.get("select_across", "0") not in {"", "0"}
        if is_for_all and action.many:
            asked = request.GET.copy()
            for name in CURSORS:
                asked.pop(name, None)
            return HttpResponseRedirect(self.address(f"{action.name}_matching", query=asked.urlencode()))
        if not is_for_all:
            ids = self.keys(request.POST.getlist(ACTION_CHECKBOX_NAME))
        else:
            with bounded(queryset.db):
                ids = list(queryset.values_list("pk", flat=True)[: MOST_JOBS + 1])
        return self.confirm(request, action, ids)

    def act(self, request: HttpRequest, action: AdminAction) -> HttpResponse:
        """Ask for confirmation, or do it where that has been given."""
        if request.method != "POST":  # a login in between turned the button's POST into a GET
            return HttpResponseRedirect(self._back(request, []))
        ids = self.keys(map(unquote, filter(None, request.POST.get("ids", "").split(","))))
        if "confirmed" in request.POST:
            return self.perform(request, action, ids)
        return self.confirm(request, action, ids)

    def confirm(
        self, request: HttpRequest, action: AdminAction, ids: Sequence[Any], form: Form | None = None
    ) -> HttpResponse:
        """Show what would happen to how many jobs, and ask for the rest; ``form``: as it was filled in, if invalid."""
        if refusal := self._refusal(request, action, ids):
            return refusal
        return self.page(
            request,
            "confirmation",
            action.question % {"count": len(ids)},
            action=action,
            form=form or (action.form() if action.form else None),
            address=self.address(action.name),
            ids=",".join(quote(str(row_id)) for row_id in ids),
            filters=_filters(request),
            is_page="page" in request.POST,
            back=self._back(request, ids),
            rows=[(str(row), self.address("change", row.pk)) for row in self._named(ids[:MOST_NAMED])],
            unnamed=max(len(ids) - MOST_NAMED, 0),
        )

    def perform(self, request: HttpRequest, action: AdminAction, ids: Sequence[Any]) -> HttpResponse:
        """Do it and write the audit log; then report the result."""
        if refusal := self._refusal(request, action, ids):
            return refusal
        form = action.form(request.POST) if action.form else None
        if form is not None and not form.is_valid():
            return self.confirm(request, action, ids, form)
        params = form.cleaned_data if form else {}
        with audited(request) as log:
            done = action.perform(ids, request.user.get_username(), conf.database_here, params)
            changes = [change for change in done if change.ids]
            for change in changes:
                log(self._changed(change), CHANGE if change.rows is None else DELETION, change.entry)
        for change in changes:
            self.message_user(request, self._message(request, change), messages.SUCCESS)
        if skipped := set(ids).difference(*(change.ids for change in changes)):
            for why, count in action.explain(skipped, conf.database_here).items():
                text = _("Left alone: %(count)s (%(why)s).") % {"count": grouped(count), "why": why}
                self.message_user(request, text, messages.WARNING)
        return HttpResponseRedirect(self._back(request, ids))

    def _refusal(self, request: HttpRequest, action: AdminAction, ids: Sequence[Any]) -> HttpResponse | None:
        if not self.may(request, action.permission):
            raise PermissionDenied
        if not ids:
            text = _("Nothing was selected, so nothing was changed.")
            self.message_user(request, text, messages.WARNING)
        elif len(ids) > MOST_JOBS:
            text = _("One action takes up to %(most)s jobs. Nothing was changed; narrow the list or select fewer.")
            self.message_user(request, text % {"most": grouped(MOST_JOBS)}, messages.ERROR)
        else:
            return None
        return HttpResponseRedirect(self._back(request, ids))

    def _changed(self, change: Change) -> Iterable[Model]:
        if change.rows is not None:
            return change.rows
        rows = change.model._default_manager.using(conf.database_here)  # noqa: SLF001 - Django's own idiom
        return rows.only("pk", *self.named_by).filter(pk__in=change.ids)

    def _message(self, request: HttpRequest, change: Change) -> str:
        message: str = change.message % {"count": len(change.ids)}
        if len(change.ids) != 1 or change.rows is not None or change.model is self.model:
            return message
        [row_id] = change.ids
        address = self.links(request).to_row(str(change.model._meta.model_name), row_id)  # noqa: SLF001 - Django's own idiom
        if not address:
            return message
        return format_html('{} <a href="{}">{}</a>', message, address, _("Show job %(id)s") % {"id": row_id})

    def _named(self, ids: Sequence[Any]) -> list[Model]:
        found = self.model._default_manager.using(conf.database_here).only("pk", *self.named_by).in_bulk(ids)  # noqa: SLF001
        return [found[job_id] for job_id in ids if job_id in found]

    def _back(self, request: HttpRequest, ids: Sequence[Any]) -> str:
        if "page" in request.POST and len(ids) == 1 and self._named(ids):
            return self.address("change", ids[0])
        return self.address("changelist", query=_filters(request))


def _filters(request: HttpRequest) -> str:
    return QueryDict(request.POST.get("filters", request.GET.urlencode())).urlencode()
