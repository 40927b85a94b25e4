"""Options of the commands: their values, the job that they enqueue, the database."""

import argparse
import contextlib
import dataclasses
import datetime as dt
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeVar

from django.core.management.base import CommandError
from django.db import Error, OperationalError, connections
from django.utils.dateparse import parse_datetime
from django.utils.translation import override

from django_pgqueue import registry
from django_pgqueue.cli.actions import for_succeeded
from django_pgqueue.conf import conf
from django_pgqueue.db.connections import QueueConnection, how_to_migrate, postgresql
from django_pgqueue.db.errors import one_line
from django_pgqueue.db.queries import TookTooLong
from django_pgqueue.doctor.catalogue import is_recorded
from django_pgqueue.doctor.finding import View
from django_pgqueue.doctor.schema import numbers
from django_pgqueue.exceptions import ConfigurationError, PgQueueError
from django_pgqueue.flow.queue_limits import SHAPE, UNITS
from django_pgqueue.insights.formatting import plain
from django_pgqueue.insights.overview import QueueLine
from django_pgqueue.jobs.actions import PRIORITY, QUEUE, Action
from django_pgqueue.jobs.handle import JobHandle, get
from django_pgqueue.jobs.search import Source
from django_pgqueue.options import OF_JOBS, Options
from django_pgqueue.retry_policy import reconnect_delay
from django_pgqueue.states import DEAD, LONGEST_DELAY, SUCCEEDED, DeathReason, OnConflict, Status
from django_pgqueue.stored_values import aware
from django_pgqueue.tasks import enqueue_one

T = TypeVar("T")

NONE = "none"  # removes a limit

UNIT_SECONDS = UNITS | {"ms": 0.001}

NAME_IN_LIST = re.compile(r"""\s*(?:"((?:[^"]|"")*)"|([^,]*?))\s*(?:,|\Z)""")

LEFT_OUT = 2  # exit code where a command could not use all databases of the queue

REASONS = tuple(reason.value for reason in DeathReason)


def number_type(lowest: int, highest: int, problem: Callable[[str], str]) -> Callable[[str], int]:
    """Return the type of a whole number from ``lowest`` to ``highest``; ``problem`` is said of any other text."""

    def number(text: str) -> int:
        if not re.fullmatch(r"\d{1,19}", text, re.ASCII) or not lowest <= int(text) <= highest:
            raise argparse.ArgumentTypeError(problem(text))
        return int(text)

    return number


job_id = number_type(1, 2**63 - 1, lambda text: f"no job has the id {text}: ids are 1 to {2**63 - 1}")
limit = number_type(1, 10_000, lambda text: f"1 to 10000 are listed at once, not {text}")


def duration(text: str) -> dt.timedelta:
    """Return a duration such as ``90``, ``90s``, ``15m``, ``2h``, ``7d``, ``1.5w`` or ``20ms``, of 100 years at most.

    A number alone is seconds.
    """
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)(ms|[smhdw])?", text, re.ASCII)
    seconds = float(match[1]) * UNIT_SECONDS[match[2] or "s"] if match else -1.0
    if not 0 <= seconds <= LONGEST_DELAY.total_seconds():
        raise argparse.ArgumentTypeError(
            f"{text!r} is no duration: write seconds, or a number and ms, s, m, h, d or w, as in 90, 90s or 15m; "
            f"{LONGEST_DELAY.days}d at most"
        )
    return dt.timedelta(seconds=seconds)


def seconds(text: str) -> float:
    return duration(text).total_seconds()


def seconds_type(lowest: float, highest: float, problem: Callable[[str], str]) -> Callable[[str], float]:
    """Return the type of a duration from ``lowest`` to ``highest`` seconds; ``problem`` is said of others."""

    def bounded(text: str) -> float:
        if not lowest <= seconds(text) <= highest:
            raise argparse.ArgumentTypeError(problem(text))
        return seconds(text)

    return bounded


pause = seconds_type(1, 3600, lambda text: f"the pause is 1s to 1h, not {text}")
since = seconds_type(60, 86400, lambda text: f"it looks back 1m to 1d, not {text}")


def queue_names(text: str) -> list[str]:
    """Return comma-separated names, at least one; one with a comma in it is in double quotes, as ``"a,b",c``."""
    found = [name.replace('""', '"') if name else bare for name, bare in NAME_IN_LIST.findall(text)]
    if not (names := [name for name in found if name]):
        raise argparse.ArgumentTypeError(f"it names no queue: {text!r}")
    return names


def number_or_none(text: str) -> int | None:
    if text == NONE:
        return None
    if not re.fullmatch(r"\d{1,7}", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is no limit: write a number, or none to remove it")
    return int(text)


def rate_or_none(text: str) -> str | None:
    """Return a rate such as ``100/s``, ``60/m`` or ``5/10s``, or None for ``none``."""
    if text == NONE:
        return None
    if not SHAPE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no rate: write it as in 100/s, 60/m or 5/10s, or none")
    return text


def instant(text: str) -> dt.datetime:
    """Return a date and time in ISO 8601; without an offset it is in the current time zone."""
    try:
        value = parse_datetime(text)
    except ValueError:
        value = None
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write it as in 2031-05-01T09:00 or 2031-05-01T07:00Z")
    return aware(value)


def json_type(kind: type[T], shape: str) -> Callable[[str], T]:
    """Return the type of JSON of a kind, of which ``shape`` is an example; errors leave out its values."""

    def value(text: str) -> T:
        try:
            found = json.loads(text)
        except ValueError as error:
            at = f"{error.msg} at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else "too long"
            raise argparse.ArgumentTypeError(f"it is no JSON: {at}") from error
        if not isinstance(found, kind):
            raise argparse.ArgumentTypeError(f"it must be a JSON {shape}")
        return found

    return value


json_array = json_type(list, """array of positional arguments, as in '[17, "x"]'""")
json_object = json_type(dict, """object of names and values, as in '{"order_id": 17}'""")


class Bounds(NamedTuple):
    words: str
    lowest: float
    highest: float = sys.float_info.max  # not infinity


def out_of_bounds(options: Mapping[str, Any], bounds: Mapping[str, Bounds]) -> list[str]:
    """Return a sentence for each option, by its name in Python, whose number cannot work; None is none."""
    return [
        f"--{name.replace('_', '-')} must be {words}, not {options[name]}."
        for name, (words, lowest, highest) in bounds.items()
        if options[name] is not None and not lowest <= options[name] <= highest
    ]


# Arguments


def add_queue(parser: argparse._ActionsContainer, words: str) -> None:
    """Add ``--queue``, whose value is a list of names; empty where it is left out."""
    parser.add_argument(
        "--queue", action="extend", type=queue_names, default=[], metavar="NAME",
        help=f"{words}; comma-separated, and may be repeated",
    )  # fmt: skip


def add_json(parser: argparse._ActionsContainer, words: str = "print JSON") -> None:
    parser.add_argument("--json", action="store_true", help=words)


def add_database(parser: argparse._ActionsContainer, *, default: str = "PGQUEUE['DATABASE']") -> None:
    parser.add_argument("--database", metavar="ALIAS", help=f"default: {default}")


def add_by(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--by", default="", help="who does it, for history and log; default: the user's name here")


def add_enqueue(parser: argparse.ArgumentParser) -> None:
    """Add those of ``enqueue``; for one that is left out, the task's own value is used."""
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
    parser.add_argument("--timeout", type=duration, metavar="DURATION", help="for one attempt, as in 90s or 15m")
    due = parser.add_mutually_exclusive_group()
    due.add_argument("--run-at", type=instant, metavar="TIME", help="earliest start, as in 2031-05-01T09:00")
    due.add_argument("--delay", type=duration, metavar="DURATION", help="the same, from now: 15m, 2h")
    parser.add_argument("--head-start", type=duration, metavar="DURATION", help="go before jobs up to that much older")
    parser.add_argument("--expires", type=duration, metavar="DURATION", help="not started later after it is due")
    parser.add_argument("--unique-key", metavar="KEY", help="of live jobs with this key there is one")
    parser.add_argument("--unique-until", choices=["end", "start"], help="the key is held until the job does")
    parser.add_argument("--unique-hold", type=duration, metavar="DURATION", help="and for that time after success")
    parser.add_argument("--on-conflict", choices=[one.value for one in OnConflict], help="with the one that has it")
    parser.add_argument("--limit-key", metavar="KEY", help="of jobs with this key few run at once")
    parser.add_argument("--limit-running", type=int, metavar="N", help="how many; 1 to 1000")
    parser.add_argument("--fair-key", metavar="KEY", help="keys take turns within a queue and priority")
    parser.add_argument("--tag", dest="tags", action="append", metavar="TAG", help="people find it by; may be repeated")
    parser.add_argument("--metadata", type=json_object, metavar="JSON", help="travels with the job")
    add_json(parser, "print the id and whether the job is a new one as JSON")


OTHER_WORDS = {  # of other queues, for actions and statuses
    "cancel": "kill",
    "completed": "succeeded",
    "delete": "purge",
    "failed": "dead",
    "finished": "succeeded",
    "pending": "queued",
    "revoke": "kill",
    "started": "running",
    "waiting": "limited",
}
REFUSED = re.compile(r"invalid choice: '?([\w-]+)")


def tell_our_words(parser: argparse.ArgumentParser) -> None:
    """Let the complaint about a word of another queue say which one it is here."""
    complain = parser.error

    def error(message: str) -> NoReturn:
        refused = REFUSED.search(message)
        ours = OTHER_WORDS.get(refused[1]) if refused else None
        complain(f"{message}. Here it is {ours}." if ours else message)

    parser.error = error  # type: ignore[method-assign]


def add_everywhere(parser: argparse.ArgumentParser, call: Callable[..., None], action: Action | None = None) -> None:
    """Add what every action takes: the database, and Django's own options also behind the action."""
    parser.set_defaults(call=call, action=action)
    add_database(parser)
    for option in ("--settings", "--pythonpath"):
        parser.add_argument(option, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    for option in ("--traceback", "--no-color", "--force-color", "--skip-checks"):
        parser.add_argument(option, action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.add_argument(
        "--verbosity", "-v", type=int, choices=range(4), default=argparse.SUPPRESS, help=argparse.SUPPRESS
    )


def _add_filter(parser: argparse._ActionsContainer) -> None:
    add_queue(parser, "of these queues")
    parser.add_argument("--task", action="append", metavar="NAME", help="of this task; may be repeated")
    parser.add_argument("--tag", action="append", metavar="TAG", help="with this tag; repeated: with all of them")
    parser.add_argument(
        "--older-than",
        type=duration,
        metavar="DURATION",
        help="enqueued, died or succeeded longer ago than this: 90s, 15m, 2h, 7d",
    )
    parser.add_argument(
        "--error", metavar="CLASS", help="whose last error is of this class, with its module or without"
    )
    parser.add_argument("--unique-key", metavar="KEY", help="the live one that holds this key, or dead ones with it")


def _add_status(parser: argparse._ActionsContainer, choices: tuple[str, ...]) -> None:
    parser.add_argument("--status", action="append", choices=choices, help="with this status; may be repeated")


def _add_reason(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--reason", action="append", choices=REASONS, help="that died for it; may be repeated")


def add_list(parser: argparse.ArgumentParser) -> None:
    which = parser.add_argument_group("which jobs")
    _add_filter(which)
    _add_status(which, (*(status.value for status in Status), DEAD, SUCCEEDED))
    _add_reason(which)
    parser.add_argument(
        "--limit", type=limit, default=100, metavar="N", help="maximum number, 1 to 10000; default: 100"
    )
    parser.add_argument("--after", type=job_id, default=0, metavar="ID", help="those with a higher id")
    add_json(parser)


def _add_one(parser: argparse.ArgumentParser, words: str) -> None:
    parser.add_argument("id", nargs="?", type=job_id, metavar="ID", help=words)
    parser.add_argument("--unique-key", metavar="KEY", help="in place of the id: the live job that holds this key")


def add_show(parser: argparse.ArgumentParser) -> None:
    _add_one(parser, "the job's id")
    add_json(parser)


def add_try(parser: argparse.ArgumentParser) -> None:
    _add_one(parser, "the job's id; live, dead or succeeded")
    parser.add_argument("--pdb", action="store_true", help="debug its exception; the transaction stays open meanwhile")
    add_json(parser)


def add_action(parser: argparse.ArgumentParser, action: Action) -> None:
    if action.param is PRIORITY:
        parser.add_argument("to", type=int, metavar=PRIORITY.metavar, help="the new priority, -100 to 100")
    parser.add_argument("ids", nargs="*", type=job_id, metavar="ID", help="of these jobs; or choose by a filter")
    if action.param is QUEUE:
        parser.add_argument("--to", required=True, metavar=QUEUE.metavar, help="the queue that they go to")
    which = parser.add_argument_group("which jobs")
    _add_filter(which)
    if len(action.statuses) > 1:
        _add_status(which, action.statuses)
    if action.source is Source.DEAD:
        _add_reason(which)
    if for_succeeded(action) is not None:
        which.add_argument("--succeeded", action="store_true", help="succeeded jobs, not dead ones")
    which.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--dry-run", action="store_true", help="only say how many, and show the first")
    add_by(parser)
    if action.is_destructive:
        parser.add_argument("--yes", action="store_true", help="do not ask")
    add_json(parser, "print as JSON how many were changed, and why others were left alone")


def database_of(options: Mapping[str, Any]) -> str:
    """Return the alias of the database of the jobs that are named by their ids, else that of ``DATABASE``."""
    ids = options.get("ids") or [one for one in [options.get("id")] if one is not None]
    try:
        found = list(dict.fromkeys(conf.database_of(int(one)) for one in ids))
    except PgQueueError as error:
        raise CommandError(str(error)) from error
    if len(found) > 1:
        raise CommandError(f"The jobs are on {' and '.join(map(repr, found))}: name those of each by themselves.")
    return found[0] if found else conf.database


def names_by_database(queues: Iterable[str], chosen: str | None) -> dict[str, list[str]]:
    """Return names of queues by the aliases of the databases that each is on; all by the chosen one, where one is."""
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(queues):
        for alias in [chosen] if chosen else conf.queue_databases.get(name, (conf.database,)):
            found.setdefault(alias, []).append(name)
    return found


def job_id_from(options: Mapping[str, Any]) -> int:
    """Return the id of the one job that is chosen; raise CommandError if no job holds the unique key."""
    if (options["id"] is None) == (options["unique_key"] is None):
        raise CommandError("Say which job: give its ID or --unique-key, one of them.")
    try:
        return get(options["id"], unique_key=options["unique_key"], database=options["database"]).id
    except PgQueueError as error:
        raise CommandError(str(error)) from error


def enqueue_from(options: dict[str, Any]) -> JobHandle[Any]:
    """Enqueue the job; raise CommandError if there is no such task, or an argument or option cannot be."""
    wanted: Any = {name: options[name] for name in OF_JOBS & options.keys() if options[name] is not None}
    try:
        task = registry.get(options["name"])
        wanted |= _rules_from(task.options, options)
        task = task.using(**wanted)
        if not conf.is_on_several(task.options.queue):
            check_database(task.database)
        return enqueue_one(task, tuple(options["job_args"]), options["job_kwargs"])
    except PgQueueError as error:
        raise CommandError(str(error)) from error


def _rules_from(declared: Options, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the task says of its keys, changed by the arguments that were given."""
    of_unique = {"until": options["unique_until"], "hold": options["unique_hold"]}
    unique = {name: value for name, value in of_unique.items() if value is not None}
    if unique and declared.unique is None and options["unique_key"] is None:
        raise CommandError("The job has no unique key. Give it one by --unique-key.")
    rules: dict[str, Any] = {"unique": dataclasses.replace(declared.unique_rule, **unique)} if unique else {}
    if (running := options["limit_running"]) is None:
        return rules
    if declared.limit is None and options["limit_key"] is None:
        raise CommandError("The job has no key to be limited by. Give it one by --limit-key.")
    return rules | {"limit": dataclasses.replace(declared.limit_rule, running=running)}


# Database

logger = logging.getLogger("django_pgqueue.worker")

PATIENCE_SECONDS = 10.0
"""Timeout of each wait for a server, when a command starts."""


def await_database(alias: str, *, seconds: float) -> None:
    """Connect to a database; where it is away, try again until the timeout, and log each new reason.

    What else may be wrong with it is left to the checks.

    Raises:
        CommandError: it cannot be reached.
    """
    until, failures, told = time.monotonic() + seconds, 0, ""
    database = QueueConnection(alias, "start", patience_seconds=PATIENCE_SECONDS)
    try:
        while (reason := _why_away(database)) and time.monotonic() < until:
            if reason != told:
                logger.warning("Waiting for the database of alias %r: %s", alias, reason)
            told, failures = reason, failures + 1
            time.sleep(max(min(reconnect_delay(failures), until - time.monotonic()), 0.0))
    finally:
        database.close()
    if reason:
        raise CommandError(
            f"The database of alias {alias!r} cannot be reached: {reason} "
            "Start with --wait-for-database to wait for it."
        )


def _why_away(database: QueueConnection) -> str:
    try:
        database.autocommit()
    except OperationalError as error:
        return one_line(error)
    except Error:
        return ""  # it answers; the checks report its problems
    return ""


@contextlib.contextmanager
def patient_with(alias: str) -> Iterator[None]:
    """Use a connection of its own in here where this thread would use Django's, which may wait without end.

    Raises:
        CommandError: it cannot be reached, or is silent.
    """
    before, database = postgresql(alias), QueueConnection(alias, "start", patience_seconds=PATIENCE_SECONDS)
    database.lend()
    try:
        _open(database)
        yield
    finally:
        connections[alias] = before
        database.close()


def _open(database: QueueConnection) -> None:
    try:
        database.autocommit()
    except OperationalError as error:
        raise _unreachable(database.alias, error) from error


def check_seen(queues: Iterable[QueueLine]) -> None:
    """Raise CommandError for queues that have neither a row nor jobs, on none of the databases they are of."""
    found: dict[str, bool] = {}
    for line in queues:
        found[line.name] = found.get(line.name, False) or line.is_known
    if unseen := [name for name, is_known in found.items() if not is_known]:
        raise CommandError(f"No job has been seen on {', '.join(map(plain, map(repr, unseen)))}.")


def check_number(alias: str) -> None:
    """Raise CommandError where ids of the database do not begin with its number: its alias may lead to another one."""
    with override("en"):
        for finding in numbers(View(alias, [])):
            raise CommandError(f"{finding.what} {finding.remedy}")


def check_database(alias: str | None = None) -> None:
    """Raise CommandError unless the queue's database is PostgreSQL, answers, and its tables are there."""
    alias = alias or conf.database
    try:
        connection = postgresql(alias)
        tables = connection.introspection.table_names()
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
    except OperationalError as error:
        raise _unreachable(alias, error) from error
    if "pgqueue_jobs" not in tables:
        name = connection.settings_dict["NAME"]
        advice = how_to_migrate(alias, is_recorded=is_recorded(alias))
        raise CommandError(f"There is no table pgqueue_jobs in {name!r} (alias {alias!r}). {advice}")


def _unreachable(alias: str, error: OperationalError) -> CommandError:
    return CommandError(f"The database of alias {alias!r} cannot be reached: {one_line(error)}")


def on_each(chosen: str | Collection[str] | None, act: Callable[[str], T]) -> tuple[dict[str, T], dict[str, str]]:
    """Act on the chosen databases, or on all that hold a queue; return the results, and why the others have none.

    All are connected to before the first is acted on: rows locked there do not wait for a server that is away.

    Raises:
        CommandError, django.db.Error: it is the only one, and cannot be used.
    """
    aliases = [chosen] if isinstance(chosen, str) else chosen or conf.databases
    results: dict[str, T] = {}
    failures: dict[str, str] = {}

    @contextlib.contextmanager
    def noted(alias: str) -> Iterator[None]:
        try:
            yield
        except (CommandError, Error, TookTooLong) as error:
            if len(aliases) == 1:
                raise
            failures[alias] = str(error).strip()

    for alias in aliases:
        with noted(alias):
            check_database(alias)
    for alias in [one for one in aliases if one not in failures]:
        with noted(alias):
            results[alias] = act(alias)
    return results, failures


def sections(texts: Mapping[str, str], failures: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the texts of several databases, each below a heading; where only one was asked, its text alone.

    Args:
        failures: why other databases that were asked have none.
    """
    if len(texts) + len(failures) == 1:
        return "".join(texts.values())
    return "\n\n".join(f"On {plain(alias)}:\n\n{text}" for alias, text in texts.items())


def check_failures(failures: Mapping[str, str]) -> None:
    """Raise CommandError, exit code 2, where ``on_each`` has left out a database."""
    if failures:
        raise CommandError(f"Not on all databases of the queue: {'; '.join(failures.values())}", returncode=LEFT_OUT)
