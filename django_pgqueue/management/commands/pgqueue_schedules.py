from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import transaction
from django.utils.translation import override

from django_pgqueue import schedules
from django_pgqueue.cli.arguments import add_by, add_database, add_json, check_database
from django_pgqueue.cli.command import QueueCommand
from django_pgqueue.conf import conf
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.insights.formatting import json_text, plain, user
from django_pgqueue.insights.schedule_info import as_json, described, outcomes
from django_pgqueue.models import Schedule
from django_pgqueue.schedules.periodic import declared

CHANGES: dict[str, Any] = {"pause": schedules.pause, "resume": schedules.resume}


class Command(QueueCommand):
    help = "Schedules: list them with their next runs and the last outcome; run one now, pause or resume it."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
        listing = actions.add_parser("list", help="when they run next, and what became of the last job")
        listing.add_argument("names", nargs="*", metavar="NAME", help="default: all")
        add_json(listing)
        for action, meaning in (
            ("run", "enqueue a job of each now, in addition to those of its ticks"),
            ("pause", "let them miss their ticks until they are resumed"),
            ("resume", "let them go on with their next tick"),
        ):
            chosen = actions.add_parser(action, help=meaning)
            chosen.add_argument("names", nargs="+", metavar="NAME")
            add_json(chosen)
            add_by(chosen)
        for sub in actions.choices.values():
            add_database(sub)

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        options["database"] = options["database"] or conf.database
        options["names"] = list(dict.fromkeys(options["names"]))
        try:
            check_database(options["database"])
            done = self._list(options) if options["action"] == "list" else self._do(options)
            self._name_others(options, done)
        except PgQueueError as error:
            raise CommandError(f"Nothing was changed. {error}") from error

    def _do(self, options: dict[str, Any]) -> Collection[str]:
        names, action, alias = options["names"], options["action"], options["database"]
        by = options["by"] or user()
        jobs: Mapping[str, int] = {}
        with transaction.atomic(using=alias):
            if action == "run":
                jobs = schedules.run(names, by=by, database=alias)
                said = {name: f"job {job_id} is enqueued" for name, job_id in jobs.items()}
            else:
                said = dict.fromkeys(CHANGES[action](names, by=by, database=alias), f"{action}d")
        if options["json"]:
            self._print_json(list(Schedule.objects.using(alias).filter(name__in=said)), alias, jobs)
        else:
            for name, what in said.items():
                self.stdout.write(f"{plain(name)}: {what}.")
        return said

    def _list(self, options: dict[str, Any]) -> Collection[str]:
        known = Schedule.objects.using(options["database"])
        found = list(known.filter(name__in=options["names"]) if options["names"] else known.all())
        if options["json"]:
            self._print_json(found, options["database"])
        else:
            last = outcomes(found, options["database"])
            texts = ["\n  ".join([plain(one.name), *described(one, last.get(one.id))]) for one in found]
            self.stdout.write("\n".join(texts) if found or options["names"] else _nothing())
        return [one.name for one in found]

    def _print_json(self, found: Sequence[Schedule], alias: str, jobs: Mapping[str, int] | None = None) -> None:
        """Print how schedules are, each with the job of it that was enqueued just now, if one was."""
        last, jobs = outcomes(found, alias), jobs or {}
        told = [as_json(one, last.get(one.id)) | ({"job": jobs[one.name]} if one.name in jobs else {}) for one in found]
        self.stdout.write(json_text(told))

    def _name_others(self, options: dict[str, Any], done: Collection[str]) -> None:
        skipped = [name for name in options["names"] if name not in done]
        there = set(Schedule.objects.using(options["database"]).filter(name__in=skipped).values_list("name", flat=True))
        if unknown := [name for name in skipped if name not in there]:
            raise CommandError(f"There is no schedule {_listed(unknown)}. See: manage.py pgqueue_schedules list")
        if skipped:
            raise CommandError(
                f"Left alone: {_listed(skipped)}. They are {options['action']}d already, "
                "or another session is just changing them."
            )


def _nothing() -> str:
    """Return the text for an empty table, into which workers put the schedules of the code."""
    if not (number := len(declared())):
        return "There are no schedules."
    are = "1 declared schedule appears" if number == 1 else f"{number} declared schedules appear"
    return f"There are no schedules yet: {are} once a worker has run."


def _listed(names: list[str]) -> str:
    return ", ".join(plain(repr(name)) for name in names)
