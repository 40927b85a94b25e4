"""What staff may do to queues: the verbs of ``flow/queue_limits.py``, in the words of the confirmation."""

import datetime as dt
from collections import Counter
from collections.abc import Collection
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_pgqueue.admin.verbs.verb import Change, Said, Verb
from django_pgqueue.flow.queue_limits import pause_queue, resume_queue
from django_pgqueue.insights.overview import lines_of
from django_pgqueue.models import Queue

LONGEST_REASON = 1000
MOST_MINUTES = 366 * 24 * 60

GONE = _("not here any more")


class PauseForm(forms.Form):
    """Why, and for how long."""

    reason = forms.CharField(label=_("Reason"), required=False, max_length=LONGEST_REASON)
    minutes = forms.IntegerField(
        label=_("Minutes"),
        required=False,
        min_value=1,
        max_value=MOST_MINUTES,
        help_text=_("The pause ends by itself after this time. Leave empty to pause until someone resumes the queue."),
    )


def _there(names: Collection[str], alias: str) -> list[str]:
    return list(Queue.objects.using(alias).filter(pk__in=names).order_by("pk").values_list("pk", flat=True))


def _there_or_with_jobs(names: Collection[str], alias: str) -> list[str]:
    """Return queues that can be paused: a pause makes the row of one that no worker has served yet."""
    there = _there(names, alias)
    others = [name for name in names if name not in there]
    return sorted([*there, *(line.name for line in lines_of(others, alias) if line.is_known)])


def _pause(names: Collection[str], by: str, alias: str, said: Said) -> list[Change]:
    message = ngettext_lazy("%(count)d queue is paused.", "%(count)d queues are paused.", "count")
    resume_at = dt.timedelta(minutes=said["minutes"]) if said["minutes"] else None
    there = _there_or_with_jobs(names, alias)
    for name in there:
        pause_queue(name, by=by, reason=said["reason"], resume_at=resume_at, database=alias)
    entry = f"Paused: {said['reason']}" if said["reason"] else "Paused."
    return [Change(Queue, there, entry, message, "name")]


def _resume(names: Collection[str], by: str, alias: str, _said: Said) -> list[Change]:
    message = ngettext_lazy("%(count)d queue was resumed.", "%(count)d queues were resumed.", "count")
    done = [name for name in _there(names, alias) if resume_queue(name, by=by, database=alias)]
    return [Change(Queue, done, "Resumed.", message, "name")]


def _why_not_paused(names: Collection[str], _alias: str) -> Counter[Any]:
    return Counter({GONE: len(names)})


def _why_not_resumed(names: Collection[str], alias: str) -> Counter[Any]:
    there = len(_there(names, alias))
    return +Counter({_("not paused"): there, GONE: len(names) - there})


PAUSE = Verb(
    name="pause",
    permission="pause_queue",
    label=_("Pause"),
    question=ngettext_lazy("Pause %(count)d queue?", "Pause %(count)d queues?", "count"),
    consequence=_(
        "No worker starts their jobs any more. Jobs that run are left alone, and jobs can still be enqueued. A queue "
        "that is paused already gets the new reason and time."
    ),
    perform=_pause,
    explain=_why_not_paused,
    form=PauseForm,
)
RESUME = Verb(
    name="resume",
    permission="pause_queue",
    label=_("Resume"),
    question=ngettext_lazy("Resume %(count)d queue?", "Resume %(count)d queues?", "count"),
    consequence=_("Workers start their jobs again, as far as their limits allow."),
    perform=_resume,
    explain=_why_not_resumed,
)
