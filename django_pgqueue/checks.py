"""System checks. docs/reference/checks.md lists their ids, which are stable; ``backend`` checks aliases in TASKS."""

import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Caution
from django.db import Error as DatabaseTrouble
from django.db import connections
from django.utils import translation
from django.utils.module_loading import import_string

from django_pgqueue import backport, registry
from django_pgqueue.conf import (
    DEFAULTS,
    LARGEST_NUMBER,
    LARGEST_OUTBOX,
    OF_SHARDS,
    SETTINGS,
    SLOTS,
    Setting,
    conf,
    load_middleware,
)
from django_pgqueue.db.connections import CallerConnection, how_to_migrate
from django_pgqueue.exceptions import ConfigurationError, InvalidArguments, InvalidLimit, InvalidOption
from django_pgqueue.flow.declared_queues import DeclaredQueue, undeclared
from django_pgqueue.maintenance.vacuum import Privileges, privileges
from django_pgqueue.options import RetryRules, TaskRules, options_of
from django_pgqueue.schedules.periodic import declared, left_out
from django_pgqueue.schedules.sync import definition_of
from django_pgqueue.version import DISTRIBUTION, installed, is_foreign

OF_FINDINGS = {  # by the names of docs/reference/doctor-command.md#findings
    "columns-missing": "pgqueue.W007",
    "indexes-missing": "pgqueue.W007",
    "indexes-invalid": "pgqueue.W007",
    "checks-missing": "pgqueue.W007",
    "functions-missing": "pgqueue.W007",
    "shard-number": "pgqueue.W013",
    "partitions-missing": "pgqueue.W008",
    "storage-options": "pgqueue.W009",
    "autovacuum-off": "pgqueue.W009",
}

SHORTEST_TOKEN = 16
OUTBOX, OUTBOX_LABEL = "django_pgqueue.outbox", "pgqueue_outbox"
ROUTER = "django_pgqueue.routers.PgQueueRouter"


@register("pgqueue")
def check_settings(**_: Any) -> list[CheckMessage]:
    """Find every wrong value of PGQUEUE at once."""
    given = getattr(settings, "PGQUEUE", {})
    if not isinstance(given, dict):
        return [Error(f"PGQUEUE is {given!r}.", hint="Make it a dict.", id="pgqueue.E002")]
    return [*_unknown_keys(given), *_wrong_values(DEFAULTS | given), *_wrong_database(DEFAULTS | given)]


def _settings_are_readable() -> bool:
    return isinstance(getattr(settings, "PGQUEUE", {}), dict)


@register("pgqueue")
def check_schedules(**_: Any) -> Iterator[CheckMessage]:
    """Find schedules of the code whose arguments are not JSON; all else was checked when they were declared."""
    for name, schedule in declared().items():
        try:
            definition_of(schedule)
        except InvalidArguments as error:
            yield Error(
                f"The schedule {name!r} of {schedule.task.name} cannot be stored: {error}",
                hint="Bind values that JSON knows, or set PGQUEUE['JSON_ENCODER'].",
                id="pgqueue.E005",
            )


@register("pgqueue")
def check_queues(**_: Any) -> Iterator[CheckMessage]:
    """Find tasks and schedules with a queue that PGQUEUE['QUEUES'] does not declare, where it declares any."""
    if not _settings_are_readable() or not isinstance(conf.queues, Mapping):
        return
    if any(_wrong_defaults(conf.task_defaults)):  # so that no task can say its queue
        return
    users = [(registry.get(name).options.queue, f"The task {name}") for name in registry.known()]
    users += [
        (str(one.options["queue"]), f"The schedule {name!r} of {one.task.name}")
        for name, one in declared().items()
        if "queue" in one.options
    ]
    unknown = undeclared({queue for queue, _ in users})
    for queue, user in users:
        if queue in unknown:
            near = f" Did you mean {unknown[queue]!r}?" if unknown[queue] else ""
            yield Error(
                f"{user} is on the queue {queue!r}, which PGQUEUE['QUEUES'] does not declare.{near}",
                hint=f"Correct the name, or add {queue!r}: {{}} to PGQUEUE['QUEUES'].",
                id="pgqueue.E010",
            )


@register("pgqueue")
def check_keys(**_: Any) -> Iterator[CheckMessage]:
    """Find tasks whose jobs have two keys that may be on different databases."""
    if not _settings_are_readable() or any(_wrong_shards(conf.shards)) or any(_wrong_defaults(conf.task_defaults)):
        return
    for name in registry.known():
        options = registry.get(name).options
        if options.unique and options.limit and not options.shard_by and conf.is_on_several(options.queue):
            yield Error(
                f"Jobs of the task {name} have a unique key and a concurrency key, and the queue {options.queue!r} is "
                "on several databases in PGQUEUE['SHARDS'].",
                hint="Name the arguments that both keys have in common by shard_by, as in shard_by='account_id'.",
                id="pgqueue.E011",
            )


@register("pgqueue")
def check_schedules_of_others(**_: Any) -> Iterator[CheckMessage]:
    """Find schedules of tasks of Django's Tasks framework that are not this queue's."""
    for name, task in left_out().items():
        yield Caution(
            f"The schedule {name!r} does nothing: its task is run by the backend {task.backend!r}.",
            hint="Let TASKS name django_pgqueue.backend.PgQueueBackend for that alias. Where another is meant, as in "
            "settings for tests, silence this check.",
            id="pgqueue.W005",
        )


@register("pgqueue", deploy=True)
def check_immediate(**_: Any) -> Iterator[CheckMessage]:
    """Warn of a setting for tests in production. Only for ``check --deploy``: tests run without DEBUG too."""
    if _settings_are_readable() and conf.immediate and not settings.DEBUG:
        yield Caution(
            "PGQUEUE['IMMEDIATE'] is on: requests run their jobs themselves, and wait for them.",
            hint="Remove it from all settings but those of tests.",
            id="pgqueue.W006",
        )


@register("pgqueue")
def check_backport(**_: Any) -> Iterator[CheckMessage]:
    """Name packages of the project that import the backport of the framework where Django has the framework itself.

    Packages that are installed, as Wagtail, are left out: their tasks run, and the project cannot change them.
    """
    packages = [package for package in backport.users() if not _is_installed(package)]
    if packages and find_spec("django.tasks") and _runs_tasks():
        yield Caution(
            f"{', '.join(packages)} import{'s' if len(packages) == 1 else ''} django_tasks, the backport of the Tasks "
            "framework, which this Django has as django.tasks.",
            hint="Their tasks run, errors and signals are of both; isinstance() with a class of django_tasks is False, "
            "and its log is written where LOGGING names it. Import from django.tasks.",
            id="pgqueue.W010",
        )


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
def check_psycopg(**_: Any) -> Iterator[CheckMessage]:
    """Say when the slow implementation of psycopg is in use."""
    if psycopg.pq.__impl__ == "python":
        yield Caution(
            "psycopg runs in pure Python, several times slower.",
            hint="Install psycopg[binary] or psycopg[c].",
            id="pgqueue.W002",
        )


@register(Tags.compatibility)
def check_distribution(**_: Any) -> Iterator[CheckMessage]:
    """Say when pip has installed the other project that has the same name on PyPI."""
    found = installed()
    if found is not None and is_foreign(found):
        yield Caution(
            f"{DISTRIBUTION} {found.version}, which is installed, is another project of the same name.",
            hint=f"pip uninstall {DISTRIBUTION}, then install this one from a checkout, or from a wheel built from it.",
            id="pgqueue.W012",
        )


def _askable(databases: Collection[str] | None) -> list[str]:
    """Return those of the queue's databases that checks may ask."""
    return [alias for alias in conf.databases if alias in databases] if databases and _settings_are_readable() else []


@register(Tags.database)
def check_rights(databases: Collection[str] | None = None, **_: Any) -> Iterator[CheckMessage]:
    """Warn if the role of the workers cannot maintain the tables. Asks the database."""
    for alias in _askable(databases):
        yield from _lacking_rights(alias, conf.maintenance_alias(alias))


def _lacking_rights(queue: str, alias: str) -> Iterator[CheckMessage]:
    setting = "PGQUEUE['MAINTENANCE_DATABASE']" if queue == conf.database else f"PGQUEUE['SHARDS'][{queue!r}]"
    allowed = _rights_of(alias)
    if allowed is None:
        if alias != queue and _rights_of(queue):  # else it is not migrated yet, or away
            yield Caution(
                f"The tables of the queue are on {queue!r}, but not on {alias!r}.",
                hint=f"Let {setting} lead to the same database, by a role that owns the tables.",
                id="pgqueue.W003",
            )
        return
    lacking = [
        work
        for work, is_wanted, is_allowed in (
            ("make and drop partitions of succeeded jobs", conf.retention_days, allowed.may_partition),
            ("prune dead jobs", conf.dead_retention_days, allowed.may_prune),
            ("VACUUM pgqueue_jobs", conf.vacuum_dead_rows, allowed.may_vacuum),
        )
        if is_wanted and not is_allowed
    ]
    if lacking:
        yield Caution(
            f"The role of {alias!r} may not {' or '.join(lacking)}, so workers cannot.",
            hint=f"Let {setting} name an alias of the same database whose role owns the tables. "
            "For VACUUM alone, GRANT MAINTAIN ON pgqueue_jobs does too (PostgreSQL 17 and newer).",
            id="pgqueue.W003",
        )


@register(Tags.database)
def check_schema(databases: Collection[str] | None = None, **_: Any) -> Iterator[CheckMessage]:
    """Report parts of the schema that are missing or differ from the migrations. Asks the catalogue alone."""
    from django_pgqueue.doctor import SCHEMA_LOOKS, findings  # noqa: PLC0415 - most processes start without this check
    from django_pgqueue.doctor.schema import columns  # noqa: PLC0415

    for alias in _askable(databases):
        is_there = _rights_of(alias) is not None
        if not is_there and not _has_seen_migrations(alias):
            continue
        with translation.override("en"):  # like other checks
            found = findings(alias, queues=[], looks=SCHEMA_LOOKS if is_there else [columns])
        for one in found:
            if one.name in OF_FINDINGS:
                what = one.what if alias == conf.database else f"On {alias!r}: {one.what}"
                yield Caution(what, hint=one.remedy, id=OF_FINDINGS[one.name])


@register(Tags.database)
def check_outboxes(databases: Collection[str] | None = None, **_: Any) -> Iterator[CheckMessage]:
    """Report databases with an outbox where its migrations, run before that, have made no tables."""
    if not databases or not _settings_are_readable() or not apps.is_installed(OUTBOX):
        return
    outboxes = conf.outboxes if isinstance(conf.outboxes, dict) else {}
    for alias in dict.fromkeys([*outboxes, *conf.databases] if outboxes else ()):
        if alias in databases and _lacks_outbox(alias):
            yield Caution(
                f"{alias!r} has not the tables of an outbox, although their migration is noted as applied.",
                hint=how_to_migrate(alias, app=OUTBOX_LABEL, is_recorded=True),
                id="pgqueue.W007",
            )


@register(Tags.database)
def check_isolation(databases: Collection[str] | None = None, **_: Any) -> Iterator[CheckMessage]:
    """Say when tasks with ``atomic=True`` will meet conflicts of SERIALIZABLE. Asks the database for its default."""
    atomic = [name for name in registry.known() if registry.get(name).atomic]
    for alias in _askable(databases) if atomic else ():
        if not _is_serializable(alias):
            continue
        yield Caution(
            f"{alias!r} works at SERIALIZABLE: tasks with atomic=True, as {atomic[0]}, may end in "
            "conflicts with each other, though they touch different rows, and are repeated.",
            hint="Let workers use READ COMMITTED, by OPTIONS of the alias or by ALTER ROLE … SET "
            "default_transaction_isolation; or silence this check, if repeated runs do no harm.",
            id="pgqueue.W011",
        )


def _is_postgresql(alias: str) -> bool:
    return alias in connections and connections[alias].vendor == "postgresql"


def _lacks_outbox(alias: str) -> bool:
    """Whether a database records the migrations of the outbox as applied, and has no tables of it."""
    if not _has_seen_migrations(alias, OUTBOX_LABEL):
        return False
    table = apps.get_model(OUTBOX_LABEL, "OutboxCall")._meta.db_table  # noqa: SLF001
    return table not in connections[alias].introspection.table_names()


def _has_seen_migrations(alias: str, app: str = "pgqueue") -> bool:
    """Whether a database records the migrations as applied, so that ``migrate`` makes no tables there."""
    from django_pgqueue.doctor.catalogue import is_recorded  # noqa: PLC0415 - as in check_schema

    try:
        return _is_postgresql(alias) and is_recorded(alias, app)
    except DatabaseTrouble:
        return False


def _is_serializable(alias: str) -> bool:
    if not _is_postgresql(alias):
        return False
    if (level := connections[alias].settings_dict["OPTIONS"].get("isolation_level")) is not None:
        return bool(level == psycopg.IsolationLevel.SERIALIZABLE)
    try:
        return CallerConnection(alias).rows("SHOW default_transaction_isolation", {}) == [("serializable",)]
    except DatabaseTrouble:
        return False


def _unknown_keys(given: dict[str, Any]) -> Iterator[CheckMessage]:
    for key in sorted(set(given) - set(DEFAULTS)):
        yield Error(f"PGQUEUE has no key {key!r}.", hint=f"Keys are: {', '.join(DEFAULTS)}.", id="pgqueue.E001")


def _wrong_values(values: dict[str, Any]) -> Iterator[CheckMessage]:
    for key, one in SETTINGS.items():
        if (hint := _hint(one, values[key])) is not None:
            yield Error(f"PGQUEUE[{key!r}] is {values[key]!r}.", hint=hint, id="pgqueue.E002")
    yield from _wrong_token(values["METRICS_TOKEN"])
    yield from _wrong_expressions(values["SENSITIVE_PARAMETERS"])
    yield from _wrong_middleware(values["MIDDLEWARE"])
    yield from _wrong_queues(values["QUEUES"])
    yield from _wrong_shards(values["SHARDS"])
    yield from _spread_queues(values["SHARDS"])
    yield from _shared_numbers(values)
    yield from _wrong_outboxes(values["OUTBOXES"])
    yield from _wrong_defaults(values["TASK_DEFAULTS"])
    try:
        if isinstance(values["JSON_ENCODER"], str):
            import_string(values["JSON_ENCODER"])
    except ImportError as error:
        yield Error(
            f"PGQUEUE['JSON_ENCODER'] cannot be imported: {error}.", hint="Give a dotted path.", id="pgqueue.E002"
        )


def _hint(setting: Setting[Any], value: Any) -> str | None:
    """Return what to use in place of a value that is none of the choices or out of bounds, else None."""
    if setting.choices:
        *others, last = map(repr, setting.choices)
        is_one = any(value is one or (isinstance(value, str) and value == one) for one in setting.choices)
        return None if is_one else f"Use {', '.join(others)} or {last}."
    if setting.bounds is None or value is setting.default is None:
        return None
    lowest, highest = setting.bounds
    is_number = isinstance(value, int if isinstance(lowest, int) else int | float) and not isinstance(value, bool)
    if is_number and lowest <= value <= highest:
        return None
    return f"Use a number from {lowest} to {highest}{', or None' if setting.default is None else ''}."


def _wrong_token(value: Any) -> Iterator[CheckMessage]:
    """Report a token that is not valid or could be guessed, without its value."""
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


def _wrong_middleware(value: Any) -> Iterator[CheckMessage]:
    hint = "Use a list of dotted paths of classes with a method enqueue() or run(), or of functions in place of run()."
    if not isinstance(value, list | tuple):
        yield Error(f"PGQUEUE['MIDDLEWARE'] is {value!r}.", hint=hint, id="pgqueue.E002")
        return
    for one in value:
        try:
            found = load_middleware(one)
            if isinstance(found, type):  # no object is made of it here: that may have effects
                inspect.signature(found).bind()
        except ConfigurationError as error:
            yield Error(str(error), hint=hint, id="pgqueue.E002")
        except Exception as error:  # noqa: BLE001 - of a module or a class of the project
            why = f"cannot be used: {type(error).__name__}: {error}."
            yield Error(f"PGQUEUE['MIDDLEWARE'] has {one!r}, which {why}", hint=hint, id="pgqueue.E002")


def _wrong_queues(value: Any) -> Iterator[CheckMessage]:
    hint = "Use a dict such as {'mail': {'max_running': 4, 'rate': '100/m'}, 'reports': {}}."
    if not isinstance(value, Mapping):
        yield Error(f"PGQUEUE['QUEUES'] is {value!r}.", hint=hint, id="pgqueue.E002")
        return
    for name, options in value.items():
        try:
            DeclaredQueue.of(name, options)
        except InvalidLimit as error:
            yield Error(f"PGQUEUE['QUEUES'] has {name!r}: {error}", hint=hint, id="pgqueue.E002")


def _wrong_shards(value: Any) -> Iterator[CheckMessage]:
    hint = "Use a dict of dicts by aliases in DATABASES, such as {'queue_2': {'number': 1}}."
    if not isinstance(value, Mapping):
        yield Error(f"PGQUEUE['SHARDS'] is {value!r}.", hint=hint, id="pgqueue.E002")
        return
    for alias, given in value.items():
        yield from _unusable_alias(alias, "PGQUEUE['SHARDS']", "has")
        if not isinstance(given, Mapping) or not set(given) <= OF_SHARDS:
            keys = f"Keys are: {', '.join(sorted(OF_SHARDS))}."
            yield Error(f"PGQUEUE['SHARDS'][{alias!r}] is {given!r}.", hint=f"{hint} {keys}", id="pgqueue.E002")
            continue
        if not isinstance(given.get("number"), int) or not 0 <= given["number"] <= LARGEST_NUMBER:
            text = f"Give it a number from 1 to {LARGEST_NUMBER} that no other database of the queue has, or has had."
            yield Error(f"PGQUEUE['SHARDS'][{alias!r}] has no number.", hint=text, id="pgqueue.E002")
        queues = given.get("queues", ())
        if not isinstance(queues, list | tuple | set) or not all(isinstance(one, str) for one in queues):
            text = f"PGQUEUE['SHARDS'][{alias!r}]['queues'] is {queues!r}."
            yield Error(text, hint="Use a list of names of queues.", id="pgqueue.E002")
        slots = given.get("slots", ())
        if not isinstance(slots, Sequence) or not all(isinstance(one, int) and 0 <= one < SLOTS for one in slots):
            text = f"PGQUEUE['SHARDS'][{alias!r}]['slots'] is {slots!r}."
            yield Error(text, hint=f"Use numbers from 0 to {SLOTS - 1}, as range(0, 512).", id="pgqueue.E002")
        for key in ("listen", "maintenance"):
            if given.get(key) is not None:
                yield from _unusable_alias(given[key], f"PGQUEUE['SHARDS'][{alias!r}][{key!r}]")


def _wrong_outboxes(value: Any) -> Iterator[CheckMessage]:
    hint = f"Use a dict of different numbers from 0 to {LARGEST_OUTBOX} by aliases in DATABASES, as {{'default': 0}}."
    numbers = [*value.values()] if isinstance(value, Mapping) else [None]
    are_numbers = all(isinstance(number, int) and 0 <= number <= LARGEST_OUTBOX for number in numbers)
    if not are_numbers or len(set(numbers)) < len(numbers):
        yield Error(f"PGQUEUE['OUTBOXES'] is {value!r}.", hint=hint, id="pgqueue.E002")
        return
    for alias in value:
        yield from _unusable_alias(alias, "PGQUEUE['OUTBOXES']", "has")
    if value and not apps.is_installed(OUTBOX):
        yield Error(
            "PGQUEUE['OUTBOXES'] names databases, but their tables are not there.",
            hint=f"Add {OUTBOX!r} to INSTALLED_APPS, and migrate.",
            id="pgqueue.E002",
        )


def _spread_queues(value: Any) -> Iterator[CheckMessage]:
    """Look at queues on several databases, and at the slots that say which of these has which key."""
    if any(one.id == "pgqueue.E002" for one in _wrong_shards(value)):
        return
    of_queues: dict[str, list[str]] = {}
    owners: dict[int, str] = {}
    for alias, given in value.items():
        for queue in given.get("queues", ()):
            of_queues.setdefault(queue, []).append(alias)
        for slot in given.get("slots", ()):
            if owners.setdefault(slot, alias) != alias:
                yield Error(
                    f"The slot {slot} is on {owners[slot]!r} and {alias!r} in PGQUEUE['SHARDS'].",
                    hint="Jobs of one key would be on both. Name it on one of them.",
                    id="pgqueue.E002",
                )
                return
    spread = {queue: aliases for queue, aliases in of_queues.items() if len(aliases) > 1}
    if len({tuple(aliases) for aliases in spread.values()}) > 1:
        (one, first), (other, second) = list(spread.items())[:2]
        yield Error(
            f"In PGQUEUE['SHARDS'] the queue {one!r} is on {first}, and {other!r} on {second}.",
            hint="Name all queues that are on several databases on the same ones: they share the slots of keys.",
            id="pgqueue.E002",
        )
    elif spread:
        [aliases, *_] = spread.values()
        if any("slots" in given for given in value.values()):
            yield from _lost_slots(owners, aliases)
        yield from _impatient(aliases)


def _lost_slots(owners: Mapping[int, str], aliases: Collection[str]) -> Iterator[CheckMessage]:
    if lost := [slot for slot in range(SLOTS) if owners.get(slot) not in aliases]:
        yield Caution(
            f"{len(lost)} of the slots 0 to {SLOTS - 1} are on no database in PGQUEUE['SHARDS'], as {lost[0]}.",
            hint="Enqueueing jobs with keys in them raises ShardUnavailable. Add them to 'slots' of a database, unless "
            "they are just being moved.",
            id="pgqueue.W014",
        )


def _impatient(aliases: Collection[str]) -> Iterator[CheckMessage]:
    for alias in aliases:
        options = connections.settings[alias].get("OPTIONS", {}) if alias in connections else {"connect_timeout": 0}
        if "connect_timeout" not in options and "PGCONNECT_TIMEOUT" not in os.environ:
            yield Caution(
                f"DATABASES[{alias!r}] has no connect_timeout.",
                hint="While its server is silent, enqueueing would wait without an end in place of going to another "
                "database. Set OPTIONS to {'connect_timeout': 3}.",
                id="pgqueue.W015",
            )


def _shared_numbers(values: dict[str, Any]) -> Iterator[CheckMessage]:
    shards = values["SHARDS"] if isinstance(values["SHARDS"], Mapping) else {}
    used: dict[Any, str] = {} if values["DATABASE"] in shards else {0: values["DATABASE"]}
    for alias, given in shards.items():
        number = given.get("number") if isinstance(given, Mapping) else None
        if isinstance(number, int) and used.setdefault(number, alias) != alias:
            yield Error(
                f"{used[number]!r} and {alias!r} have the number {number} in PGQUEUE['SHARDS'].",
                hint="The ids of their jobs would be the same. Give each another number; that of DATABASE is 0.",
                id="pgqueue.E002",
            )


def _wrong_defaults(value: Any) -> Iterator[CheckMessage]:
    hint = "Use a dict such as {'timeout': 300, 'max_attempts': 5}."
    if not isinstance(value, Mapping):
        yield Error(f"PGQUEUE['TASK_DEFAULTS'] is {value!r}.", hint=hint, id="pgqueue.E002")
        return
    for name, given in value.items():
        try:
            options_of({}, {name: given})
            _ = RetryRules.of(TaskRules(), {name: given}).discard_on.classes
            _ = TaskRules(**{name: given} if name == "capture_logs" else {})
        except (ConfigurationError, InvalidOption) as error:
            yield Error(f"PGQUEUE['TASK_DEFAULTS'] has {name!r}: {error}", hint=hint, id="pgqueue.E002")


def _wrong_database(values: dict[str, Any]) -> Iterator[CheckMessage]:
    yield from _unusable_alias(values["DATABASE"], "PGQUEUE['DATABASE']")
    for key in ("MAINTENANCE_DATABASE", "LISTEN_DATABASE", "REPLICA_DATABASE"):
        if values[key] not in (None, values["DATABASE"]):
            yield from _unusable_alias(values[key], f"PGQUEUE[{key!r}]")
    alias = values["DATABASE"]
    if alias != "default" and alias in connections and ROUTER not in settings.DATABASE_ROUTERS:
        yield Caution(
            f"The queue is on {alias!r}, but its models and admin look for it on 'default'.",
            hint=f"Add {ROUTER!r} to DATABASE_ROUTERS.",
            id="pgqueue.W001",
        )


def _unusable_alias(alias: str, setting: str, word: str = "is") -> Iterator[CheckMessage]:
    if alias not in connections:
        yield Error(
            f"{setting} {word} {alias!r}, which is not in DATABASES.",
            hint=f"Use one of {', '.join(connections)}.",
            id="pgqueue.E003",
        )
    elif connections[alias].vendor != "postgresql":
        yield Error(
            f"The queue's database {alias!r} is {connections[alias].vendor}.",
            hint=f"Set {setting} to the alias of a PostgreSQL database. Where it is on purpose, as in "
            "settings for tests that enqueue nothing, silence this check.",
            id="pgqueue.E004",
        )


def _rights_of(alias: str) -> Privileges | None:
    """Return what its role may do; None where that cannot be asked, which others will say."""
    if not _is_postgresql(alias):
        return None
    try:
        return privileges(CallerConnection(alias))
    except DatabaseTrouble:
        return None
