from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.core.management.base import CommandError, CommandParser
from django.db import transaction
from django.utils.translation import override

from django_pgqueue import workers
from django_pgqueue.cli.arguments import (
    add_by,
    add_database,
    add_json,
    add_queue,
    check_failures,
    job_id,
    on_each,
    sections,
)
from django_pgqueue.cli.command import QueueCommand
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


class Command(QueueCommand):
    help = "List worker processes with their running jobs, and ask their commands to stop, to be quiet or to resume."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(metavar="ACTION", required=True)
        listing = actions.add_parser("list", help="processes, whether they live, and their running jobs")
        add_queue(listing, "those that serve one of these queues")
        add_json(listing)
        listing.set_defaults(call=self._list)
        add_database(listing, default="all that hold a queue")
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
            add_database(asking, default="all that hold a queue")

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        options["call"](options)

    def _list(self, options: dict[str, Any]) -> None:
        found, failures = on_each(options["database"], lambda alias: _serving(alias, options["queue"]))
        if options["json"]:
            self._write_json(found)
        else:
            texts = {alias: table(states) if states else "There is no worker." for alias, states in found.items()}
            self._write(sections(texts, failures))
        check_failures(failures)

    def _ask(self, options: dict[str, Any]) -> None:
        request: Request = options["request"]
        given = [name for name in ("ids", "queue", "all") if options[name]]
        if len(given) != 1:
            raise CommandError(
                "Say which workers, in one way: give ids, as pgqueue_workers list has them, --queue or --all."
            )
        if options["ids"] and not options["database"] and len(conf.databases) > 1:
            raise CommandError(
                f"Say --database with ids of workers: each of {_listed(conf.databases)} numbers its own from 1."
            )
        found, failures = on_each(options["database"], lambda alias: _asked(request, alias, options))
        if options["json"]:
            self._write_json({alias: _states(alias, asked) for alias, (_, asked) in found.items()})
        else:
            texts = {alias: _told(request, asked) for alias, (_, asked) in found.items()}
            self._write(sections(texts, failures))
        check_failures(failures)
        skipped = {alias: sorted(set(ids) - set(asked)) for alias, (ids, asked) in found.items()}
        if reasons := [_why_not(ids, alias) for alias, ids in skipped.items() if ids]:
            raise CommandError(" ".join(reasons))

    def _write(self, text: str) -> None:
        if text:  # else no database could be used
            self.stdout.write(text)

    def _write_json(self, found: Mapping[str, Sequence[WorkerState]]) -> None:
        rows = [{"database": alias, **as_json(state)} for alias, states in found.items() for state in states]
        self.stdout.write(json_text(rows))


def _serving(alias: str, queues: Sequence[str]) -> list[WorkerState]:
    """Return the states of the processes on a database, only those of the chosen queues, if any."""
    rows = with_clock(Worker.objects.using(alias).order_by("host", "pid", "id"))
    chosen = [row for row in rows if not queues or QueueSelector.of(row.queues).among(queues)]
    return states_of(chosen, alias)


def _asked(request: Request, alias: str, options: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Ask the chosen processes on a database; return the ids of the chosen ones, and of those that were asked."""
    ids = options["ids"] or [state.row.pk for state in _serving(alias, options["queue"]) if state.word in request.of]
    with transaction.atomic(using=alias):
        return ids, request.perform(ids, by=options["by"] or user(), database=alias)


def _told(request: Request, asked: Sequence[int]) -> str:
    return f"Asked to {request.to}: {_listed(asked)}." if asked else f"No worker was asked to {request.to}."


def _states(alias: str, ids: Sequence[int]) -> list[WorkerState]:
    return states_of(with_clock(Worker.objects.using(alias).filter(pk__in=ids).order_by("pk")), alias)


def _why_not(ids: list[int], alias: str) -> str:
    """Return why these workers were not asked."""
    there = set(Worker.objects.using(alias).filter(pk__in=ids).values_list("pk", flat=True))
    if unknown := [one for one in ids if one not in there]:
        return f"There is no worker {_listed(unknown)}. See: manage.py pgqueue_workers list"
    return f"Left alone: {_listed(ids)}. They were asked before, or another session is just changing them."


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names))
