import math
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils.translation import override

from django_pgqueue.cli.arguments import add_json, check_database
from django_pgqueue.cli.command import QueueCommand
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection, QueueConnection
from django_pgqueue.insights.formatting import json_text
from django_pgqueue.insights.retention import as_json, state_of, text_of
from django_pgqueue.maintenance.partitions import maintain_partitions
from django_pgqueue.maintenance.pruner import Pruner
from django_pgqueue.maintenance.vacuum import privileges

HELP = """
Show how long jobs are kept: the partitions of succeeded jobs with their sizes and ages, dead jobs, and what the next
pass of a worker does with them; and how the table of live jobs is maintained: dead rows, VACUUM, and
the sessions that keep them.
"""


class Command(QueueCommand):
    help = HELP

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "action",
            nargs="?",
            choices=("show", "run"),
            default="show",
            help="show, or do a pass now, as workers do by themselves, and then show; default: show",
        )
        add_json(parser)
        parser.add_argument("--database", metavar="ALIAS", help="default: PGQUEUE['MAINTENANCE_DATABASE']")

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"] or conf.maintenance_database
        check_database(alias)
        is_blocked = options["action"] == "run" and self._run(alias)
        state = state_of(alias)
        if options["json"]:
            self.stdout.write(json_text(as_json(state)))
        else:
            self.stdout.write("\n".join(text_of(state)))
        if is_blocked:
            raise CommandError("Another session blocks the maintenance of partitions. Workers try again by themselves.")

    def _run(self, alias: str) -> bool:
        """Return whether another session blocked the rest."""
        allowed = privileges(CallerConnection(alias))
        if allowed is None or not (allowed.may_partition and allowed.may_prune):
            raise CommandError(
                f"The role of {alias!r} may not do that: it does not own the tables. Set "
                "PGQUEUE['MAINTENANCE_DATABASE'] to an alias of the same database whose role does, or name one by "
                "--database."
            )
        database = QueueConnection(alias, "retention")
        try:
            kept = maintain_partitions(database, retention_days=conf.retention_days)
            pruned = Pruner(database, spell_seconds=math.inf).prune()
        finally:
            database.close()
        self.stderr.write(
            f"Partitions: {kept.made} made, {kept.dropped} dropped. Removed: {pruned.timed.removed:,} succeeded jobs "
            f"whose own time is over, {pruned.default.removed:,} of the default partition, "
            f"{pruned.dead.removed:,} dead jobs, {pruned.stats.removed:,} rows of counts."
        )
        return kept.is_blocked
