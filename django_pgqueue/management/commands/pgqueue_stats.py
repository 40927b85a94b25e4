import functools
import json
import os
import signal
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.management.color import supports_color
from django.core.serializers.json import DjangoJSONEncoder
from django.db import Error
from django.utils.translation import override

from django_pgqueue.cli.arguments import check_database, check_seen, minutes, pause
from django_pgqueue.cli.stats import MINUTES, StatsSnapshot, as_json, painted, snapshot
from django_pgqueue.cli.stats_watch import repeat, view, watch
from django_pgqueue.conf import conf
from django_pgqueue.insights.bounded import TookTooLong
from django_pgqueue.insights.formatting import plain

WATCH_SECONDS = 2.0

HELP = """
Show the queue at a glance: who works, what is wrong, and for each queue how many jobs there are, for how long the
oldest that could run has waited, what was done in the last minutes, and how long jobs waited and ran.
"""


class Command(BaseCommand):
    """Look once, or again and again, and print."""

    help = HELP

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queue", action="append", default=[], metavar="NAME", help="show this queue; repeatable")
        parser.add_argument(
            "--minutes", type=minutes, default=MINUTES, metavar="N", help=f"look back so far; default: {MINUTES}"
        )
        parser.add_argument("--tasks", action="store_true", help="show each task in its queue, too")
        parser.add_argument("--json", action="store_true", help="print JSON; with --watch an object on each line")
        parser.add_argument(
            "--watch", nargs="?", type=pause, const=WATCH_SECONDS, metavar="SECONDS",
            help=f"show it again and again; default: every {WATCH_SECONDS:g} seconds",
        )  # fmt: skip
        parser.add_argument("--database", metavar="ALIAS", help="default: PGQUEUE['DATABASE']")

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"] or conf.database
        read = functools.partial(
            snapshot, alias, queues=options["queue"], minutes=options["minutes"], with_tasks=options["tasks"]
        )
        try:
            check_database(alias)
            if options["watch"] is None:
                self._once(read(), options)
            elif self.stdout.isatty() and not options["json"]:
                self._watch(read, alias, options)
            else:
                repeat(read, functools.partial(self._print, options=options), alias=alias, seconds=options["watch"])
        except (Error, TookTooLong) as error:
            raise CommandError(str(error).strip()) from error
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be flushed goes nowhere
        except KeyboardInterrupt:
            if options["watch"] is None:
                raise

    def _once(self, glance: StatsSnapshot, options: dict[str, Any]) -> None:
        self._print(glance, options=options)
        check_seen(queue.line for queue in glance.queues)

    def _print(self, glance: StatsSnapshot, *, options: dict[str, Any]) -> None:
        if options["json"]:
            said, indent = as_json(glance, with_tasks=options["tasks"]), 2 if options["watch"] is None else None
            self.stdout.write(json.dumps(said, cls=DjangoJSONEncoder, indent=indent))
        else:
            wide = os.get_terminal_size(self.stdout.fileno()).columns if self.stdout.isatty() else None
            lines = [painted(line, has_colours=self._has_colours(options)) for line in view(glance, wide=wide)]
            self.stdout.write("\n".join([*lines, ""]))
        self.stdout.flush()

    def _watch(self, read: Any, alias: str, options: dict[str, Any]) -> None:
        every = f"every {options['watch']:g} s, the last {options['minutes']} min"
        title = f"pgqueue_stats of {plain(alias)}, {every}; q ends"
        number = watch(read, alias=alias, seconds=options["watch"], title=title, has_colours=self._has_colours(options))
        if number not in (None, signal.SIGINT):
            sys.exit(128 + int(number))

    def _has_colours(self, options: dict[str, Any]) -> bool:
        if options["no_color"] or (os.environ.get("NO_COLOR") and not options["force_color"]):
            return False
        return options["force_color"] or (self.stdout.isatty() and supports_color())
