"""Actions on all rows that a filter finds."""

from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, override

from django_pgqueue.admin.actions import ActionsAdmin, AdminAction, audited
from django_pgqueue.admin.base import bounded_page
from django_pgqueue.admin.changelist import CAP, list_database
from django_pgqueue.admin.filters import stage_named
from django_pgqueue.admin.formatting import entry_line
from django_pgqueue.conf import conf
from django_pgqueue.db.queries import TookTooLong, bounded
from django_pgqueue.insights.formatting import at_most, duration
from django_pgqueue.insights.history import title_of
from django_pgqueue.insights.worker_info import has_living_worker
from django_pgqueue.jobs.actions import LIVE, Action
from django_pgqueue.jobs.bulk_actions import FASTEST, begin
from django_pgqueue.jobs.search import Filter, Source
from django_pgqueue.models import BulkAction, DeadJob
from django_pgqueue.states import REASONS, STATUSES

LISTS = {Source.LIVE: "job", Source.DEAD: "deadjob", Source.SUCCEEDED: "succeededjob"}  # models
KINDS = {Source.LIVE: "status", Source.DEAD: "reason"}
EVERY = {
    Source.LIVE: gettext_lazy("all jobs"),
    Source.DEAD: gettext_lazy("all dead jobs"),
    Source.SUCCEEDED: gettext_lazy("all succeeded jobs"),
}
UNLISTED = ("older_than_seconds", "error", "before")  # what no list can be narrowed by

SLOWEST = 0.01


def sentence(chosen: Filter, source: Source) -> str:
    return "; ".join(f"{name}: {value}" for name, value in in_words(chosen, source)) or str(EVERY[source])


def in_words(chosen: Filter, source: Source) -> Iterator[tuple[str, str]]:
    """Yield what a filter asks for: names and values; nothing where it matches all jobs."""
    kind = _("reason") if source is Source.DEAD else _("status")
    kinds = () if chosen.kinds == LIVE else chosen.kinds
    labels = REASONS if source is Source.DEAD else STATUSES
    named = [str(labels.get(word, word)) for word in kinds]
    for name, values in (
        (kind, named),
        (_("queue"), chosen.queues),
        (_("task"), chosen.tasks),
        (_("tag"), chosen.tags),
    ):
        if values:
            yield name, ", ".join(values)
    if chosen.stage is not None:
        yield _("stage"), stage_named(chosen.stage, conf.database_here)
    if chosen.cause is not None:
        yield _("died of"), _cause(chosen.cause)
    if chosen.older_than_seconds is not None:
        yield _("older than"), duration(round(chosen.older_than_seconds), most_units=4)
    for name, text in (
        (_("task begins with"), chosen.task_prefix),
        (_("last error"), chosen.error),
        (_("unique key"), chosen.unique_key),
        (chosen.argument_name or _("any argument"), chosen.argument),
        (_("day"), chosen.day),
    ):
        if text is not None:
            yield name, text


def _cause(cause: int) -> str:
    latest = DeadJob.objects.using(conf.database_here).filter(cause=cause).order_by("-died_at", "-id")
    found = latest.only("task", "reason", "errors").first()
    if found is None:
        return _("a cause of which no job is dead now (%(number)s)") % {"number": cause}
    error = found.errors[-1] if isinstance(found.errors, list) and found.errors else None
    return f"{found.task}: {title_of(error) or found.reason}" if isinstance(error, dict) else entry_line(error)


def query(chosen: Filter, source: Source) -> dict[str, Any] | None:
    """Return the filters of the list that shows the same jobs; None: no list can."""
    kinds = () if chosen.kinds == LIVE else chosen.kinds  # which a list shows without being asked
    several = any(len(values) > 1 for values in (chosen.queues, chosen.tasks, chosen.tags, kinds))
    before = f"{chosen.argument_name}=" if chosen.argument_name else "arg:"
    terms = [
        chosen.task_prefix,
        None if chosen.unique_key is None else f"key:{chosen.unique_key}",
        f"tag:{chosen.tags[0]}" if chosen.tags else None,
        None if chosen.argument is None else f"{before}{chosen.argument}",
    ]
    if several or any(getattr(chosen, name) is not None for name in UNLISTED) or sum(map(bool, terms)) > 1:
        return None
    filters = {
        KINDS.get(source, ""): next(iter(kinds), None),
        "queue": next(iter(chosen.queues), None),
        "task": next(iter(chosen.tasks), None),
        "cause": chosen.cause,
        "stage": chosen.stage,
        "day": chosen.day,
        "q": next(filter(None, terms), None),
    }
    return {name: value for name, value in filters.items() if name and value is not None}


class RateForm(forms.Form):
    rate = forms.FloatField(
        label=gettext_lazy("Jobs a second, at most"),
        required=False,
        min_value=SLOWEST,
        max_value=FASTEST,
        help_text=gettext_lazy("Empty: as fast as it goes."),
    )


@bounded_page
def matching(admin: ActionsAdmin, request: HttpRequest, action: AdminAction) -> HttpResponse:
    """Ask whether to act on all that the list of this address shows, or begin; the form goes to the same address."""
    many = action.many
    if not admin.may(request, action.permission) or many is None:
        raise PermissionDenied
    back = admin.address("changelist", query=request.GET.urlencode())
    try:
        chosen, count = admin.chosen(request), _count(admin, request)
    except IncorrectLookupParameters:
        return HttpResponseRedirect(back)
    if chosen is None:
        text = _("This search cannot be written as a filter. Nothing was changed; select the jobs one by one.")
        admin.message_user(request, text, messages.ERROR)
        return HttpResponseRedirect(back)
    given = request.POST if request.method == "POST" else None
    asked = [form(given) for form in (action.form, RateForm) if form]
    if given is not None and all(form.is_valid() for form in asked):
        params = {name: value for form in asked for name, value in form.cleaned_data.items()}
        bulk_action_id = _begin(request, many, chosen, params, count)
        page = admin.links(request).to_row("bulkaction", bulk_action_id)
        admin.message_user(request, _begun(bulk_action_id, page), messages.SUCCESS)
        return HttpResponseRedirect(page or back)
    return admin.page(
        request,
        "matching",
        many.question_for_all,
        media=admin.media + forms.Media(css={"all": ["django_pgqueue/bulk_actions.css"]}),
        action=action,
        forms=asked,
        count=counted(count),
        words=in_words(chosen, many.source),
        has_worker=has_living_worker(conf.database_here),
        back=back,
    )


def _count(admin: ActionsAdmin, request: HttpRequest) -> int | None:
    """Count to ``CAP + 1`` in the order of the list; None: it takes too long, or the list shows one window only."""
    try:
        with bounded(list_database(request)):
            shown: Any = admin.get_changelist_instance(request)
            if shown.window is not None and (shown.further or shown.begins["below"]):
                return None
            return len(shown.queryset.values_list("pk", flat=True)[: CAP + 1])
    except TookTooLong:
        return None


def _begin(request: HttpRequest, many: Action, chosen: Filter, params: dict[str, Any], count: int | None) -> int:
    by = request.user.get_username()
    rate = params.pop("rate")
    with audited(request) as log:
        bulk_action_id = begin(many, chosen, by=by, params=params, rate=rate, expected=count)
        with override("en"):  # stored, so not translated
            entry = f"Begun: {many.name}, {sentence(chosen, many.source)}; {counted(count)} matched."
        log([BulkAction.objects.using(conf.database_here).get(pk=bulk_action_id)], ADDITION, entry)
    return bulk_action_id


def _begun(bulk_action_id: int, page: str) -> str:
    if page:
        return _("It has begun, in the background. This page shows how far it is.")
    return _("It has begun, in the background, as bulk action %(number)s.") % {"number": bulk_action_id}


def counted(count: int | None) -> str:
    return _("an unknown number") if count is None else at_most(count, CAP)
