"""Actions of the admin: choose, confirm, act, and say what was done."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db import router, transaction
from django.db.models import Model, QuerySet
from django.forms import Form
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from django_pgqueue.admin.bounded import BoundedAdmin
from django_pgqueue.admin.changelist import CURSORS
from django_pgqueue.admin.keyset import job_ids
from django_pgqueue.admin.links import Links
from django_pgqueue.conf import conf
from django_pgqueue.insights.bounded import bounded
from django_pgqueue.insights.formatting import whole
from django_pgqueue.jobs.actions import Action, Params
from django_pgqueue.jobs.search import Filter

MOST_JOBS = 1000  # that one action takes

MOST_NAMED = 20  # that the confirmation names


class Change(NamedTuple):
    """Jobs to which one thing was done."""

    model: type[Model]  # where they stand now
    ids: list[Any]
    entry: str  # for the audit log; stored, so not translated
    message: Any  # lazy text with %(count)d
    named_by: str = "task"  # the column that its rows are named by in the audit log
    rows: Sequence[Model] | None = None  # as they were, where they stand nowhere now


@dataclass(frozen=True, kw_only=True, eq=False)
class AdminAction:
    """One thing that staff may do: a button on a row's page, and one of the ``actions`` of Django's list.

    Attributes:
        name: the action, and the last part of its address.
        permission: codename; checked when the action is offered, when it is confirmed and when it is done.
        selected: what the list says, with %(verbose_name_plural)s. Empty: it is not offered there.
        question: lazy text with %(count)d.
        perform: does it, in the open transaction on the queue's database: ids, who, alias, what the form says.
        explain: counts why the other rows were skipped: ids, alias.
        form: what else has to be known; asked for along with the confirmation.
        is_destructive: whether the button warns.
        many: the same for all jobs that match a filter, in the background.
    """

    name: str
    permission: str
    label: Any
    question: Any
    consequence: Any
    perform: Callable[[Collection[Any], str, str, Params], list[Change]]
    explain: Callable[[Collection[Any], str], Counter[Any]]
    form: Callable[..., forms.Form] | None = None
    is_destructive: bool = False
    many: Action | None = None
    selected: Any = ""
    question_for_all: Any = ""

    do_not_call_in_templates = True  # they call what can be called

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def short_description(self) -> Any:
        return self.selected

    def __call__(self, admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse:
        return choose(admin, request, self, queryset)


# The table with actions


class ActionsAdmin(BoundedAdmin):
    """A table to whose rows something can be done.

    Attributes:
        actions: what can be done here; each has a route.
        named_by: the columns that the name of a row is made of.
        takes_all: whether actions are done to everything that matches, in the background.
    """

    actions: tuple[AdminAction, ...] = ()
    named_by: tuple[str, ...] = ("task",)
    largest_selection = MOST_JOBS
    takes_all = False

    def may(self, request: HttpRequest, permission: str) -> bool:
        return self.has_view_permission(request) and request.user.has_perm(f"{self.opts.app_label}.{permission}")

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> Any:
        """Leave out what this user may not do, and what is only done on a row's page.

        Django 6.1 and newer say on which page the actions are shown.
        """
        where = {} if action_location is None else {"action_location": action_location}
        hidden = {one.name for one in self.actions if not (one.selected and self.may(request, one.permission))}
        return {name: found for name, found in super().get_actions(request, **where).items() if name not in hidden}

    def keys(self, texts: Iterable[str]) -> list[Any]:
        """Return the primary keys that stand in a request, each once; BadRequest where one cannot be."""
        return job_ids(texts)

    def address(self, name: str, *args: Any) -> str:
        """Return the address of the list, of a row's page or of an action."""
        route = f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}"
        return reverse(route, args=args, current_app=self.admin_site.name)

    def offers(self, action: AdminAction, row: Any) -> bool:
        return True

    def chosen(self, request: HttpRequest) -> Filter | None:
        """Return what a list shows, on all its pages and beyond its window; asked only of tables that take all.

        None: one row by its id, or none, which no filter says.
        """
        raise NotImplementedError


# The steps of an action


def choose(admin: ActionsAdmin, request: HttpRequest, action: AdminAction, queryset: QuerySet[Any]) -> HttpResponse:
    """Take what was ticked to the confirmation: a job that has left the filter since is not dropped in silence."""
    is_for_all = request.POST.get("select_across", "0") not in {"", "0"}
    if is_for_all and action.many:
        return HttpResponseRedirect(f"{admin.address(f'{action.name}_matching')}?{_narrowed(request).urlencode()}")
    if not is_for_all:
        ids = admin.keys(request.POST.getlist(ACTION_CHECKBOX_NAME))
    else:
        with bounded(queryset.db):
            ids = list(queryset.values_list("pk", flat=True)[: MOST_JOBS + 1])
    return confirm(admin, request, action, ids)


def act(admin: ActionsAdmin, request: HttpRequest, action: AdminAction) -> HttpResponse:
    """Ask for confirmation, or do it where that has been given."""
    if request.method != "POST":  # a login in between turned the button's POST into a GET
        return HttpResponseRedirect(_back(admin, request, []))
    ids = admin.keys(map(unquote, filter(None, request.POST.get("ids", "").split(","))))
    if "confirmed" not in request.POST:
        return confirm(admin, request, action, ids)
    return perform(admin, request, action, ids)


def confirm(
    admin: ActionsAdmin, request: HttpRequest, action: AdminAction, ids: Sequence[Any], form: Form | None = None
) -> HttpResponse:
    """Show what would happen to how many jobs, and ask for the rest; ``form``: as it was filled in, if invalid."""
    if refusal := _refusal(admin, request, action, ids):
        return refusal
    context = {
        **admin.admin_site.each_context(request),
        "title": action.question % {"count": len(ids)},
        "opts": admin.opts,
        "media": admin.media,
        "action": action,
        "form": form or (action.form() if action.form else None),
        "address": admin.address(action.name),
        "ids": ",".join(quote(str(row_id)) for row_id in ids),
        "filters": _filters(request),
        "is_page": "page" in request.POST,
        "back": _back(admin, request, ids),
        "jobs": _named(admin, ids[:MOST_NAMED]),
        "unnamed": max(len(ids) - MOST_NAMED, 0),
    }
    request.current_app = admin.admin_site.name
    return TemplateResponse(request, "admin/django_pgqueue/confirmation.html", context)


def perform(admin: ActionsAdmin, request: HttpRequest, action: AdminAction, ids: Sequence[Any]) -> HttpResponse:
    """Do it and write the audit log, both or neither; then say what came of it.

    Where the log is in another database, it commits first: a crash in between leaves an entry too many, not too few.
    """
    if refusal := _refusal(admin, request, action, ids):
        return refusal
    form = action.form(request.POST) if action.form else None
    if form is not None and not form.is_valid():
        return confirm(admin, request, action, ids, form)
    params, by = form.cleaned_data if form else {}, request.user.get_username()
    with transaction.atomic(using=conf.database), transaction.atomic(using=router.db_for_write(LogEntry)):
        changes = [change for change in action.perform(ids, by, conf.database, params) if change.ids]
        for change in changes:
            _log(request, change)
    for change in changes:
        admin.message_user(request, _message(admin, request, change), messages.SUCCESS)
    _tell_skipped(admin, request, action, set(ids).difference(*(change.ids for change in changes)))
    return HttpResponseRedirect(_back(admin, request, ids))


def _message(admin: ActionsAdmin, request: HttpRequest, change: Change) -> str:
    message: str = change.message % {"count": len(change.ids)}
    if len(change.ids) != 1 or change.rows is not None or change.model is admin.model:
        return message
    [row_id] = change.ids
    address = Links(request, admin.admin_site).to_row(str(change.model._meta.model_name), row_id)  # noqa: SLF001 - Django's own idiom
    if not address:
        return message
    return format_html('{} <a href="{}">{}</a>', message, address, _("Show job %(id)s") % {"id": row_id})


def _refusal(admin: ActionsAdmin, request: HttpRequest, action: AdminAction, ids: Sequence[Any]) -> HttpResponse | None:
    if not admin.may(request, action.permission):
        raise PermissionDenied
    if not ids:
        text = _("Nothing was selected, so nothing was changed.")
        admin.message_user(request, text, messages.WARNING)
    elif len(ids) > MOST_JOBS:
        text = _("One action takes up to %(most)s jobs. Nothing was changed; narrow the list or select fewer.")
        admin.message_user(request, text % {"most": whole(MOST_JOBS)}, messages.ERROR)
    else:
        return None
    return HttpResponseRedirect(_back(admin, request, ids))


def _log(request: HttpRequest, change: Change) -> None:
    changed: Any = change.rows
    if changed is None:
        rows = change.model._default_manager.using(conf.database)  # noqa: SLF001 - Django's own idiom
        changed = rows.only("pk", change.named_by).filter(pk__in=change.ids)
    flag = CHANGE if change.rows is None else DELETION
    LogEntry.objects.log_actions(request.user.pk, changed, flag, change.entry)  # type: ignore[arg-type]


def _tell_skipped(admin: ActionsAdmin, request: HttpRequest, action: AdminAction, ids: Collection[Any]) -> None:
    reasons = action.explain(ids, conf.database) if ids else {}
    for why, count in reasons.items():
        text = _("Left alone: %(count)s (%(why)s).") % {"count": whole(count), "why": why}
        admin.message_user(request, text, messages.WARNING)


def _named(admin: ActionsAdmin, ids: Sequence[Any]) -> list[Model]:
    found = admin.model._default_manager.using(conf.database).only("pk", *admin.named_by).in_bulk(ids)  # noqa: SLF001
    return [found[job_id] for job_id in ids if job_id in found]


def _back(admin: ActionsAdmin, request: HttpRequest, ids: Sequence[Any]) -> str:
    if "page" in request.POST and len(ids) == 1 and _named(admin, ids):
        return admin.address("change", quote(ids[0]))
    filters = _filters(request)
    return admin.address("changelist") + (f"?{filters}" if filters else "")


def _narrowed(request: HttpRequest) -> QueryDict:
    asked = request.GET.copy()
    for name in CURSORS:
        asked.pop(name, None)
    return asked


def _filters(request: HttpRequest) -> str:
    return QueryDict(request.POST.get("filters", request.GET.urlencode())).urlencode()
