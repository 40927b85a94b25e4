from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
from django.core.management.base import CommandError, CommandParser
from django.db import Error
from django.utils.translation import override

from django_pgqueue.cli.arguments import add_database, add_json, check_database, sections
from django_pgqueue.cli.command import QueueCommand, explained
from django_pgqueue.conf import conf
from django_pgqueue.db.queries import TookTooLong
from django_pgqueue.doctor import ALL_LOOKS, DEPLOY_LOOKS, NOT_LOOKED_AT, Finding, Level, findings
from django_pgqueue.doctor.deploy import DeployChange, changes
from django_pgqueue.insights.formatting import json_text, plain
from django_pgqueue.version import VERSION

FOUND, COULD_NOT_LOOK = 1, 2

HELP = """
Look at the queue as it is, on all of its databases, and name what will hurt, each with the remedy. Changes nothing, and
may be run at any time.
Exit code: 0 healthy, 1 something was found of the level, 2 it could not look, or not at everything.
"""


class Command(QueueCommand):
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
        add_database(parser, default="all that hold a queue")

    def check(self, *args: Any, **options: Any) -> None:
        with _looking():
            super().check(*args, **options)

    @override("en")
    def handle(self, *args: Any, **options: Any) -> None:
        aliases = [options["database"]] if options["database"] else conf.databases
        if len(aliases) == 1:
            reports = [_report(aliases[0], is_of_deploy=options["deploy"])]
        else:
            reports = [_report_if_reached(alias, is_of_deploy=options["deploy"]) for alias in aliases]
        self.stdout.write(_json(reports) if options["json"] else _text(reports))
        _judge([finding for report in reports for finding in report.findings], Level(options["fail_level"]))


class Report(NamedTuple):
    """Findings on one database, and changes that a deployment makes there."""

    database: str
    findings: Sequence[Finding]
    changes: Sequence[DeployChange] | None  # None: those of a deployment were not asked for


def _report(alias: str, *, is_of_deploy: bool) -> Report:
    with _looking():
        check_database(alias)
        if is_of_deploy:
            return Report(alias, findings(alias, looks=DEPLOY_LOOKS), changes(alias))
        return Report(alias, findings(alias, looks=ALL_LOOKS), None)


def _report_if_reached(alias: str, *, is_of_deploy: bool) -> Report:
    """Return the same; or that the database could not be looked at, while the others are looked at."""
    try:
        return _report(alias, is_of_deploy=is_of_deploy)
    except CommandError as error:
        away = Finding(
            name=NOT_LOOKED_AT,
            level=Level.WARNING,
            what=str(error),
            remedy="Look at the server, and at this alias in DATABASES.",
        )
        return Report(alias, [away], None)


@contextmanager
def _looking() -> Iterator[None]:
    try:
        yield
    except CommandError as error:
        error.returncode = COULD_NOT_LOOK
        raise
    except (Error, psycopg.Error, TookTooLong) as error:
        raise CommandError(explained(error), returncode=COULD_NOT_LOOK) from error


def _judge(found: Sequence[Finding], fail_level: Level) -> None:
    if any(finding.level is Level.ERROR or finding.level is fail_level for finding in found):
        raise CommandError(f"Found: {_counts(found)}.", returncode=FOUND)
    if any(finding.name == NOT_LOOKED_AT for finding in found):
        raise CommandError("Not everything could be looked at.", returncode=COULD_NOT_LOOK)


def _text(reports: Sequence[Report]) -> str:
    return sections({report.database: _told(report) for report in reports})


def _told(report: Report) -> str:
    told = [
        f"{finding.level.upper()} {finding.name}\n  {plain(finding.what)}\n  {plain(finding.remedy)}"
        for finding in report.findings
    ]
    if report.changes is not None:
        told.insert(0, _changes(report.changes))
    return "\n\n".join(told) or "healthy"


def _changes(made: Sequence[DeployChange]) -> str:
    return "\n".join(plain(f"{one.kind} {one.name}: {one.what}") for one in made) or "This code changes nothing."


def _json(reports: Sequence[Report]) -> str:
    found = [{"database": report.database, **one.as_json()} for report in reports for one in report.findings]
    told = {
        "healthy": not found,
        "databases": [report.database for report in reports],
        "version": VERSION,
        "findings": found,
    }
    if any(report.changes is not None for report in reports):
        told["changes"] = [
            {"database": report.database, **one._asdict()} for report in reports for one in report.changes or ()
        ]
    return json_text(told)


def _counts(found: Sequence[Finding]) -> str:
    number = Counter(finding.level for finding in found)
    return ", ".join(f"{number[level]} {level}{'s' if number[level] > 1 else ''}" for level in Level if number[level])
