import dataclasses
import re
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.admin.actions import audited
from django_pgqueue.admin.base import QueueAdminBase, ReadOnlyAdmin
from django_pgqueue.admin.changelist import CAP
from django_pgqueue.admin.confirm_all import LISTS, counted, in_words, query, sentence
from django_pgqueue.admin.formatting import column_of, exact_moment, label, moment
from django_pgqueue.admin.links import crumbs
from django_pgqueue.conf import conf
from django_pgqueue.exceptions import InvalidBulkAction
from django_pgqueue.insights.formatting import grouped, short
from django_pgqueue.insights.worker_info import has_living_worker, seen, skipped_of
from django_pgqueue.jobs.actions import MESSAGES, PRIORITY, QUEUE, Action, JobChange, action_named
from django_pgqueue.jobs.bulk_actions import filter_of, stop
from django_pgqueue.jobs.search import Filter, Source
from django_pgqueue.models import BulkAction

STOP = "stop_bulkaction"  # permission

ONE_JOB = re.compile(r"Job \d+: ")  # begins an error about a job which was left alone, not one that ends all


@admin.register(BulkAction)
class BulkActionAdmin(ReadOnlyAdmin, QueueAdminBase):
    """A change to many jobs, with its progress, its results, and a button that stops it."""

    list_display = ("what", "filter_words", "progress", "state", "by", "created")
    list_display_links = ("what",)
    ordering = ("-id",)
    list_per_page = list_max_show_all = 50
    actions = None
    change_list_template = "admin/pgqueue/bulk_actions.html"
    change_form_template = "admin/pgqueue/bulk_action.html"

    created = column_of("created_at", gettext_lazy("asked for"), moment)

    class Media:
        css = {"all": ["django_pgqueue/bulk_actions.css"]}

    def get_urls(self) -> list[URLPattern]:
        return [self.pattern("<path:object_id>/stop/", "stop", self.stop_view), *super().get_urls()]

    def stop_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        if not self.may(request, STOP):
            raise PermissionDenied
        bulk_action: Any = self.get_object(request, unquote(object_id))
        if bulk_action is None:
            return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)  # type: ignore[attr-defined,no-any-return]
        if request.method == "POST":
            with audited(request) as log:
                stopped = stop([bulk_action.pk], by=request.user.get_username(), database=conf.database_here)
                if stopped:
                    log([bulk_action], CHANGE, "Stopped.")
            if stopped:
                self.message_user(request, _("It was stopped. Finished work is not undone."), messages.SUCCESS)
            else:
                self.message_user(request, _("It had ended already."), messages.WARNING)
        return HttpResponseRedirect(self.address("change", bulk_action.pk))

    def context_of(self, request: HttpRequest, bulk_action: BulkAction) -> dict[str, Any]:
        chosen, source = stored_filter(bulk_action), source_of(bulk_action)
        links = self.links(request)
        filters = query(chosen, source) if chosen and source else None
        is_open = bulk_action.ended_at is None
        rate = None if bulk_action.rate is None else short(bulk_action.rate, 6)
        counts = bulk_action.outcome if isinstance(bulk_action.outcome, dict) else {}
        return {
            "title": f"{self.what(bulk_action)} #{bulk_action.pk}",
            "subtitle": "",
            "crumbs": crumbs(self.admin_site, self.opts, (bulk_action, "")),
            "bulk_action": bulk_action,
            "state": self.state(bulk_action),
            "words": in_words(chosen, source) if chosen and source else [],
            "is_readable": chosen is not None,
            "list_address": links.to_list(LISTS[source], **filters) if source and filters is not None else "",
            "params": params_of(bulk_action),
            "rate": _("as fast as it goes") if rate is None else _("at most %(rate)s jobs a second") % {"rate": rate},
            "bar": progress_bar(bulk_action),
            "expected": counted(bulk_action.expected),
            "outcome": [str(MESSAGES[change] % {"count": counts[change]}) for change in JobChange if change in counts],
            "skipped": [(why.label, grouped(count)) for why, count in skipped_of(bulk_action)],
            "times": [
                (_("asked for"), exact_moment(bulk_action.created_at)),
                (_("begun"), exact_moment(bulk_action.started_at)),
                (_("ended"), exact_moment(bulk_action.ended_at)),
            ],
            "is_forsaken": is_open and not has_living_worker(conf.database_here),
            "history_address": self.address("history", bulk_action.pk),
            "stop_address": self.address("stop", bulk_action.pk) if is_open and self.may(request, STOP) else "",
        }

    @admin.display(description=gettext_lazy("bulk action"))
    def what(self, bulk_action: BulkAction) -> str:
        action = action_of(bulk_action)
        words = str(action.label).rstrip("…") if action else bulk_action.action
        params = ", ".join(str(value) for _name, value in params_of(bulk_action))
        return f"{words}: {params}" if params else words

    @admin.display(description=gettext_lazy("jobs"))
    def filter_words(self, bulk_action: BulkAction) -> str:
        chosen, source = stored_filter(bulk_action), source_of(bulk_action)
        words = sentence(chosen, source) if chosen and source else _("a filter that this code cannot read")
        return format_html('<div class="pgqueue-line" title="{}">{}</div>', words, words)

    @admin.display(description=gettext_lazy("progress"))
    def progress(self, bulk_action: BulkAction) -> str:
        context = {"bar": progress_bar(bulk_action), "bulk_action": bulk_action}
        return render_to_string("admin/pgqueue/progress.html", context)

    @admin.display(description=gettext_lazy("state"))
    def state(self, bulk_action: BulkAction) -> str:
        return label(*state_of(bulk_action))


@dataclasses.dataclass(frozen=True)
class ProgressBar:
    words: str
    value: int | None = None  # None: it is not known of how many
    largest: int = 1


def progress_bar(bulk_action: BulkAction) -> ProgressBar:
    """Return how far it is; of how many jobs is known where they could be counted."""
    passed = seen(bulk_action)
    if state_of(bulk_action)[0] == "succeeded":
        return ProgressBar(grouped(bulk_action.done), 1, 1)
    if bulk_action.expected is None:
        return ProgressBar(_("%(done)s so far") % {"done": grouped(passed)})
    total = max(bulk_action.expected, passed)
    if bulk_action.expected > CAP:
        return ProgressBar(_("%(done)s of %(total)s") % {"done": grouped(passed), "total": counted(total)})
    words = _("%(done)s of %(total)s") % {"done": grouped(passed), "total": grouped(total)}
    return ProgressBar(words, passed, max(total, 1))


def state_of(bulk_action: BulkAction) -> tuple[str, Any]:
    """Return a class for the stylesheet, and the text."""
    if bulk_action.stopped_at is not None:
        return "paused", _("stopped by %(name)s") % {"name": bulk_action.stopped_by}
    if bulk_action.ended_at is not None:
        is_of_a_job = ONE_JOB.match(bulk_action.last_error) is not None
        return ("succeeded", _("done")) if is_of_a_job or not bulk_action.last_error else ("exhausted", _("failed"))
    return ("running", _("under way")) if bulk_action.started_at is not None else ("queued", _("not begun yet"))


def params_of(bulk_action: BulkAction) -> list[tuple[str, Any]]:
    labels: dict[Any, str] = {param.name: str(param.label) for param in (QUEUE, PRIORITY)}
    params = bulk_action.params if isinstance(bulk_action.params, dict) else {}
    return [(labels.get(name) or name, value) for name, value in sorted(params.items())]


def source_of(bulk_action: BulkAction) -> Source | None:
    """Return which jobs it is for; None where this code does not know them."""
    return next((source for source in Source if source == bulk_action.source), None)


def stored_filter(bulk_action: BulkAction) -> Filter | None:
    """Return its filter; None where this code cannot read it."""
    try:
        return filter_of(bulk_action.filter)
    except (InvalidBulkAction, TypeError):
        return None


def action_of(bulk_action: BulkAction) -> Action | None:
    """Return its action; None where this code does not know it."""
    try:
        return action_named(bulk_action.action, bulk_action.source)
    except InvalidBulkAction:
        return None
