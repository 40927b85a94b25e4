import datetime as dt
import json
from collections.abc import Collection
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error
from django.db.models import Count, F, Q
from django.db.models.functions import Now

from django_pgqueue.cli.arguments import add_json, duration
from django_pgqueue.conf import conf
from django_pgqueue.contrib.cutover.enqueue import CutoverStage
from django_pgqueue.contrib.cutover.models import FAILED, SUCCEEDED, CutoverCall
from django_pgqueue.insights.formatting import columns, plain


class Command(BaseCommand):
    """Say what became of the calls that both queues got, and whether the flag may be flipped."""

    help = "Compare what both queues made of the calls they got. Exit code 1: some are missing, or results differ."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tasks", nargs="*", metavar="TASK", help="default: all")
        parser.add_argument(
            "--missing-after",
            type=duration,
            default="10m",
            metavar="DURATION",
            help="such as 90s, 15m, 2h; default: 10m",
        )
        add_json(parser)
        parser.add_argument(
            "--prune", type=duration, metavar="DURATION", help="only remove calls enqueued longer ago than this"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["prune"] is not None:
                self.stdout.write(f"Calls removed: {prune(options['prune']):,}.")
                return
            rows = counts(options["missing_after"], options["tasks"])
        except Error as error:
            raise CommandError(str(error).strip()) from error
        if options["json"]:
            self.stdout.write(json.dumps(rows, indent=2))
        else:
            lines = [list(row.values()) for row in rows]
            self.stdout.write(columns([name.replace("_", " ") for name in rows[0]], lines) if rows else "No calls yet.")
        _judge(rows, options["tasks"])


def _judge(rows: list[dict[str, Any]], tasks: list[str]) -> None:
    if unseen := sorted(set(tasks).difference(row["task"] for row in rows)):
        raise CommandError(f"No call of {', '.join(map(plain, unseen))} has gone to both sides.")
    if wrong := {name: total for name in ("missing", "differing") if (total := sum(row[name] for row in rows))}:
        raise CommandError(f"Do not flip yet: {', '.join(f'{total:,} {name}' for name, total in wrong.items())}.")


# Outcomes of the calls, to decide whether to flip the flag


SLICE = 10_000

BOTH_ENDED = ~Q(old_outcome="") & ~Q(new_outcome="")
SAME = Q(old_outcome=F("new_outcome"), old_detail=F("new_detail")) & ~Q(old_detail="")
DIFFERING = Q(compares=True) & BOTH_ENDED & ~SAME
OLD_IS_DUE = Q(old_outcome="") & (Q(compares=True) | Q(stage=CutoverStage.OLD_LEADS))
NEW_IS_DUE = Q(new_outcome="") & (Q(compares=True) | Q(stage=CutoverStage.NEW_LEADS))
UNFINISHED = Q(old_arrived_at=None) | Q(new_arrived_at=None) | OLD_IS_DUE | NEW_IS_DUE


def counts(missing_after: dt.timedelta, tasks: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return a row of counts for each task and stage, of all tasks or of those named.

    Args:
        missing_after: age from which on a call is missing that has not arrived, or not ended where it runs.
    """
    calls = CutoverCall.objects.using(conf.database)
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
    calls = CutoverCall.objects.using(conf.database)
    while ids := list(calls.filter(enqueued_at__lte=Now() - older_than).values_list("pk", flat=True)[:SLICE]):
        removed += calls.filter(pk__in=ids).delete()[0]
    return removed
