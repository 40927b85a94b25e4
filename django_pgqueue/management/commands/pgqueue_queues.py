import argparse
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error, transaction
from django.utils.translation import override

from django_pgqueue import queues
from django_pgqueue.cli.arguments import (
    add_by,
    add_database,
    add_json,
    check_database,
    check_seen,
    database_of_queues,
    duration,
    instant,
    number_or_none,
    rate_or_none,
)
from django_pgqueue.db.queries import TookTooLong, bounded
from django_pgqueue.exceptions import InvalidLimit
from django_pgqueue.insights.formatting import json_text, plain, user
from django_pgqueue.insights.overview import as_json, limits_as_json, limits_of, lines_of, names, table
from django_pgqueue.models import Queue

UNSAID = object()


class Command(BaseCommand):
    help = "List queues with their jobs and limits; pause, resume and limit them, for all workers together."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(metavar="ACTION", required=True)
        listing = actions.add_parser(
            "list", help="how many jobs queues have, who has paused them, how they are limited"
        )
        listing.add_argument("names", nargs="*", metavar="NAME", help="default: all")
        add_json(listing)
        pause = actions.add_parser("pause", help="let no worker start jobs of these queues; running jobs go on")
        add_pause(pause)
        resume = actions.add_parser("resume", help="let workers start jobs of these queues again")
        resume.add_argument("names", nargs="+", metavar="NAME")
        limit = actions.add_parser("limit", help="limit these queues; limits that are not named stay")
        add_limits(limit)
        restore = actions.add_parser("restore", help="give these queues the limits of PGQUEUE['QUEUES'] again")
        restore.add_argument("names", nargs="+", metavar="NAME")
        for sub in (pause, resume, limit, restore):
            add_json(sub)
            add_by(sub)
        changes = ((pause, self._pause), (resume, self._resume), (limit, self._limit), (restore, self._restore))
        for sub, call in ((listing, self._list), *changes):
            sub.set_defaults(call=call)
            add_database(sub)

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        options["database"] = options["database"] or database_of_queues(options["names"])
        try:
            check_database(options["database"])
            with transaction.atomic(using=options["database"]):
                options["call"](options)
        except InvalidLimit as error:
            raise CommandError(f"Nothing was changed. {error}") from error
        except (Error, TookTooLong) as error:
            raise CommandError(str(error).strip()) from error

    def _list(self, options: dict[str, Any]) -> None:
        alias = options["database"]
        with bounded(alias):
            found = lines_of(sorted(set(options["names"])) or names(alias), alias)
        known = [line for line in found if line.is_known]
        if options["json"]:
            self.stdout.write(json_text([as_json(line) for line in known]))
        else:
            self.stdout.write(table(known) if known else "There are no queues yet.")
        check_seen(found)

    def _pause(self, options: dict[str, Any]) -> None:
        database, by = options["database"], options["by"] or user()
        known = set(Queue.objects.using(database).filter(name__in=options["names"]).values_list("name", flat=True))
        said = {}
        for name in options["names"]:
            is_new = queues.pause(
                name, by=by, reason=options["reason"], resume_at=options["resume_at"], database=database
            )
            unseen = "" if name in known else " No job has been seen on it yet."
            said[name] = f"{'paused' if is_new else 'paused already, and now as you say'}.{unseen}"
        self._tell(options, said)

    def _resume(self, options: dict[str, Any]) -> None:
        said = {}
        for name in options["names"]:
            was_paused = queues.resume(name, by=options["by"] or user(), database=options["database"])
            said[name] = "resumed." if was_paused else "was not paused."
        self._tell(options, said)

    def _limit(self, options: dict[str, Any]) -> None:
        said = {}
        for name in options["names"]:
            queues.limit(name, **limits_from(options), by=options["by"] or user(), database=options["database"])
            row = Queue.objects.using(options["database"]).get(pk=name)
            said[name] = f"{limits_of(row) or 'no limit'}."
        self._tell(options, said)

    def _restore(self, options: dict[str, Any]) -> None:
        said = {}
        for name in options["names"]:
            was_edited = queues.restore(name, by=options["by"] or user(), database=options["database"])
            row = Queue.objects.using(options["database"]).get(pk=name)
            said[name] = f"{limits_of(row) or 'no limit'}{'' if was_edited else ', as before'}."
        self._tell(options, said)

    def _tell(self, options: dict[str, Any], said: Mapping[str, str]) -> None:
        """Print the changes of each queue; as JSON, the pauses and limits that it has now."""
        if options["json"]:
            self.stdout.write(json_text(limits_as_json(said, options["database"])))
        else:
            self.stdout.write("\n".join(f"{plain(name)}: {what}" for name, what in said.items()))


def add_pause(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--reason", default="", help="why; shown to others")
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument(
        "--for", dest="resume_at", type=duration, metavar="DURATION", help="it ends by itself after 90s, 15m, 2h"
    )
    ends.add_argument("--until", dest="resume_at", type=instant, metavar="TIME", help="or at 2031-05-01T09:00")


def add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument(
        "--max-running",
        type=number_or_none,
        default=UNSAID,
        metavar="N",
        help="maximum number of jobs at once; or none",
    )
    parser.add_argument(
        "--rate",
        type=rate_or_none,
        default=UNSAID,
        metavar="RATE",
        help="maximum rate of starts: 100/s, 60/m, 5/10s; or none",
    )
    parser.add_argument("--burst", type=int, metavar="N", help="starts of the rate that may come at once")


def limits_from(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``queues.limit``; raise CommandError where nothing is to change."""
    limits: dict[str, Any] = {}
    if options["max_running"] is not UNSAID:
        limits["max_running"] = options["max_running"]
    if options["rate"] is not UNSAID:
        limits["rate"] = options["rate"]
    if options["burst"] is not None:
        limits["burst"] = options["burst"]
    if not limits:
        raise CommandError("Say what to limit: --max-running or --rate; none removes a limit.")
    return limits
