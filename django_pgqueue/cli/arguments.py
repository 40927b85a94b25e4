"""Options of the commands that act on jobs, and the job that they enqueue."""

import argparse
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError

from django_pgqueue import registry
from django_pgqueue.cli.actions import TYPES, CommandAction
from django_pgqueue.cli.parsing import REASONS, age, instant, job_id, json_array, json_object, limit
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.jobs.search import Source
from django_pgqueue.results.handle import JobHandle
from django_pgqueue.states import DEAD, FINISHED, OnConflict, Scope, Status
from django_pgqueue.tasks import enqueue_one

OPTIONS = (
    "queue",
    "priority",
    "max_attempts",
    "timeout",
    "run_at",
    "expires",
    "unique_key",
    "unique_scope",
    "unique_for",
    "on_conflict",
    "concurrency_key",
    "concurrency_limit",
    "fair_key",
    "metadata",
)
"""Those of ``using()`` that have the same name here."""


def add_enqueue(parser: argparse.ArgumentParser) -> None:
    """Add those of ``enqueue``. What is left out is as the task says."""
    parser.add_argument("name", metavar="NAME", help="the task's name")
    parser.add_argument(
        "--args", dest="job_args", type=json_array, default=[], metavar="JSON", help="""positional: '[17, "x"]'"""
    )
    parser.add_argument(
        "--kwargs", dest="job_kwargs", type=json_object, default={}, metavar="JSON", help="""by name: '{"order": 17}'"""
    )
    parser.add_argument("--queue", help="1 to 128 characters")
    parser.add_argument("--priority", type=int, metavar="N", help="-100 to 100; larger runs sooner")
    parser.add_argument("--max-attempts", type=int, metavar="N", help="1 to 32767")
    parser.add_argument("--timeout", type=age, metavar="AGE", help="for one attempt, as in 90s or 15m")
    due = parser.add_mutually_exclusive_group()
    due.add_argument("--run-at", type=instant, metavar="TIME", help="earliest start, as in 2031-05-01T09:00")
    due.add_argument("--delay", type=age, dest="run_at", metavar="AGE", help="the same, from now: 15m, 2h, 7d")
    parser.add_argument("--expires", type=age, metavar="AGE", help="not started later than that after it is due")
    parser.add_argument("--unique-key", metavar="KEY", help="of live jobs with this key there is one")
    parser.add_argument("--unique-scope", choices=[Scope.LIVE.value, Scope.START.value], help="how long it is held")
    parser.add_argument("--unique-for", type=age, metavar="AGE", help="for so long after success too")
    parser.add_argument("--on-conflict", choices=[one.value for one in OnConflict], help="with the one that has it")
    parser.add_argument("--concurrency-key", metavar="KEY", help="of jobs with this key few run at once")
    parser.add_argument("--concurrency-limit", type=int, metavar="N", help="how many; 1 to 1000")
    parser.add_argument("--fair-key", metavar="KEY", help="keys take turns within a queue and priority")
    parser.add_argument("--metadata", type=json_object, metavar="JSON", help="travels with the job")


def add_everywhere(
    parser: argparse.ArgumentParser, call: Callable[..., None], verb: CommandAction | None = None
) -> None:
    """Add what every verb takes: the database, and Django's own options also behind the verb."""
    parser.set_defaults(call=call, doing=verb)
    parser.add_argument("--database", metavar="ALIAS", help="default: PGQUEUE['DATABASE']")
    for option in ("--settings", "--pythonpath"):
        parser.add_argument(option, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    for option in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
        parser.add_argument(option, action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.add_argument(
        "--verbosity", "-v", type=int, choices=range(4), default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )


def _add_filter(parser: argparse.ArgumentParser) -> None:
    """Add what jobs of any table can be chosen by."""
    parser.add_argument("--queue", action="append", metavar="NAME", help="of this queue; may be repeated")
    parser.add_argument("--task", action="append", metavar="NAME", help="of this task; may be repeated")
    parser.add_argument(
        "--older-than", type=age, metavar="AGE", help="enqueued, died or finished so long ago: 90s, 15m, 2h, 7d"
    )
    parser.add_argument(
        "--error", metavar="CLASS", help="whose last error is of this class, with its module or without"
    )


def _add_status(parser: argparse.ArgumentParser, choices: tuple[str, ...]) -> None:
    parser.add_argument("--status", action="append", choices=choices, help="with this status; may be repeated")


def _add_reason(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", action="append", choices=REASONS, help="that died for it; may be repeated")


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def add_list(parser: argparse.ArgumentParser) -> None:
    """Add those of ``list``."""
    _add_filter(parser)
    _add_status(parser, (*(status.value for status in Status), DEAD, FINISHED))
    _add_reason(parser)
    parser.add_argument(
        "--limit", type=limit, default=100, metavar="N", help="maximum number, 1 to 10000; default: 100"
    )
    parser.add_argument("--after", type=job_id, default=0, metavar="ID", help="those with a higher id")
    _add_format(parser)


def add_show(parser: argparse.ArgumentParser) -> None:
    """Add those of ``show``."""
    parser.add_argument("id", type=job_id, metavar="ID", help="the job's id")
    _add_format(parser)


def add_action(parser: argparse.ArgumentParser, verb: CommandAction) -> None:
    """Add those of a verb that acts on many jobs."""
    parser.add_argument("ids", nargs="*", type=job_id, metavar="ID", help="of these jobs; or choose by a filter")
    if verb.does.needs:
        to, word = TYPES[verb.does.needs]
        parser.add_argument("--to", type=to, required=True, metavar=word, help="the new one")
    _add_filter(parser)
    if len(verb.does.statuses) > 1:
        _add_status(parser, verb.does.statuses)
    if verb.does.source is Source.DEAD:
        _add_reason(parser)
    if verb.finished is not None:
        parser.add_argument("--finished", action="store_true", help="finished jobs, not dead ones")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--dry-run", action="store_true", help="only say how many, and show the first")
    parser.add_argument("--by", default="", help="who does it, for history and log; default: the user's name here")
    if verb.asks:
        parser.add_argument("--yes", action="store_true", help="do not ask")


# Enqueueing from the options


def enqueue_from(options: dict[str, Any]) -> JobHandle:
    """Enqueue the job.

    Raises:
        CommandError: there is no such task, or what it was given cannot be.
    """
    wanted = {name: options[name] for name in OPTIONS if options[name] is not None}
    try:
        task = registry.get(options["name"]).using(**wanted, database=options["database"])
        return enqueue_one(task, tuple(options["job_args"]), options["job_kwargs"])
    except PgQueueError as error:
        raise CommandError(str(error)) from error
