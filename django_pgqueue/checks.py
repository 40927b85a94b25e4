"""System checks. Stable ids, each with a hint.

E001 unknown key in PGQUEUE · E002 value out of range · E003 database alias missing · E004 database not PostgreSQL ·
E005 schedule that cannot be stored ·
W001 router missing · W002 psycopg without its C speedups · W003 no role that can look after the tables ·
W005 schedule of a task that another backend runs · W006 IMMEDIATE without DEBUG ·
W007 tables, indexes, checks or functions missing or of no use · W008 partitions missing ·
W009 storage options changed · W010 packages of the project that import the backport beside django.tasks ·
W011 atomic tasks on a database that works at SERIALIZABLE.
E006 to E009 and W004 are about aliases in TASKS, see backend
"""

import re
import sys
import sysconfig
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Caution
from django.db import Error as DatabaseTrouble
from django.db import connections
from django.utils import translation
from django.utils.module_loading import import_string

from django_pgqueue import backport, registry
from django_pgqueue.conf import DEFAULTS, conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.exceptions import InvalidArguments
from django_pgqueue.maintenance.vacuum import Privileges, privileges
from django_pgqueue.schedules.periodic import DeclaredSchedule, declared, left_out
from django_pgqueue.schedules.sync import definition_of

BOUNDS: dict[str, tuple[Any, float, float]] = {
    "LEASE_SECONDS": (int, 3, 86400),
    "MAX_ATTEMPTS": (int, 1, 32767),
    "MAX_PAYLOAD_BYTES": (int, 1, 256 * 1024 * 1024),
    "POLL_SECONDS": ((int, float), 0.01, 3600),
    "RETENTION_DAYS": (int, 0, 36500),
    "DEAD_RETENTION_DAYS": (int, 1, 36500),
    "STATS_DAYS": (int, 1, 36500),
    "VACUUM_DEAD_ROWS": (int, 0, 1_000_000_000),
    "STATEMENT_TIMEOUT_SECONDS": (int, 1, 86400),
    "ADMIN_TIMEOUT_SECONDS": ((int, float), 0.01, 3600),
}
SWITCHES = {
    "NOTIFY": (True, False),
    "IMMEDIATE": (True, False),
    "IMMEDIATE_ERRORS": ("raise", "log"),
    "PREPARED_STATEMENTS": (None, True, False),
    "TRACING": (True, False),
}
OF_FINDINGS = {  # by the names of docs/reference/findings.md
    "columns-missing": "pgqueue.W007",
    "indexes-missing": "pgqueue.W007",
    "indexes-invalid": "pgqueue.W007",
    "checks-missing": "pgqueue.W007",
    "functions-missing": "pgqueue.W007",
    "partitions-missing": "pgqueue.W008",
    "storage-options": "pgqueue.W009",
    "autovacuum-off": "pgqueue.W009",
}

SHORTEST_TOKEN = 16
ROUTER = "django_pgqueue.routers.PgQueueRouter"


@register("pgqueue")
def check_settings(**_: Any) -> list[CheckMessage]:
    """Find every wrong value of PGQUEUE at once."""
    given = getattr(settings, "PGQUEUE", {})
    if not isinstance(given, dict):
        return [Error(f"PGQUEUE is {given!r}.", hint="Make it a dict.", id="pgqueue.E002")]
    return [*_unknown_keys(given), *_wrong_values(DEFAULTS | given), *_wrong_database(DEFAULTS | given)]


@register("pgqueue")
def check_schedules(**_: Any) -> list[CheckMessage]:
    """Find schedules of the code whose arguments are not JSON; all else was checked when they were declared."""
    return [
        Error(
            f"The schedule {name!r} of {schedule.task.name} cannot be stored: {problem}",
            hint="Give args= and kwargs= of @periodic values that JSON knows, or set PGQUEUE['ENCODER'].",
            id="pgqueue.E005",
        )
        for name, schedule in declared().items()
        if (problem := _problem_of(schedule))
    ]


@register("pgqueue")
def check_schedules_of_others(**_: Any) -> list[CheckMessage]:
    """Find schedules of tasks of Django's Tasks framework that are not this queue's."""
    return [
        Caution(
            f"The schedule {name!r} does nothing: its task is run by the backend {task.backend!r}.",
            hint="Let TASKS name django_pgqueue.backend.PgQueueBackend for that alias. Where another is meant, as in "
            "settings for tests, silence this check.",
            id="pgqueue.W005",
        )
        for name, task in left_out().items()
    ]


@register("pgqueue", deploy=True)
def check_immediate(**_: Any) -> list[CheckMessage]:
    """Say when what is for tests is about to go live. Only for ``check --deploy``: tests run without DEBUG too."""
    if not isinstance(getattr(settings, "PGQUEUE", {}), dict) or not conf.immediate or settings.DEBUG:
        return []
    return [
        Caution(
            "PGQUEUE['IMMEDIATE'] is on: requests run their jobs themselves, and wait for them.",
            hint="Take it out of the settings of whatever is not a test.",
            id="pgqueue.W006",
        )
    ]


@register("pgqueue")
def check_backport(**_: Any) -> list[CheckMessage]:
    """Name packages of the project that import the backport of the framework where Django has the framework itself.

    Packages that are installed, as Wagtail, are left out: their tasks run, and the project cannot change them.
    """
    packages = [package for package in backport.users() if not _is_installed(package)]
    if not packages or not find_spec("django.tasks") or not _runs_tasks():
        return []
    return [
        Caution(
            f"{', '.join(packages)} import{'s' if len(packages) == 1 else ''} django_tasks, the backport of the Tasks "
            "framework, which this Django has as django.tasks.",
            hint="Their tasks run, errors and signals are of both; isinstance() with a class of django_tasks is False, "
            "and its log is written where LOGGING names it. Import from django.tasks.",
            id="pgqueue.W010",
        )
    ]


def _is_installed(package: str) -> bool:
    module = sys.modules.get(package)
    if not isinstance(module, ModuleType):
        return False
    file = ModuleType.__getattribute__(module, "__dict__").get("__file__")
    return isinstance(file, str) and any(
        Path(file).is_relative_to(sysconfig.get_path(name)) for name in ("purelib", "platlib")
    )


def _runs_tasks() -> bool:
    from django_pgqueue.backend import PgQueueBackend  # noqa: PLC0415 - the framework may be missing
    from django_pgqueue.framework import InvalidTaskBackend, task_backends  # noqa: PLC0415

    try:
        return any(isinstance(one, PgQueueBackend) for one in task_backends.all())
    except InvalidTaskBackend:
        return False  # the framework's own check says so


@register(Tags.compatibility)
def check_psycopg(**_: Any) -> list[CheckMessage]:
    """Say when the slow implementation of psycopg is in use."""
    if psycopg.pq.__impl__ == "python":
        return [
            Caution(
                "psycopg runs in pure Python, several times slower.",
                hint="Install django-pgqueue[binary] or psycopg[c].",
                id="pgqueue.W002",
            )
        ]
    return []


@register(Tags.database)
def check_rights(databases: Collection[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Say when the role of the workers cannot look after the tables. Asks the database."""
    if not isinstance(getattr(settings, "PGQUEUE", {}), dict) or conf.database not in (databases or ()):
        return []
    alias = conf.maintenance_database
    allowed = _rights_of(alias)
    if allowed is None:
        return list(_missing_tables(alias))
    lacking = [
        work
        for work, is_wanted, is_allowed in (
            ("make and drop partitions of finished jobs", conf.retention_days, allowed.may_partition),
            ("prune dead jobs", conf.dead_retention_days, allowed.may_prune),
            ("VACUUM pgqueue_jobs", conf.vacuum_dead_rows, allowed.may_vacuum),
        )
        if is_wanted and not is_allowed
    ]
    if not lacking:
        return []
    return [
        Caution(
            f"The role of {alias!r} may not {' or '.join(lacking)}, so workers cannot.",
            hint="Set PGQUEUE['MAINTENANCE_DATABASE'] to an alias of the same database whose role owns the tables. "
            "For VACUUM alone, GRANT MAINTAIN ON pgqueue_jobs does too (PostgreSQL 17 and newer).",
            id="pgqueue.W003",
        )
    ]


@register(Tags.database)
def check_schema(databases: Collection[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Say what is missing in the database, or is not as the migrations have made it. Asks its catalogue alone."""
    from django_pgqueue.doctor import SCHEMA_LOOKS, findings  # noqa: PLC0415 - most processes start without this check

    if not isinstance(getattr(settings, "PGQUEUE", {}), dict) or conf.database not in (databases or ()):
        return []
    if _rights_of(conf.database) is None:
        return []
    with translation.override("en"):  # like other checks
        found = findings(conf.database, queues=[], looks=SCHEMA_LOOKS)
    return [Caution(one.what, hint=one.remedy, id=OF_FINDINGS[one.name]) for one in found if one.name in OF_FINDINGS]


@register(Tags.database)
def check_isolation(databases: Collection[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Say when tasks with ``atomic=True`` will meet conflicts of SERIALIZABLE. Asks the database for its default."""
    if not isinstance(getattr(settings, "PGQUEUE", {}), dict) or conf.database not in (databases or ()):
        return []
    atomic = [task for name in registry.known() if (task := registry.get(name)).is_atomic]
    if not atomic or not _is_serializable(conf.database):
        return []
    return [
        Caution(
            f"{conf.database!r} works at SERIALIZABLE: tasks with atomic=True, as {atomic[0].name}, may end in "
            "conflicts with each other, though they touch different rows, and are repeated.",
            hint="Let workers use READ COMMITTED, by OPTIONS of the alias or by ALTER ROLE … SET "
            "default_transaction_isolation; or silence this check, if repeated runs do no harm.",
            id="pgqueue.W011",
        )
    ]


def _is_serializable(alias: str) -> bool:
    if alias not in connections or connections[alias].vendor != "postgresql":
        return False
    if (level := connections[alias].settings_dict["OPTIONS"].get("isolation_level")) is not None:
        return bool(level == psycopg.IsolationLevel.SERIALIZABLE)
    try:
        return CallerConnection(alias).rows("SHOW default_transaction_isolation", {}) == [("serializable",)]
    except DatabaseTrouble:
        return False


def _missing_tables(alias: str) -> Iterator[CheckMessage]:
    """Tell a wrong alias from a database that is not migrated yet, or away."""
    if alias != conf.database and _rights_of(conf.database):
        yield Caution(
            f"The tables of the queue are on {conf.database!r}, but not on {alias!r}.",
            hint="Let PGQUEUE['MAINTENANCE_DATABASE'] lead to the same database, by a role that owns the tables.",
            id="pgqueue.W003",
        )


def _unknown_keys(given: dict[str, Any]) -> Iterator[CheckMessage]:
    for key in sorted(set(given) - set(DEFAULTS)):
        yield Error(f"PGQUEUE has no key {key!r}.", hint=f"Keys are: {', '.join(DEFAULTS)}.", id="pgqueue.E001")


def _wrong_values(values: dict[str, Any]) -> Iterator[CheckMessage]:
    for key, (kind, lowest, highest) in BOUNDS.items():
        value = values[key]
        if value is DEFAULTS[key] is None:
            continue
        if isinstance(value, bool) or not isinstance(value, kind) or not lowest <= value <= highest:
            hint = f"Use a number from {lowest} to {highest}{', or None' if DEFAULTS[key] is None else ''}."
            yield Error(f"PGQUEUE[{key!r}] is {value!r}.", hint=hint, id="pgqueue.E002")
    for key, allowed in SWITCHES.items():
        if not any(values[key] is value or (isinstance(value, str) and values[key] == value) for value in allowed):
            hint = f"Use {', '.join(map(repr, allowed[:-1]))} or {allowed[-1]!r}."
            yield Error(f"PGQUEUE[{key!r}] is {values[key]!r}.", hint=hint, id="pgqueue.E002")
    yield from _wrong_token(values["METRICS_TOKEN"])
    yield from _wrong_expressions(values["SENSITIVE_PARAMETERS"])
    try:
        if isinstance(values["ENCODER"], str):
            import_string(values["ENCODER"])
    except ImportError as error:
        yield Error(f"PGQUEUE['ENCODER'] cannot be imported: {error}.", hint="Give a dotted path.", id="pgqueue.E002")


def _wrong_token(value: Any) -> Iterator[CheckMessage]:
    """Tell of a token that is none, or could be guessed; without telling the token."""
    if value is not None and not (isinstance(value, str) and len(value) >= SHORTEST_TOKEN and value.isascii()):
        yield Error(
            f"PGQUEUE['METRICS_TOKEN'] is no text of {SHORTEST_TOKEN} or more ASCII characters.",
            hint="Make one by python -c 'import secrets; print(secrets.token_urlsafe())', or use None.",
            id="pgqueue.E002",
        )


def _wrong_expressions(value: Any) -> Iterator[CheckMessage]:
    hint = "Use a list of regular expressions for names, such as ['password', 'card.?number']."
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) and one for one in value):
        yield Error(f"PGQUEUE['SENSITIVE_PARAMETERS'] is {value!r}.", hint=hint, id="pgqueue.E002")
        return
    for one in value:
        try:
            re.compile(one)
        except re.error as error:
            yield Error(f"PGQUEUE['SENSITIVE_PARAMETERS'] has {one!r}: {error}.", hint=hint, id="pgqueue.E002")


def _wrong_database(values: dict[str, Any]) -> Iterator[CheckMessage]:
    wrong = [*_unusable_alias(values, "DATABASE")]
    for key in ("MAINTENANCE_DATABASE", "LISTEN_DATABASE"):
        if values[key] not in (None, values["DATABASE"]):
            wrong += _unusable_alias(values, key)
    yield from wrong
    alias = values["DATABASE"]
    if alias != "default" and alias in connections and ROUTER not in settings.DATABASE_ROUTERS:
        yield Caution(
            f"The queue is on {alias!r}, but its models and admin look for it on 'default'.",
            hint=f"Add {ROUTER!r} to DATABASE_ROUTERS.",
            id="pgqueue.W001",
        )


def _unusable_alias(values: dict[str, Any], key: str) -> Iterator[CheckMessage]:
    alias = values[key]
    if alias not in connections:
        yield Error(
            f"PGQUEUE[{key!r}] is {alias!r}, which is not in DATABASES.",
            hint=f"Use one of {', '.join(connections)}.",
            id="pgqueue.E003",
        )
    elif connections[alias].vendor != "postgresql":
        yield Error(
            f"The queue's database {alias!r} is {connections[alias].vendor}.",
            hint=f"Set PGQUEUE[{key!r}] to the alias of a PostgreSQL database. Where it is on purpose, as in "
            "settings for tests that enqueue nothing, silence this check.",
            id="pgqueue.E004",
        )


def _rights_of(alias: str) -> Privileges | None:
    """Return what its role may do; None where that cannot be asked, which others will say."""
    if alias not in connections or connections[alias].vendor != "postgresql":
        return None
    try:
        return privileges(CallerConnection(alias))
    except DatabaseTrouble:
        return None


def _problem_of(schedule: DeclaredSchedule) -> str:
    try:
        definition_of(schedule)
    except InvalidArguments as error:
        return str(error)
    return ""
