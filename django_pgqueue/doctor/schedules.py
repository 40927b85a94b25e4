"""Look whether schedules fire."""

import datetime as dt
from collections.abc import Iterator

from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue.doctor.finding import Finding, Level, View, named
from django_pgqueue.models import Schedule

LATE = dt.timedelta(minutes=1)  # of a tick that became no job: workers look every second
IS_LATE = Q(is_enabled=True, next_at__lt=Now() - LATE)

MOST_LOOKED_AT = 100


def late_schedules(view: View) -> Iterator[Finding]:
    late = _names(view, IS_LATE, order="next_at")
    if not late:
        return
    yield Finding(
        name="schedules-late",
        level=Level.ERROR,
        what=ngettext("%(number)s schedule is late: %(names)s.", "%(number)s schedules are late: %(names)s.", len(late))
        % {"number": len(late), "names": named(late)},
        remedy=_(
            "Any worker enqueues due schedules; for a schedule of the code, one that has that code. Start one, or look "
            "into the log of those that run."
        ),
        facts={"schedules": late},
    )


def refused_schedules(view: View) -> Iterator[Finding]:
    wrong = _names(view, Q(is_enabled=True) & ~Q(last_error=""), order="name")
    if not wrong:
        return
    yield Finding(
        name="schedules-refused",
        level=Level.ERROR,
        what=ngettext(
            "The last tick of %(number)s schedule became no job: %(names)s.",
            "The last ticks of %(number)s schedules became no jobs: %(names)s.",
            len(wrong),
        )
        % {"number": len(wrong), "names": named(wrong)},
        remedy=_("The page of the schedule says why. Fix it there or in the code, or pause it."),
        facts={"schedules": wrong},
    )


def _names(view: View, where: Q, *, order: str) -> list[str]:
    names = Schedule.objects.using(view.alias).filter(where).order_by(order).values_list("name", flat=True)
    return list(names[:MOST_LOOKED_AT])
