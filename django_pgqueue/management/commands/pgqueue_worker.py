import argparse
import math
import multiprocessing
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, Error, OperationalError, connections
from django.utils.autoreload import get_child_arguments
from django.utils.module_loading import import_string

from django_pgqueue import registry
from django_pgqueue.cli.arguments import (
    Bounds,
    add_queue,
    await_database,
    check_database,
    check_number,
    out_of_bounds,
    patient_with,
    queue_names,
    seconds,
)
from django_pgqueue.conf import conf
from django_pgqueue.exceptions import ConfigurationError
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.worker.config import WorkerConfig, configure_logging
from django_pgqueue.worker.fork_server import process_maker
from django_pgqueue.worker.group import SupervisorGroup
from django_pgqueue.worker.processes import UNGUARDED, can_read_memory
from django_pgqueue.worker.reloader import Reloader, watch
from django_pgqueue.worker.supervisor import QUIET_SIGNAL, RESUME_SIGNAL, Supervisor, stop_signals

PAGE_OF_METRICS = "django_pgqueue.contrib.prometheus.page.page_of"
"""Imported for ``--metrics-port`` alone: it needs an extra."""

BOUNDS = {
    "concurrency": Bounds("1 to 1000", 1, 1000),
    "processes": Bounds("1 to 256", 1, 256),
    "max_jobs": Bounds("1 or more", 1),
    "max_memory": Bounds("32 or more MiB", 32),
    "shutdown_timeout": Bounds("0 or more seconds", 0),
    "wait_for_database": Bounds("0 or more seconds", 0, math.inf),
    "health_port": Bounds("1 to 65535", 1, 65535),
    "metrics_port": Bounds("1 to 65535", 1, 65535),
    "health_max_age": Bounds("more than 0 seconds", math.ulp(0.0)),
}

HOW_TO_EXCLUDE = "To exclude a queue, write --queue=-slow, with an equals sign"
QUEUE_HELP = (
    "serve these, in this order, default: all; * stands for any characters, a leading - excludes (write --queue=-slow)"
)


class Command(BaseCommand):
    help = "Run jobs from the queue until stopped. SIGTERM and Ctrl-C let running jobs finish first."
    requires_migrations_checks = True
    _called_from_command_line: bool  # Django knows
    supervisor: Supervisor | SupervisorGroup | None = None  # once it is there
    away: tuple[str, ...] = ()  # databases that cannot be reached, while others can

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.early_signals: list[int] = []  # those to be quiet or to resume, for the supervisor

    def run_from_argv(self, argv: list[str]) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        with self.until_it_begins() if is_main else nullcontext():
            super().run_from_argv(argv)

    def add_arguments(self, parser: CommandParser) -> None:
        add_queue(parser, QUEUE_HELP)
        parser.add_argument(
            "--concurrency", type=int, default=8, metavar="N", help="jobs at once in each process; default: 8"
        )
        parser.add_argument("--processes", type=int, default=1, metavar="N", help="worker processes; default: 1")
        parser.add_argument("--name", default="", help="shown in the admin next to host and pid")
        parser.add_argument(
            "--database",
            action="append",
            metavar="ALIAS",
            help="serve this database; may be repeated; default: all that PGQUEUE names",
        )
        add_start_and_stop(parser.add_argument_group("start and stop"))
        add_recycling(parser.add_argument_group("recycling"))
        add_health(parser.add_argument_group("health"))
        add_metrics(parser.add_argument_group("metrics"))
        add_reload(parser.add_argument_group("development"))

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Let the error of an option without its value say how a queue is excluded."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        complain: Any = parser.error

        def error(message: str) -> NoReturn:
            complain(f"{message}. {HOW_TO_EXCLUDE}" if message.startswith("argument --queue:") else message)
            raise AssertionError  # it does not come back

        parser.error = error  # type: ignore[method-assign]
        return parser

    def get_check_kwargs(self, options: dict[str, Any]) -> Any:
        """Let the checks ask the queue's database too, where the settings name one."""
        aliases = [alias for alias in aliases_of(options) if alias in connections and alias not in self.away]
        return super().get_check_kwargs(options) | {"databases": aliases}

    def execute(self, *args: Any, **options: Any) -> None:
        """Make the checks once the database is there; leave them to the worker where there will be a reloader."""
        if getattr(multiprocessing.current_process(), "_inheriting", False):  # imported by a process that starts
            sys.exit(UNGUARDED)
        if options["reload"] is None:
            options["reload"] = settings.DEBUG and self._called_from_command_line
        if options["reload"]:
            self.requires_system_checks = []
            self.requires_migrations_checks = False
        elif options["wait_for_database"] or not options["skip_checks"]:
            configure_logging(options["verbosity"])
            self.await_databases(options)
        super().execute(*args, **options)

    def check_migrations(self) -> None:
        """Leave out those of Django's own alias while it is away, and another database of the queue is not."""
        if DEFAULT_DB_ALIAS not in self.away:
            super().check_migrations()

    def await_databases(self, options: dict[str, Any]) -> None:
        until = time.monotonic() + (options["wait_for_database"] or 0.0)
        served = [alias for alias in aliases_of(options) if is_postgresql(alias)]
        if served and DEFAULT_DB_ALIAS not in served and is_postgresql(DEFAULT_DB_ALIAS):
            await_database(DEFAULT_DB_ALIAS, seconds=max(until - time.monotonic(), 0.0))
        for alias in served:
            try:
                await_database(alias, seconds=max(until - time.monotonic(), 0.0))
            except CommandError:
                self.away += (alias,)
                if len(self.away) == len(served):
                    raise

    @contextmanager
    def until_it_begins(self) -> Iterator[None]:
        """Handle signals that come before the supervisor does: end in order, or let it know."""
        try:
            with stop_signals(self.quiet_on, (QUIET_SIGNAL, RESUME_SIGNAL)), stop_signals(stop_at_once):
                yield
        except StoppedEarly as stopped:
            if self.supervisor is None:  # else it was about to end
                self.stderr.write(f"Stopped by {stopped} before it has begun.", self.style.WARNING)

    def quiet_on(self, number: int) -> None:
        self.early_signals.append(number)
        self.pass_on_early_signals()

    def pass_on_early_signals(self) -> None:
        while self.supervisor and self.early_signals:
            self.supervisor.quiet_on(self.early_signals.pop(0))

    def handle(self, *args: Any, **options: Any) -> None:
        plan = plan_from(options)
        if options["reload"]:
            self.reload(plan)
        check_may_have_children()
        aliases = aliases_of(options)
        away = tuple(
            alias for alias in aliases if alias in self.away or not is_there(alias, is_alone=len(aliases) == 1)
        )
        if len(away) == len(aliases):
            raise CommandError(f"None of the databases {', '.join(map(repr, aliases))} can be reached.")
        configure_logging(plan.verbosity)
        if not registry.known():
            text = "No tasks are registered. Define some in the tasks.py of an installed app."
            self.stderr.write(text, self.style.WARNING)
        try:
            metrics = import_string(PAGE_OF_METRICS) if plan.metrics_port else None
            with process_maker(may_fork=self._called_from_command_line and not options["spawn"]) as make_process:
                supervisor: Supervisor | SupervisorGroup
                if len(aliases) > 1:
                    supervisor = SupervisorGroup(plan, aliases, away, is_there, metrics, make_process=make_process)
                else:
                    supervisor = Supervisor(plan, metrics, make_process=make_process)
                if options["reloader"]:
                    watch(supervisor, reloader=options["reloader"])
                self.supervisor = supervisor
                self.pass_on_early_signals()
                supervisor.run()
        except ConfigurationError as error:
            raise CommandError(str(error)) from error
        if supervisor.exit_code:
            sys.exit(supervisor.exit_code)

    def reload(self, plan: WorkerConfig) -> NoReturn:
        if not self._called_from_command_line:
            raise CommandError("--reload needs a command line that it can repeat: call manage.py, not call_command().")
        configure_logging(plan.verbosity)
        sys.exit(Reloader([*get_child_arguments(), "--no-reload"]).run())


def aliases_of(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the databases to serve; none where PGQUEUE is no dict, as the checks say."""
    given = options.get("database")
    if given:
        return (given,) if isinstance(given, str) else tuple(dict.fromkeys(given))  # a str: call_command()
    return conf.databases if isinstance(getattr(settings, "PGQUEUE", {}), dict) else ()


def is_postgresql(alias: str) -> bool:
    return alias in connections and connections[alias].vendor == "postgresql"


def is_there(alias: str, *, is_alone: bool = False) -> bool:
    """Whether a database can be reached.

    Raises:
        CommandError: it lacks the tables, or is another one than its alias should lead to; or cannot be reached, and
            there is no other.
    """
    try:
        with patient_with(alias):
            check_database(alias)
            check_number(alias)
    except (CommandError, ConfigurationError, Error) as error:
        cause = error if isinstance(error, Error) else error.__cause__
        if isinstance(cause, OperationalError) and not is_alone:
            return False
        raise CommandError(str(error).strip()) from cause
    return True


class StoppedEarly(BaseException):
    """A signal has come before the command has begun."""


def stop_at_once(number: int) -> NoReturn:
    """Raise StoppedEarly, wherever the main thread just is."""
    raise StoppedEarly(signal.Signals(number).name)


def add_start_and_stop(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--wait-for-database",
        type=seconds,
        nargs="?",
        const=math.inf,
        metavar="DURATION",
        help="wait for a database that is away when the command starts; without a value for as long as it takes; "
        "default: end at once with exit code 1; or serve the others, where one of several is away",
    )
    group.add_argument("--drain", action="store_true", help="end when nothing is left that could run now")
    group.add_argument(
        "--shutdown-timeout",
        type=seconds,
        default=25.0,
        metavar="DURATION",
        help="for running jobs to finish after SIGTERM, as in 25, 25s or 15m; default: 25",
    )
    group.add_argument("--spawn", action="store_true", help="run a new Python for each process instead of forking it")
    group.add_argument("--poll-only", action="store_true", help="poll only; for poolers in transaction mode")


def add_recycling(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--max-jobs", type=int, metavar="N", help="replace a process after N jobs; default: never")
    group.add_argument("--max-memory", type=int, metavar="MIB", help="replace a process that uses more; default: never")


def add_health(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--health-port", type=int, metavar="PORT", help="answer /live and /ready by HTTP")
    group.add_argument(
        "--health-host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="where to answer them; 0.0.0.0 for probes from other hosts, as Kubernetes sends; default: 127.0.0.1",
    )
    group.add_argument(
        "--health-file", default="", metavar="PATH", help="a file to rewrite each second while the command is alive"
    )
    group.add_argument(
        "--health-max-age",
        type=seconds,
        metavar="DURATION",
        help="not ready while a job that could run has waited for longer",
    )


def add_metrics(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--metrics-port", type=int, metavar="PORT", help="answer /metrics by HTTP, for Prometheus")
    group.add_argument(
        "--metrics-host", default="", metavar="ADDRESS", help="where to answer it; default: that of --health-host"
    )


def add_reload(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--reload",
        action=argparse.BooleanOptionalAction,
        help="start the worker again when its code changes; default: where DEBUG is on",
    )
    group.add_argument("--reloader", type=int, help=argparse.SUPPRESS)  # its pid, for the worker that it starts


def check_may_have_children() -> None:
    """Raise CommandError in a process that may not start others: its attempts would fail again and again."""
    if multiprocessing.current_process().daemon:
        raise CommandError(
            "A worker starts processes, and this one may not: it is a daemon of multiprocessing, as those of "
            "manage.py test --parallel are. Run such tests without --parallel, or by pytest."
        )


def plan_from(options: dict[str, Any]) -> WorkerConfig:
    """Return the plan; raise CommandError that names each option that cannot work."""
    queues, problems = (), out_of_bounds(options, BOUNDS)
    try:
        given = options["queue"]
        queues = tuple(dict.fromkeys(queue_names(given) if isinstance(given, str) else given))  # a str: call_command()
    except argparse.ArgumentTypeError as error:
        problems.append(f"--queue: {error}.")
    if options["max_memory"] and not can_read_memory():
        problems.append("--max-memory needs /proc, which this system does not have; use --max-jobs.")
    if options["health_file"] and not Path(options["health_file"]).parent.is_dir():
        problems.append(f"--health-file is in a folder that is not there: {options['health_file']!r}.")
    aliases = aliases_of(options)
    for alias in aliases:
        if alias not in conf.databases:
            known = ", ".join(map(repr, conf.databases))
            problems.append(
                f"--database: {alias!r} is no database of the queue, which is on {known}: name it in PGQUEUE['SHARDS']."
            )
    problems += [f"--queue: {problem}" for problem in QueueSelector.of(queues).problems()]
    if problems:
        raise CommandError(" ".join(problems))
    same = {field.name: options[field.name] for field in fields(WorkerConfig) if field.name in options}
    others = {
        "queues": queues,
        "database": aliases[0],
        "max_memory_mb": options["max_memory"],
        "shutdown_timeout_seconds": options["shutdown_timeout"],
        "listen": not options["poll_only"],
        "metrics_host": options["metrics_host"] or options["health_host"],
    }
    return WorkerConfig(**same | others)
