"""What people read in place of the words of ``states.py``, in their language. Programs get the words themselves."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from django_pgqueue.base.states import DEAD, FINISHED, CatchUp, Reason, Status

STATUSES: Mapping[str, Any] = {
    Status.SCHEDULED: _("scheduled"),
    Status.QUEUED: _("queued"),
    Status.WAITING: _("waiting"),
    Status.RUNNING: _("running"),
    Status.HELD: _("held"),
    DEAD: _("dead"),
    FINISHED: _("finished"),
}

REASONS: Mapping[str, Any] = {
    Reason.EXHAUSTED: _("exhausted"),
    Reason.DISCARDED: _("discarded"),
    Reason.LOST: _("lost"),
    Reason.KILLED: _("killed"),
    Reason.EXPIRED: _("expired"),
    Reason.UNKNOWN_TASK: _("unknown task"),
    Reason.SUPERSEDED: _("superseded"),
}

CATCH_UPS: Mapping[str, Any] = {
    CatchUp.LAST: pgettext_lazy("missed ticks", "last"),
    CatchUp.NONE: pgettext_lazy("missed ticks", "none"),
    CatchUp.ALL: pgettext_lazy("missed ticks", "all"),
}


def label_of(status: str, reason: str = "") -> str:
    """Return where a job is, and why it died if it has, as in "dead (killed)"."""
    words = str(STATUSES.get(status, status))
    return f"{words} ({REASONS.get(reason, reason)})" if reason else words
