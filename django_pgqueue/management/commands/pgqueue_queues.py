import argparse
import contextlib
from collections.abc import Callable, Iterable
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import transaction
from django.utils.translation import override

from django_pgqueue import queues
from django_pgqueue.cli.arguments import (
    add_by,
    add_database,
    add_json,
    check_failures,
    check_seen,
    duration,
    instant,
    names_by_database,
    number_or_none,
    on_each,
    rate_or_none,
    sections,
)
from django_pgqueue.cli.command import QueueCommand
from django_pgqueue.db.queries import bounded
from django_pgqueue.exceptions import InvalidLimit
from django_pgqueue.insights.formatting import json_text, plain, user
from django_pgqueue.insights.overview import QueueLine, as_json, limits_as_json, limits_of, lines_of, names, table
from django_pgqueue.models import Queue

UNSAID = object()


class Command(QueueCommand):
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
            add_database(sub, default="all that hold a queue" if sub is listing else "each that the queues are on")

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        try:
            options["call"](options)
        except InvalidLimit as error:
            raise CommandError(f"Nothing was changed. {error}") from error

    def _list(self, options: dict[str, Any]) -> None:
        found, failures = on_each(options["database"], lambda alias: _lines(alias, options["names"]))
        known = {alias: [line for line in lines if line.is_known] for alias, lines in found.items()}
        if options["json"]:
            rows = [{"database": alias, **as_json(line)} for alias, lines in known.items() for line in lines]
            self.stdout.write(json_text(rows))
        else:
            nothing = "None of these queues is here." if options["names"] else "There are no queues yet."
            texts = {alias: table(lines) if lines else nothing for alias, lines in known.items()}
            self._write(sections(texts, failures))
        check_failures(failures)
        check_seen(line for lines in found.values() for line in lines)

    def _pause(self, options: dict[str, Any]) -> None:
        how = {"by": options["by"] or user(), "reason": options["reason"], "resume_at": options["resume_at"]}

        def pause(name: str, alias: str) -> str:
            is_known = Queue.objects.using(alias).filter(name=name).exists()
            is_new = queues.pause(name, **how, database=alias)
            unseen = "" if is_known else " No job has been seen on it yet."
            return f"{'paused' if is_new else 'paused already, and now as you say'}.{unseen}"

        self._change(pause, options)

    def _resume(self, options: dict[str, Any]) -> None:
        def resume(name: str, alias: str) -> str:
            was_paused = queues.resume(name, by=options["by"] or user(), database=alias)
            return "resumed." if was_paused else "was not paused."

        self._change(resume, options)

    def _limit(self, options: dict[str, Any]) -> None:
        limits = limits_from(options)

        def limit(name: str, alias: str) -> str:
            queues.limit(name, **limits, by=options["by"] or user(), database=alias)
            return f"{_limits_now(name, alias)}."

        self._change(limit, options)

    def _restore(self, options: dict[str, Any]) -> None:
        def restore(name: str, alias: str) -> str:
            was_edited = queues.restore(name, by=options["by"] or user(), database=alias)
            return f"{_limits_now(name, alias)}{'' if was_edited else ', as before'}."

        self._change(restore, options)

    def _change(self, change: Callable[[str, str], str], options: dict[str, Any]) -> None:
        """Change the queues on each of their databases, in one transaction there, and print a line for each.

        As JSON, print the pauses and limits that they have now.
        """
        names = names_by_database(options["names"], options["database"])

        with contextlib.ExitStack() as transactions:  # to their end together: what one refuses is done on none

            def act(alias: str) -> dict[str, str]:
                transactions.enter_context(transaction.atomic(using=alias))
                return {name: change(name, alias) for name in names[alias]}

            found, failures = on_each(names, act)
        if options["json"]:
            rows = [{"database": alias, **row} for alias, said in found.items() for row in limits_as_json(said, alias)]
            self.stdout.write(json_text(rows))
        else:
            texts = {
                alias: "\n".join(f"{plain(name)}: {it}" for name, it in said.items()) for alias, said in found.items()
            }
            self._write(sections(texts, failures))
        check_failures(failures)

    def _write(self, text: str) -> None:
        if text:  # else no database could be used
            self.stdout.write(text)


def _lines(alias: str, chosen: Iterable[str]) -> list[QueueLine]:
    with bounded(alias):
        return lines_of(sorted(set(chosen)) or names(alias), alias)


def _limits_now(name: str, alias: str) -> str:
    return limits_of(Queue.objects.using(alias).get(pk=name)) or "no limit"


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
