"""Dead jobs by cause: what broke last night, and what to do about all of it at once."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.formats import time_format
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from django_pgqueue.admin.actions import ActionsAdmin
from django_pgqueue.admin.bounded import bounded_page
from django_pgqueue.admin.formatting import label, moment
from django_pgqueue.admin.job_actions import PURGE, RETRY
from django_pgqueue.admin.keyset import DIED_AT, ID, BadCursor, IndexOrder
from django_pgqueue.admin.links import crumbs
from django_pgqueue.conf import conf
from django_pgqueue.insights.dead_groups import CAP, DeadGroup, HourCount, dead_groups
from django_pgqueue.insights.formatting import at_most, whole
from django_pgqueue.states import REASONS

LATEST = IndexOrder((DIED_AT, ID), ())  # of which only the keys are used
HEIGHTS = 8


class HourBar(NamedTuple):
    """An hour, as it is drawn."""

    height: int  # 0 to HEIGHTS
    words: str


class GroupRow(NamedTuple):
    """A cause, as it is shown."""

    cause: DeadGroup
    reason: str
    jobs: str
    first: str
    last: str
    bars: list[HourBar]
    day: str  # the bars in words
    caption: str  # what they are, and how many the highest one stands for
    address: str  # of the list of these jobs
    latest: str  # address of the latest of them
    ways_on: list[tuple[Any, str]]  # what can be done to all of them, and where


@bounded_page
def dead_groups_view(admin: ActionsAdmin, request: HttpRequest) -> HttpResponse:
    """Show a page of the causes, the latest first."""
    if not admin.has_view_permission(request):
        raise PermissionDenied
    found = dead_groups(conf.database, now=timezone.now(), behind=_begins(request))
    last = found.causes[-1] if found.causes else None
    context = {
        **admin.admin_site.each_context(request),
        "title": _("Dead jobs by cause"),
        "opts": admin.opts,
        "media": admin.media,
        "crumbs": crumbs(admin.admin_site, admin.opts, (_("By cause"), "")),
        "lines": [_line(cause, admin, request) for cause in found.causes],
        "is_first": "after" not in request.GET,
        "is_partial": found.is_partial,
        "next": f"?{urlencode({'after': _cursor(last)})}" if last and found.is_more else "",
    }
    request.current_app = admin.admin_site.name
    return TemplateResponse(request, "admin/django_pgqueue/causes.html", context)


def _begins(request: HttpRequest) -> Sequence[str] | None:
    cursor = request.GET.get("after")
    if not cursor:
        return None
    try:
        return LATEST.values(cursor)
    except BadCursor:
        messages.warning(request, _("The address does not say where that page begins. This is the first one."))
        return None


def _cursor(cause: DeadGroup) -> str:
    return json.dumps([cause.last_at.isoformat(), str(cause.number)])


def _line(cause: DeadGroup, admin: ActionsAdmin, request: HttpRequest) -> GroupRow:
    narrowed = urlencode({"cause": cause.number})
    verbs = [(RETRY, _("Retry these…")), (PURGE, _("Purge these…"))]
    return GroupRow(
        cause=cause,
        reason=label(cause.reason, str(REASONS.get(cause.reason, cause.reason))),
        jobs=at_most(cause.jobs, CAP),
        first=moment(cause.first_at),
        last=moment(cause.last_at),
        bars=[HourBar(-(-HEIGHTS * hour.number // (cause.most or 1)), _hour(hour)) for hour in cause.hours],
        day=_day(cause),
        caption=_("deaths by the hour, last 24 h; highest: %(number)s") % {"number": whole(cause.most)},
        address=f"{admin.address('changelist')}?{narrowed}",
        latest=admin.address("change", cause.job_id),
        ways_on=[
            (words, f"{admin.address(f'{verb.name}_matching')}?{narrowed}")
            for verb, words in verbs
            if admin.may(request, verb)
        ],
    )


def _hour(hour: HourCount) -> str:
    """Return an hour and its number, as ``14:00: 3``."""
    begins = timezone.localtime(hour.begins_at)
    return f"{time_format(begins.time(), 'H:i')}: {whole(hour.number)}"


def _day(cause: DeadGroup) -> str:
    """Return the bars in words."""
    if not cause.in_the_day:
        return _("None in the last 24 hours.")
    hours = ", ".join(_hour(hour) for hour in cause.hours if hour.number)
    return _("In the last 24 hours, by the hour: %(hours)s.") % {"hours": hours}
