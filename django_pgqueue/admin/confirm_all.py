"""Actions on all rows that a filter finds."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.models import ADDITION, LogEntry
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.db import router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, override

from django_pgqueue.admin.actions import ActionsAdmin, AdminAction
from django_pgqueue.admin.changelist import CAP
from django_pgqueue.admin.formatting import one_line
from django_pgqueue.admin.links import Links, crumbs
from django_pgqueue.conf import conf
from django_pgqueue.insights.bounded import TookTooLong, bounded
from django_pgqueue.insights.formatting import at_most, duration
from django_pgqueue.insights.history import title_of
from django_pgqueue.insights.worker_info import has_living_worker
from django_pgqueue.jobs.actions import LIVE, Action
from django_pgqueue.jobs.bulk_actions import FASTEST, begin
from django_pgqueue.jobs.search import Filter, Source
from django_pgqueue.models import BulkAction, DeadJob
from django_pgqueue.states import REASONS, STATUSES

LISTS = {Source.LIVE: "job", Source.DEAD: "deadjob", Source.FINISHED: "finishedjob"}  # models

KINDS = {Source.LIVE: "status", Source.DEAD: "reason"}
UNLISTED = ("older_than_seconds", "error", "before")  # what no list can be narrowed by

SLOWEST = 0.01


def in_words(chosen: Filter, source: Source) -> list[tuple[str, str]]:
    """Return what a filter asks for: names and values; empty where it matches all jobs."""
    return list(_words(chosen, source))


def sentence(chosen: Filter, source: Source) -> str:
    """Return the same in one line."""
    words = [f"{name}: {value}" for name, value in in_words(chosen, source)]
    return "; ".join(words) or _every(source)


def _every(source: Source) -> str:
    return {
        Source.LIVE: _("all jobs"),
        Source.DEAD: _("all dead jobs"),
        Source.FINISHED: _("all finished jobs"),
    }[source]


def _words(chosen: Filter, source: Source) -> Iterator[tuple[str, str]]:
    kind = _("reason") if source is Source.DEAD else _("status")
    kinds = () if chosen.kinds == LIVE else chosen.kinds
    labels = REASONS if source is Source.DEAD else STATUSES
    named = [str(labels.get(word, word)) for word in kinds]
    for name, values in ((kind, named), (_("queue"), chosen.queues), (_("task"), chosen.tasks)):
        if values:
            yield name, ", ".join(values)
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
    latest = DeadJob.objects.using(conf.database).filter(cause=cause).order_by("-died_at", "-id")
    found = latest.only("task", "reason", "errors").first()
    if found is None:
        return _("a cause of which no job is dead now (%(number)s)") % {"number": cause}
    error = found.errors[-1] if isinstance(found.errors, list) and found.errors else None
    return f"{found.task}: {title_of(error) or found.reason}" if isinstance(error, dict) else one_line(error)


def query(chosen: Filter, source: Source) -> dict[str, Any] | None:
    """Return the filters of the list that shows the same jobs; None: no list can."""
    kinds = () if chosen.kinds == LIVE else chosen.kinds  # which a list shows without being asked
    several = any(len(values) > 1 for values in (chosen.queues, chosen.tasks, kinds))
    before = f"{chosen.argument_name}=" if chosen.argument_name else "arg:"
    terms = [
        chosen.task_prefix,
        None if chosen.unique_key is None else f"key:{chosen.unique_key}",
        None if chosen.argument is None else f"{before}{chosen.argument}",
    ]
    if several or any(getattr(chosen, name) is not None for name in UNLISTED) or sum(map(bool, terms)) > 1:
        return None
    filters = {
        KINDS.get(source, ""): next(iter(kinds), None),
        "queue": next(iter(chosen.queues), None),
        "task": next(iter(chosen.tasks), None),
        "cause": chosen.cause,
        "day": chosen.day,
        "q": next(filter(None, terms), None),
    }
    return {name: value for name, value in filters.items() if name and value is not None}


# Counting the rows that match


class RateForm(forms.Form):
    """The rate at which a bulk action goes."""

    rate = forms.FloatField(
        label=gettext_lazy("Jobs a second, at most"),
        required=False,
        min_value=SLOWEST,
        max_value=FASTEST,
        help_text=gettext_lazy("Empty: as fast as it goes."),
    )


def matching(admin: ActionsAdmin, request: HttpRequest, action: AdminAction) -> HttpResponse:
    """Ask whether to act on all that the list of this address shows, or begin; the form goes to the same address."""
    if not admin.may(request, action.permission) or action.many is None:
        raise PermissionDenied
    back = f"{admin.address('changelist')}?{request.GET.urlencode()}"
    try:
        chosen, count = admin.chosen(request), _count(admin, request)
    except IncorrectLookupParameters:
        return HttpResponseRedirect(back)
    if chosen is None:
        text = _("What was searched for cannot be said as a filter. Nothing was changed; select the jobs one by one.")
        admin.message_user(request, text, messages.ERROR)
        return HttpResponseRedirect(back)
    question = Confirmation(admin, request, action, action.many, chosen, count, back)
    forms_asked = question.needed()
    if request.method == "POST" and all(form.is_valid() for form in forms_asked):
        return question.begin({name: value for form in forms_asked for name, value in form.cleaned_data.items()})
    return question.ask(forms_asked)


def _count(admin: ActionsAdmin, request: HttpRequest) -> int | None:
    """Count to ``CAP + 1`` in the order of the list; None: it takes too long, or the list shows one window only."""
    try:
        with bounded():
            shown: Any = admin.get_changelist_instance(request)
            found: Any = shown.queryset
            if shown.window is not None and (shown.further or shown.begins["below"]):
                return None
            return len(found.values_list("pk", flat=True)[: CAP + 1])
    except TookTooLong:
        return None


@dataclasses.dataclass(frozen=True)
class Confirmation:
    """Whether an action is to be done to everything that matches."""

    admin: ActionsAdmin
    request: HttpRequest
    action: AdminAction
    many: Action
    chosen: Filter
    count: int | None
    back: str  # where the list is

    def needed(self) -> list[forms.Form]:
        given = self.request.POST if self.request.method == "POST" else None
        return [form(given) for form in (self.action.form, RateForm) if form]

    def ask(self, forms_asked: Sequence[forms.Form]) -> HttpResponse:
        context = {
            **self.admin.admin_site.each_context(self.request),
            "title": self.action.question_for_all,
            "opts": self.admin.opts,
            "crumbs": crumbs(self.admin.admin_site, self.admin.opts, (self.action.question_for_all, "")),
            "media": self.admin.media + forms.Media(css={"all": ["django_pgqueue/bulk_actions.css"]}),
            "action": self.action,
            "forms": forms_asked,
            "count": counted(self.count),
            "words": in_words(self.chosen, self.many.source),
            "has_worker": has_living_worker(conf.database),
            "back": self.back,
        }
        self.request.current_app = self.admin.admin_site.name
        return TemplateResponse(self.request, "admin/django_pgqueue/matching.html", context)

    def begin(self, params: dict[str, Any]) -> HttpResponse:
        with transaction.atomic(using=conf.database), transaction.atomic(using=router.db_for_write(LogEntry)):
            bulk_action_id = self._begin(params, rate=params.pop("rate"))
        page = Links(self.request, self.admin.admin_site).to_row("bulkaction", bulk_action_id)
        if page:
            text = _("It has begun, in the background. This page shows how far it is.")
        else:
            text = _("It has begun, in the background, as bulk action %(number)s.") % {"number": bulk_action_id}
        self.admin.message_user(self.request, text, messages.SUCCESS)
        return HttpResponseRedirect(page or self.back)

    def _begin(self, params: dict[str, Any], *, rate: float | None) -> int:
        by = self.request.user.get_username()
        bulk_action_id = begin(
            self.many, self.chosen, by=by, params=params, rate=rate, expected=self.count, database=conf.database
        )
        with override("en"):  # stored, so not translated
            words = sentence(self.chosen, self.many.source)
            entry = f"Begun: {self.action.name}, {words}; {counted(self.count)} matched."
        begun: Any = [BulkAction.objects.using(conf.database).get(pk=bulk_action_id)]
        LogEntry.objects.log_actions(self.request.user.pk, begun, ADDITION, entry)  # type: ignore[arg-type]
        return bulk_action_id


def counted(count: int | None) -> str:
    """Say how many match."""
    if count is None:
        return _("an unknown number")
    return at_most(count, CAP)
