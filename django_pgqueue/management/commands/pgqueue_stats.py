import contextlib
import functools
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser
from django.core.management.color import supports_color
from django.db import DatabaseError, InterfaceError, connections
from django.utils import timezone
from django.utils.translation import override

from django_pgqueue.cli.arguments import (
    add_database,
    add_json,
    add_queue,
    check_database,
    check_failures,
    check_seen,
    on_each,
    pause,
    since,
)
from django_pgqueue.cli.command import QueueCommand
from django_pgqueue.cli.stats import MINUTES, StatsSnapshot, as_json, snapshot
from django_pgqueue.cli.stats_table import Line, Piece, Style, cut_to, painted, views
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import KEEPALIVE, postgresql
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


class Command(QueueCommand):
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
        add_database(parser, default="all that hold a queue")

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        options["minutes"] = math.ceil(options["since"] / 60)
        look = functools.partial(
            snapshot, queues=options["queue"], minutes=options["minutes"], with_tasks=options["tasks"]
        )
        if options["watch"] is None:
            self._show_once(look, options)
        else:
            self._watch(look, options)

    def _show_once(self, look: Callable[[str], StatsSnapshot], options: dict[str, Any]) -> None:
        found, failures = on_each(options["database"], look)
        self._show(found, failures, options)
        check_failures(failures)
        check_seen(queue.line for glance in found.values() for queue in glance.queues)

    def _watch(self, look: Callable[[str], StatsSnapshot], options: dict[str, Any]) -> None:
        aliases = [options["database"]] if options["database"] else conf.databases
        with ended_by_ctrl_c():
            if len(aliases) == 1:  # one of several may come later
                check_database(aliases[0])
            repeat(look, functools.partial(self._show, options=options), aliases=aliases, seconds=options["watch"])

    def _show(self, found: Mapping[str, StatsSnapshot], failures: Mapping[str, str], options: dict[str, Any]) -> None:
        is_watching = options["watch"] is not None
        if options["json"]:
            text = self._json(found, failures, options)
        elif is_watching and self.stdout.isatty():
            every = f"every {options['watch']:g} s, the last {options['minutes']} min; Ctrl-C ends it"
            title = [Piece(f"pgqueue_stats of {plain(', '.join([*found, *failures]))}, {every}", Style.QUIET)]
            wide, high = shutil.get_terminal_size()
            lines = cut_to([title, *views(found, failures)], wide=wide, high=high - 1)  # the cursor is on the last line
            text = CLEAR + self._painted(lines, options)
        else:
            text = self._painted(views(found, failures), options)
        self.stdout.write(text)
        self.stdout.flush()

    def _json(self, found: Mapping[str, StatsSnapshot], failures: Mapping[str, str], options: dict[str, Any]) -> str:
        """Return an object for each database: one to a line of a watch, else in an array, if there are several."""
        objects = [
            {"database": alias, **as_json(glance, with_tasks=options["tasks"])} for alias, glance in found.items()
        ]
        if options["watch"] is not None:
            return "\n".join(json_text(one, indent=None) for one in objects)
        return json_text(objects if len(found) + len(failures) > 1 else objects[0])

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
    look: Callable[[str], StatsSnapshot],
    show: Callable[[Mapping[str, StatsSnapshot], Mapping[str, str]], None],
    *,
    aliases: Sequence[str],
    seconds: float,
) -> None:
    """Show snapshots one after the other; of a database that does not answer, report each new reason once, and go on.

    Where none answers, nothing is shown: the last figures stay.
    """
    for alias in aliases:
        give_up_when_cut_off(alias)
    known: dict[str, str] = {}
    while True:
        found: dict[str, StatsSnapshot] = {}
        failures: dict[str, str] = {}
        for alias in aliases:
            try:
                found[alias] = patiently(look, alias)
            except (DatabaseError, InterfaceError, TookTooLong) as error:
                connections[alias].close()
                took_too_long = isinstance(error, TookTooLong)
                failures[alias] = "reading took too long and was stopped" if took_too_long else one_line(error)
        for alias, reason in failures.items():
            if reason != known.get(alias):
                of = f" from {alias}" if len(aliases) > 1 else ""
                now = local(timezone.now())
                words = f"{now:%H:%M:%S}  No answer{of}, asked for again every {seconds:g} s: {reason}"
                print(plain(words), file=sys.stderr, flush=True)  # noqa: T201 - a command
        known = failures
        if found:
            show(found, failures)
        time.sleep(seconds)


def give_up_when_cut_off(alias: str) -> None:
    """Let the next connection of a database notice that it was cut off, which could take hours."""
    connection = postgresql(alias)
    for option, value in KEEPALIVE.items():
        connection.settings_dict["OPTIONS"].setdefault(option, value)
    connection.close()


def patiently(look: Callable[[str], StatsSnapshot], alias: str) -> StatsSnapshot:
    """Look at a database, and raise OperationalError if its server is silent."""
    connection = connections[alias]
    connection.ensure_connection()
    with impatience(connection.connection, conf.read_timeout_seconds + PATIENCE_SECONDS):
        return look(alias)
