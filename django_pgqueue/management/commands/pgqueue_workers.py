from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error, transaction
from django.utils.translation import override

from django_pgqueue import workers
from django_pgqueue.cli.arguments import add_by, add_database, add_json, add_queue, check_database, job_id
from django_pgqueue.conf import conf
from django_pgqueue.insights.formatting import json_text, user
from django_pgqueue.insights.worker_info import WorkerState, as_json, states_of, table, with_clock
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.models import Worker


class Request(NamedTuple):
    """What staff may ask commands to do."""

    to: str
    help: str
    perform: Callable[..., list[int]]
    of: tuple[str, ...]  # states of those that --queue and --all choose


REQUESTS = {
    "quiet": Request("be quiet", "let their commands claim no more jobs until resume", workers.quiet, ("busy", "idle")),
    "resume": Request("claim jobs again", "let quiet commands claim jobs again", workers.resume, ("quiet",)),
    "stop": Request(
        *("stop", "let their commands stop as on SIGTERM, all processes of each", workers.stop),
        ("busy", "idle", "quiet"),
    ),
}


class Command(BaseCommand):
    help = "List worker processes with their running jobs, and ask their commands to stop, to be quiet or to resume."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(metavar="ACTION", required=True)
        listing = actions.add_parser("list", help="processes, whether they live, and their running jobs")
        add_queue(listing, "those that serve one of these queues")
        add_json(listing)
        listing.set_defaults(call=self._list)
        add_database(listing)
        for name, request in REQUESTS.items():
            asking = actions.add_parser(name, help=request.help)
            asking.add_argument(
                "ids", nargs="*", type=job_id, metavar="ID", help="of these processes, as list names them"
            )
            add_queue(asking, "of those that serve one of these queues")
            add_json(asking)
            asking.add_argument("--all", action="store_true", help="of all that are alive")
            add_by(asking)
            asking.set_defaults(call=self._ask, request=request)
            add_database(asking)

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        options["database"] = options["database"] or conf.database
        try:
            check_database(options["database"])
            options["call"](options)
        except Error as error:
            raise CommandError(str(error).strip()) from error

    def _list(self, options: dict[str, Any]) -> None:
        found = serving(options)
        if options["json"]:
            self.stdout.write(json_text([as_json(state) for state in found]))
        else:
            self.stdout.write(table(found) if found else "There is no worker.")

    def _ask(self, options: dict[str, Any]) -> None:
        request: Request = options["request"]
        given = [name for name in ("ids", "queue", "all") if options[name]]
        if len(given) != 1:
            raise CommandError(
                "Say which workers, in one way: give ids, as pgqueue_workers list has them, --queue or --all."
            )
        ids = options["ids"] or [state.row.pk for state in serving(options) if state.word in request.of]
        with transaction.atomic(using=options["database"]):
            asked = request.perform(ids, by=options["by"] or user(), database=options["database"])
        if options["json"]:
            rows = with_clock(Worker.objects.using(options["database"]).filter(pk__in=asked).order_by("pk"))
            self.stdout.write(json_text([as_json(state) for state in states_of(rows, options["database"])]))
        else:
            none = f"No worker was asked to {request.to}."
            self.stdout.write(f"Asked to {request.to}: {_listed(asked)}." if asked else none)
        if skipped := sorted(set(ids) - set(asked)):
            self._name_others(skipped, options["database"])

    def _name_others(self, ids: list[int], alias: str) -> None:
        there = set(Worker.objects.using(alias).filter(pk__in=ids).values_list("pk", flat=True))
        if unknown := [one for one in ids if one not in there]:
            raise CommandError(f"There is no worker {_listed(unknown)}. See: manage.py pgqueue_workers list")
        raise CommandError(
            f"Left alone: {_listed(ids)}. They were asked before, or another session is just changing them."
        )


def serving(options: dict[str, Any]) -> list[WorkerState]:
    """Return the states of the processes, only those of the chosen queues, if any."""
    rows = with_clock(Worker.objects.using(options["database"]).order_by("host", "pid", "id"))
    chosen = [row for row in rows if not options["queue"] or QueueSelector.of(row.queues).among(options["queue"])]
    return states_of(chosen, options["database"])


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))
