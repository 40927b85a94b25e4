import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error

from django_pgqueue.cli.arguments import age
from django_pgqueue.contrib.cutover.report import counts, prune
from django_pgqueue.insights.formatting import columns, plain


class Command(BaseCommand):
    """Say what became of the calls that both queues got, and whether the flag may be flipped."""

    help = "Compare what both queues made of the calls they got. Exit code 1: some are missing, or results differ."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tasks", nargs="*", metavar="TASK", help="default: all")
        parser.add_argument(
            "--missing-after", type=age, default="10m", metavar="AGE", help="such as 90s, 15m, 2h; default: 10m"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.add_argument("--prune", type=age, metavar="AGE", help="only remove calls enqueued so long ago")

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
    """Raise CommandError unless the rows speak for flipping the flag."""
    if unseen := sorted(set(tasks).difference(row["task"] for row in rows)):
        raise CommandError(f"No call of {', '.join(map(plain, unseen))} has gone to both sides.")
    if wrong := {name: total for name in ("missing", "differing") if (total := sum(row[name] for row in rows))}:
        raise CommandError(f"Do not flip yet: {', '.join(f'{total:,} {name}' for name, total in wrong.items())}.")
