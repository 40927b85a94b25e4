"""Count the outcomes of the calls, to decide whether to flip the flag."""

import datetime as dt
from collections.abc import Collection
from typing import Any

from django.db.models import Count, F, Q
from django.db.models.functions import Now

from django_pgqueue.conf import conf
from django_pgqueue.contrib.cutover.enqueue import Stage
from django_pgqueue.contrib.cutover.models import FAILED, SUCCEEDED, Call

SLICE = 10_000

BOTH_ENDED = ~Q(old_outcome="") & ~Q(new_outcome="")
SAME = Q(old_outcome=F("new_outcome"), old_detail=F("new_detail")) & ~Q(old_detail="")
DIFFERING = Q(compares=True) & BOTH_ENDED & ~SAME
OLD_IS_DUE = Q(old_outcome="") & (Q(compares=True) | Q(stage=Stage.OLD_LEADS))
NEW_IS_DUE = Q(new_outcome="") & (Q(compares=True) | Q(stage=Stage.NEW_LEADS))
UNFINISHED = Q(old_arrived_at=None) | Q(new_arrived_at=None) | OLD_IS_DUE | NEW_IS_DUE


def counts(missing_after: dt.timedelta, tasks: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return a row of counts for each task and stage, of all tasks or of those named.

    Args:
        missing_after: age from which on a call is missing that has not arrived, or not ended where it runs.
    """
    calls = Call.objects.using(conf.database)
    if tasks:
        calls = calls.filter(task__in=tasks)
    rows = (
        calls.values("task", "stage")
        .annotate(
            sent=Count("pk"),
            old_arrived=Count("old_arrived_at"),
            old_succeeded=Count("pk", filter=Q(old_outcome=SUCCEEDED)),
            old_failed=Count("pk", filter=Q(old_outcome=FAILED)),
            new_arrived=Count("new_arrived_at"),
            new_succeeded=Count("pk", filter=Q(new_outcome=SUCCEEDED)),
            new_failed=Count("pk", filter=Q(new_outcome=FAILED)),
            compared=Count("pk", filter=Q(compares=True) & BOTH_ENDED),
            differing=Count("pk", filter=DIFFERING),
            missing=Count("pk", filter=UNFINISHED & Q(enqueued_at__lte=Now() - missing_after)),
        )
        .order_by("task", "stage")
    )
    return [dict(row) for row in rows]


def prune(older_than: dt.timedelta) -> int:
    """Remove the rows of calls that are older than an age, in slices; return how many."""
    removed = 0
    calls = Call.objects.using(conf.database)
    while ids := list(calls.filter(enqueued_at__lte=Now() - older_than).values_list("pk", flat=True)[:SLICE]):
        removed += calls.filter(pk__in=ids).delete()[0]
    return removed
