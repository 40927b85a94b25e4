"""From a button to a changed job: choose, confirm, perform, tell. The right to do it is checked at every step."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import router, transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from django_pgqueue.admin.listing import along_an_index
from django_pgqueue.admin.verbs import Change, Verb
from django_pgqueue.base.conf import conf

if TYPE_CHECKING:
    from django_pgqueue.admin.base import JobsAdmin

MOST_JOBS = 1000  # that one action takes
MOST_NAMED = 20  # that the confirmation names
LARGEST_ID = 2**63 - 1


def choose(admin: "JobsAdmin", request: HttpRequest, verb: Verb, queryset: QuerySet[Any]) -> HttpResponse:
    """Take the selection of the list to the confirmation.

    The ids are those that were ticked: a job that has left the filter since then is not dropped in silence.
    """
    if request.POST.get("select_across", "0") in {"", "0"}:
        ids = _ids(request.POST.getlist(ACTION_CHECKBOX_NAME))
    else:
        with along_an_index(queryset.db):
            ids = list(queryset.values_list("pk", flat=True)[: MOST_JOBS + 1])
    return confirm(admin, request, verb, ids)


def act(admin: "JobsAdmin", request: HttpRequest, verb: Verb) -> HttpResponse:
    """Ask for confirmation, or do it where that has been given."""
    if request.method != "POST":  # a login in between turned the button's POST into a GET
        return HttpResponseRedirect(_back(admin, request, []))
    ids = _ids(filter(None, request.POST.get("ids", "").split(",")))
    if "confirmed" not in request.POST:
        return confirm(admin, request, verb, ids)
    return perform(admin, request, verb, ids)


def confirm(admin: "JobsAdmin", request: HttpRequest, verb: Verb, ids: Sequence[int]) -> HttpResponse:
    """Show what would happen to how many jobs."""
    if refusal := _refusal(admin, request, verb, ids):
        return refusal
    context = {
        **admin.admin_site.each_context(request),
        "title": verb.question % {"count": len(ids)},
        "opts": admin.opts,
        "media": admin.media,
        "verb": verb,
        "address": admin.address(verb.name),
        "ids": ",".join(map(str, ids)),
        "filters": _filters(request),
        "is_page": "page" in request.POST,
        "back": _back(admin, request, ids),
        "jobs": _named(admin.model, ids[:MOST_NAMED]),
        "unnamed": max(len(ids) - MOST_NAMED, 0),
    }
    request.current_app = admin.admin_site.name
    return TemplateResponse(request, "admin/django_pgqueue/confirmation.html", context)


def perform(admin: "JobsAdmin", request: HttpRequest, verb: Verb, ids: Sequence[int]) -> HttpResponse:
    """Do it and write the audit log, both or neither; then say what came of it.

    Where the log is in another database, it commits first: a crash in between leaves an entry too many, not too few.
    """
    if refusal := _refusal(admin, request, verb, ids):
        return refusal
    with transaction.atomic(using=conf.database), transaction.atomic(using=router.db_for_write(LogEntry)):
        changes = [change for change in verb.perform(ids, request.user.get_username(), conf.database) if change.ids]
        for change in changes:
            _log(request, change)
    for change in changes:
        admin.message_user(request, change.message % {"count": len(change.ids)}, messages.SUCCESS)
    _tell_skipped(admin, request, verb, set(ids).difference(*(change.ids for change in changes)))
    return HttpResponseRedirect(_back(admin, request, ids))


def _refusal(admin: "JobsAdmin", request: HttpRequest, verb: Verb, ids: Sequence[int]) -> HttpResponse | None:
    if not admin.may(request, verb):
        raise PermissionDenied
    if not ids:
        admin.message_user(request, _("No jobs were selected. Nothing was changed."), messages.WARNING)
    elif len(ids) > MOST_JOBS:
        text = _("One action takes up to %(most)s jobs. Nothing was changed; narrow the list or select fewer.")
        admin.message_user(request, text % {"most": f"{MOST_JOBS:,}"}, messages.ERROR)
    else:
        return None
    return HttpResponseRedirect(_back(admin, request, ids))


def _log(request: HttpRequest, change: Change) -> None:
    jobs = change.model._default_manager.using(conf.database).only("pk", "task")  # noqa: SLF001 - Django's own idiom
    changed = jobs.filter(pk__in=change.ids)
    LogEntry.objects.log_actions(request.user.pk, changed, CHANGE, change.entry)  # type: ignore[arg-type]


def _tell_skipped(admin: "JobsAdmin", request: HttpRequest, verb: Verb, ids: Collection[int]) -> None:
    reasons = verb.explain(ids, conf.database) if ids else {}
    for why, count in reasons.items():
        text = _("Left alone: %(count)d (%(why)s).") % {"count": count, "why": why}
        admin.message_user(request, text, messages.WARNING)


def _named(model: type[Model], ids: Sequence[int]) -> list[Model]:
    found = model._default_manager.using(conf.database).only("pk", "task").in_bulk(ids)  # noqa: SLF001
    return [found[job_id] for job_id in ids if job_id in found]


def _back(admin: "JobsAdmin", request: HttpRequest, ids: Sequence[int]) -> str:
    """Return where the user came from: the page of a job that is still here, or the list with its filters."""
    if "page" in request.POST and len(ids) == 1 and _named(admin.model, ids):
        return admin.address("change", ids[0])
    filters = _filters(request)
    return admin.address("changelist") + (f"?{filters}" if filters else "")


def _filters(request: HttpRequest) -> str:
    return QueryDict(request.POST.get("filters", request.GET.urlencode())).urlencode()


def _ids(texts: Iterable[str]) -> list[int]:
    try:
        ids = list(dict.fromkeys(map(int, texts)))
    except ValueError as error:
        raise BadRequest(f"A job's id is a number: {error}.") from error
    if any(not -LARGEST_ID <= job_id <= LARGEST_ID for job_id in ids):
        raise BadRequest("A job's id has 64 bits.")
    return ids
