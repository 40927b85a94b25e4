"""From "all that match" to an operation: show the filter, the count and what will happen; then begin it."""

import dataclasses
from collections.abc import Sequence
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

from django_pgqueue.admin.lists.listing import CAP
from django_pgqueue.admin.parts.crumbs import crumbs
from django_pgqueue.admin.parts.links import Links
from django_pgqueue.admin.verbs.filtered import in_words, sentence
from django_pgqueue.admin.verbs.table import VerbsAdmin
from django_pgqueue.admin.verbs.verb import Verb
from django_pgqueue.conf import conf
from django_pgqueue.insights.bounded import TookTooLong, bounded
from django_pgqueue.insights.formatting import at_most
from django_pgqueue.insights.worker_info import somebody_works
from django_pgqueue.jobs import actions
from django_pgqueue.jobs.bulk_actions import FASTEST, begin
from django_pgqueue.jobs.search import Filter
from django_pgqueue.models import Operation

SLOWEST = 0.01


class RateForm(forms.Form):
    """How fast."""

    rate = forms.FloatField(
        label=gettext_lazy("Jobs a second, at most"),
        required=False,
        min_value=SLOWEST,
        max_value=FASTEST,
        help_text=gettext_lazy("Empty: as fast as it goes."),
    )


def matching(admin: VerbsAdmin, request: HttpRequest, verb: Verb) -> HttpResponse:
    """Ask whether it is to be done to everything that the list of this address shows, or begin it.

    The filter is that of the address; the form is sent to the same one.
    """
    if not admin.may(request, verb) or verb.many is None:
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
    question = Question(admin, request, verb, verb.many, chosen, count, back)
    forms_asked = question.needed()
    if request.method == "POST" and all(form.is_valid() for form in forms_asked):
        return question.begin({name: value for form in forms_asked for name, value in form.cleaned_data.items()})
    return question.ask(forms_asked)


def _count(admin: VerbsAdmin, request: HttpRequest) -> int | None:
    """Count to ``CAP`` and one further, in the order of the list; None: that would take too long.

    Nobody knows either where the list shows what one window of it has.
    """
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
class Question:
    """Whether a verb is to be done to everything that matches."""

    admin: VerbsAdmin
    request: HttpRequest
    verb: Verb
    many: actions.Verb
    chosen: Filter
    count: int | None
    back: str  # where the list is

    def needed(self) -> list[forms.Form]:
        """Return what else has to be known, as it was filled in if it was."""
        given = self.request.POST if self.request.method == "POST" else None
        return [form(given) for form in (self.verb.form, RateForm) if form]

    def ask(self, forms_asked: Sequence[forms.Form]) -> HttpResponse:
        """Show what would happen to how many jobs."""
        context = {
            **self.admin.admin_site.each_context(self.request),
            "title": self.verb.question_for_all,
            "opts": self.admin.opts,
            "crumbs": crumbs(self.admin.admin_site, self.admin.opts, (self.verb.question_for_all, "")),
            "media": self.admin.media + forms.Media(css={"all": ["django_pgqueue/operations.css"]}),
            "verb": self.verb,
            "forms": forms_asked,
            "count": counted(self.count),
            "words": in_words(self.chosen, self.many.source),
            "somebody_works": somebody_works(conf.database),
            "back": self.back,
        }
        self.request.current_app = self.admin.admin_site.name
        return TemplateResponse(self.request, "admin/django_pgqueue/matching.html", context)

    def begin(self, said: dict[str, Any]) -> HttpResponse:
        """Begin it and write the audit log, both or neither; then show how far it is to those who may see that."""
        with transaction.atomic(using=conf.database), transaction.atomic(using=router.db_for_write(LogEntry)):
            operation_id = self._begin(said, rate=said.pop("rate"))
        page = Links(self.request, self.admin.admin_site).to_row("operation", operation_id)
        if page:
            text = _("It has begun, in the background. This page shows how far it is.")
        else:
            text = _("It has begun, in the background, as operation %(number)s.") % {"number": operation_id}
        self.admin.message_user(self.request, text, messages.SUCCESS)
        return HttpResponseRedirect(page or self.back)

    def _begin(self, said: dict[str, Any], *, rate: float | None) -> int:
        by = self.request.user.get_username()
        operation_id = begin(
            self.many, self.chosen, by=by, said=said, rate=rate, expected=self.count, database=conf.database
        )
        with override("en"):  # stored, so not translated
            words = sentence(self.chosen, self.many.source)
            entry = f"Begun: {self.verb.name}, {words}; {counted(self.count)} matched."
        begun: Any = [Operation.objects.using(conf.database).get(pk=operation_id)]
        LogEntry.objects.log_actions(self.request.user.pk, begun, ADDITION, entry)  # type: ignore[arg-type]
        return operation_id


def counted(count: int | None) -> str:
    """Say how many match."""
    if count is None:
        return _("nobody knows how many")
    return at_most(count, CAP)
