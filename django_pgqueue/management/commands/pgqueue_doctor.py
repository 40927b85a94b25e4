from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error
from django.utils.translation import override

from django_pgqueue.cli.arguments import add_database, add_json, check_database
from django_pgqueue.conf import conf
from django_pgqueue.db.errors import one_line
from django_pgqueue.doctor import ALL_LOOKS, DEPLOY_LOOKS, NOT_LOOKED_AT, Finding, Level, findings
from django_pgqueue.doctor.deploy import Change, changes
from django_pgqueue.insights.formatting import json_text, plain
from django_pgqueue.version import VERSION

FOUND, COULD_NOT_LOOK = 1, 2

HELP = """
Look at the queue as it is and name what will hurt, each with the remedy. Changes nothing, and may be run at any time.
Exit code: 0 healthy, 1 something was found of the level, 2 it could not look, or not at everything.
"""


class Command(BaseCommand):
    help = HELP
    requires_system_checks = ["pgqueue"]

    def add_arguments(self, parser: CommandParser) -> None:
        add_json(parser)
        parser.add_argument(
            "--fail-level",
            choices=[level.value for level in Level],
            default=Level.ERROR.value,
            help="exit with 1 where something as bad as this is found; default: error",
        )
        parser.add_argument(
            "--deploy",
            action="store_true",
            help="show what workers with this code will change, and only the findings about its tasks and migrations",
        )
        add_database(parser)

    def check(self, *args: Any, **options: Any) -> None:
        with _looking():
            super().check(*args, **options)

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"] or conf.database
        with _looking():
            check_database(alias)
            found = findings(alias, looks=DEPLOY_LOOKS if options["deploy"] else ALL_LOOKS)
            made = changes(alias) if options["deploy"] else None
        self.stdout.write(_json(alias, found, made) if options["json"] else _text(found, made))
        _judge(found, Level(options["fail_level"]))


@contextmanager
def _looking() -> Iterator[None]:
    try:
        yield
    except CommandError as error:
        error.returncode = COULD_NOT_LOOK
        raise
    except (Error, psycopg.Error) as error:
        raise CommandError(one_line(error), returncode=COULD_NOT_LOOK) from error


def _judge(found: Sequence[Finding], fail_level: Level) -> None:
    if any(finding.level is Level.ERROR or finding.level is fail_level for finding in found):
        raise CommandError(f"Found: {_counts(found)}.", returncode=FOUND)
    if any(finding.name == NOT_LOOKED_AT for finding in found):
        raise CommandError("Not everything could be looked at.", returncode=COULD_NOT_LOOK)


def _text(found: Sequence[Finding], made: Sequence[Change] | None) -> str:
    if made is not None:
        return "\n\n".join(filter(None, [_changes(made), _text(found, None) if found else ""]))
    if not found:
        return "healthy"
    told = [
        f"{finding.level.upper()} {finding.name}\n  {plain(finding.what)}\n  {plain(finding.remedy)}"
        for finding in found
    ]
    return "\n\n".join(told)


def _changes(made: Sequence[Change]) -> str:
    return "\n".join(plain(f"{one.kind} {one.name}: {one.what}") for one in made) or "This code changes nothing."


def _json(alias: str, found: Sequence[Finding], made: Sequence[Change] | None) -> str:
    told = {
        "healthy": not found,
        "database": alias,
        "version": VERSION,
        "findings": [finding.as_json() for finding in found],
        **({} if made is None else {"changes": [one._asdict() for one in made]}),
    }
    return json_text(told)


def _counts(found: Sequence[Finding]) -> str:
    number = Counter(finding.level for finding in found)
    return ", ".join(f"{number[level]} {level}{'s' if number[level] > 1 else ''}" for level in Level if number[level])
