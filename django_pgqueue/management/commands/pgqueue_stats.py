import contextlib
import functools
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.core.management.color import supports_color
from django.db import DatabaseError, Error, InterfaceError, connections
from django.utils import timezone
from django.utils.translation import override

from django_pgqueue.cli.arguments import add_database, add_json, add_queue, check_database, check_seen, pause, since
from django_pgqueue.cli.stats import MINUTES, StatsSnapshot, as_json, snapshot
from django_pgqueue.cli.stats_table import Line, Piece, Style, cut_to, painted, view
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import KEEPALIVE
from django_pgqueue.db.errors import one_line
from django_pgqueue.db.pipeline import impatience
from django_pgqueue.db.queries import TookTooLong
from django_pgqueue.insights.formatting import json_text, local, plain

WATCH_SECONDS = 2.0
PATIENCE_SECONDS = 3.0  # with a server that is silent, beyond the time limit of a statement

CLEAR = "\x1b[H\x1b[J"  # to the upper left, and erase all from there. Source: ECMA-48, CUP and ED

HELP = """
Show the queue at a glance: workers, problems, and for each queue the number of jobs, the age of the oldest that could
run, the work of the last minutes, and how long jobs waited and ran.
"""


class Command(BaseCommand):
    help = HELP

    def add_arguments(self, parser: CommandParser) -> None:
        add_queue(parser, "show these queues")
        parser.add_argument(
            "--since", type=since, default=f"{MINUTES}m", metavar="DURATION",
            help=f"count the work done since then, by the minute, 1m to 1d; default: {MINUTES}m",
        )  # fmt: skip
        parser.add_argument("--tasks", action="store_true", help="show each task in its queue, too")
        add_json(parser, "print JSON; with --watch an object on each line")
        parser.add_argument(
            "--watch", nargs="?", type=pause, const=WATCH_SECONDS, metavar="DURATION",
            help=f"show it again and again, 1s to 1h apart; default: {WATCH_SECONDS:g}s",
        )  # fmt: skip
        add_database(parser)

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"] or conf.database
        options["minutes"] = math.ceil(options["since"] / 60)
        look = functools.partial(
            snapshot, alias, queues=options["queue"], minutes=options["minutes"], with_tasks=options["tasks"]
        )
        show = functools.partial(self._show, alias=alias, options=options)
        try:
            if options["watch"] is None:
                check_database(alias)
                show(glance := look())
                check_seen(queue.line for queue in glance.queues)
            else:
                with ended_by_ctrl_c():
                    check_database(alias)
                    repeat(look, show, alias=alias, seconds=options["watch"])
        except (Error, TookTooLong) as error:
            raise CommandError(str(error).strip()) from error
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # unflushed output goes nowhere

    def _show(self, glance: StatsSnapshot, *, alias: str, options: dict[str, Any]) -> None:
        is_watching = options["watch"] is not None
        if options["json"]:
            found = as_json(glance, with_tasks=options["tasks"])
            text = json_text(found, indent=None if is_watching else 2)
        elif is_watching and self.stdout.isatty():
            every = f"every {options['watch']:g} s, the last {options['minutes']} min; Ctrl-C ends it"
            title = [Piece(f"pgqueue_stats of {plain(alias)}, {every}", Style.QUIET)]
            wide, high = shutil.get_terminal_size()
            lines = cut_to([title, *view(glance)], wide=wide, high=high - 1)  # the cursor is on the last line
            text = CLEAR + self._painted(lines, options)
        else:
            text = self._painted(view(glance), options)
        self.stdout.write(text)
        self.stdout.flush()

    def _painted(self, lines: list[Line], options: dict[str, Any]) -> str:
        has_colours = self._has_colours(options)
        return "\n".join(painted(line, has_colours=has_colours) for line in lines)

    def _has_colours(self, options: dict[str, Any]) -> bool:
        if options["no_color"] or (os.environ.get("NO_COLOR") and not options["force_color"]):
            return False
        return options["force_color"] or (self.stdout.isatty() and supports_color())


@contextlib.contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """End quietly on SIGINT in here; for KeyboardInterrupt, psycopg would wait until its query is cancelled, and log.

    Changes nothing where SIGINT is ignored, nor in a thread, to which no signal comes.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: sys.exit())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def repeat(
    look: Callable[[], StatsSnapshot], show: Callable[[StatsSnapshot], None], *, alias: str, seconds: float
) -> None:
    """Show snapshots one after the other; if the database does not answer, report each new reason once, and go on."""
    connection, known = connections[alias], ""
    for option, value in KEEPALIVE.items():  # or a connection that was cut off would be waited for for hours
        connection.settings_dict["OPTIONS"].setdefault(option, value)
    connection.close()  # the next one has these options
    while True:
        try:
            connection.ensure_connection()
            with impatience(connection.connection, conf.read_timeout_seconds + PATIENCE_SECONDS):
                glance = look()
        except (DatabaseError, InterfaceError, TookTooLong) as error:
            connection.close()
            reason = "reading took too long and was stopped" if isinstance(error, TookTooLong) else one_line(error)
            if reason != known:
                now = local(timezone.now())
                words = f"{now:%H:%M:%S}  No answer, asked for again every {seconds:g} s: {plain(reason)}"
                print(words, file=sys.stderr, flush=True)  # noqa: T201 - a command
            known = reason
        else:
            known = ""
            show(glance)
        time.sleep(seconds)
