"""What staff may do to workers: ask them to stop."""

from collections import Counter
from collections.abc import Collection
from typing import Any

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_pgqueue.admin.verbs.verb import Change, Said, Verb
from django_pgqueue.jobs.leases import request_stop
from django_pgqueue.models import Worker

GONE = _("not here any more, or just being changed by its heartbeat; try again")


def _stop(ids: Collection[int], by: str, alias: str, _said: Said) -> list[Change]:
    message = ngettext_lazy(
        "%(count)d worker process was asked to stop.", "%(count)d worker processes were asked to stop.", "count"
    )
    return [Change(Worker, request_stop(ids, by=by, database=alias), "Asked to stop.", message, "host")]


def _why_not_asked(ids: Collection[int], alias: str) -> Counter[Any]:
    asked = Worker.objects.using(alias).filter(pk__in=ids, stop_requested_at__isnull=False).count()
    return +Counter({_("asked before"): asked, GONE: len(ids) - asked})


STOP = Verb(
    name="stop",
    permission="stop_worker",
    label=_("Ask to stop"),
    question=ngettext_lazy("Ask %(count)d worker process to stop?", "Ask %(count)d worker processes to stop?", "count"),
    consequence=_(
        "The whole command stops, with all its processes, also those that are not named here. It takes no more jobs, "
        "and those that run have its grace to end; what does not end goes back. Whatever has started the command may "
        "start it again. If no other worker serves its queues, their jobs wait."
    ),
    perform=_stop,
    explain=_why_not_asked,
    is_destructive=True,
)
