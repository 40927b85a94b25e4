"""Facts of the code for the lists of the reference pages: one function for each kind of table, by generate.py."""

import argparse
import ast
import datetime as dt
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from django.apps import apps
from django.core.management import load_command_class
from django.core.management.base import CommandParser
from django.db import connections, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ProjectState
from django.db.models.fields import NOT_PROVIDED
from django.db.models.functions import Now

import django_pgqueue

PACKAGE = Path(django_pgqueue.__file__).parent
UNITS = {"SECONDS": "seconds", "DAYS": "days", "BYTES": "bytes", "ROWS": "rows"}
SHORT = {"timestamp with time zone": "timestamptz"}
MANY = 5
"""Choices of an option that are told elsewhere."""

LONG = 50
"""Characters of a default that is shown below its table."""

INTERNAL = {
    *("lease_until", "lease_token", "lease_seconds", "worker_id", "kill_requested_at", "killed_by", "has_waiters"),
    *("concurrency_slot", "concurrency_strict", "unique_hold_seconds", "keep", "keep_seconds", "backend"),
}
"""Columns of live jobs that only the statements of this package need."""


class Row(NamedTuple):
    """One line of a table: what it is about, what is known of it by the heads of columns, and a draft of the prose."""

    name: str
    facts: dict[str, str] = {}
    draft: str = ""


def of_settings() -> Iterator[Row]:
    """Yield the keys of PGQUEUE."""
    from django_pgqueue.conf import SETTINGS  # noqa: PLC0415 - Django is set up by then

    for key, setting in SETTINGS.items():
        default = literal(setting.default)
        facts = {"default": code(default) if len(default) < LONG else f"[below](#{key.lower()})"}
        if setting.bounds:
            lowest, highest = setting.bounds
            unit = UNITS.get(key.rpartition("_")[2], "")
            facts["range"] = f"{lowest} to {highest} {unit}{', or `None`' if setting.default is None else ''}"
        if setting.choices:
            facts["range"] = one_of([literal(value) for value in setting.choices])
        yield Row(f"[`{key}`](#{key.lower()})", facts)


def of_actions(command: str) -> Iterator[Row]:
    """Yield the actions of a command, each with its other names."""
    subparsers = subparsers_of(command)
    for one in subparsers._choices_actions:
        names = [name for name, parser in subparsers.choices.items() if parser is subparsers.choices[one.dest]]
        yield Row(listed(names), draft=str(one.help))


def of_options(command: str, *chosen: str, but: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the options of a command; only these, or those of these actions, where some are chosen."""
    parsers = parsers_of(command)
    takers: dict[str, list[str]] = {}
    options: dict[str, argparse.Action] = {}
    for action, parser in parsers.items():
        for option, facts in taken(parser):
            if option not in but and (not chosen or {option, action} & {*chosen}):
                options.setdefault(option, facts)
                takers.setdefault(option, []).append(action)
    for option in [one for one in chosen if one in options] or options:
        of = {"of": "all" if len(takers[option]) == len(parsers) else listed(takers[option])}
        names = [name for name in options[option].option_strings if name.startswith("--")]
        yield Row(listed(names), of | facts_of(options[option]), str(options[option].help))


def of_signals(*names: str) -> Iterator[Row]:
    """Yield these signals, with the arguments that are sent with them."""
    return (Row(code(name), {"arguments": listed(arguments_of(name))}) for name in names)


def of_statuses() -> Iterator[Row]:
    """Yield where a live job may stand."""
    from django_pgqueue.states import Status  # noqa: PLC0415

    return (Row(code(status)) for status in Status)


def of_reasons() -> Iterator[Row]:
    """Yield what a job may have died of."""
    from django_pgqueue.states import DeathReason  # noqa: PLC0415

    return (Row(code(reason)) for reason in DeathReason)


def of_kinds() -> Iterator[Row]:
    """Yield what an entry of a job's history may tell of."""
    from django_pgqueue.states import EntryKind  # noqa: PLC0415

    return (Row(code(kind)) for kind in EntryKind)


def of_checks() -> Iterator[Row]:
    """Yield the ids of the system checks, errors first."""
    code_of_all = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    return (Row(code(one)) for one in sorted(set(re.findall(r'"(pgqueue\.[EW]\d+)"', code_of_all))))


def of_metrics(kind: str) -> Iterator[Row]:
    """Yield the metrics of the tables, or those of workers."""
    from django_pgqueue.contrib.prometheus import families  # noqa: PLC0415

    for name in {"tables": families.OF_TABLES, "workers": families.OF_WORKERS}[kind]:
        shown = f"{name.name}_total" if name.kind == "counter" else name.name
        yield Row(code(shown), {"type": name.kind, "labels": listed(name.labels)}, name.help)


def of_tables() -> Iterator[Row]:
    """Yield the tables of the queue."""
    models_of: dict[str, list[str]] = {}
    for model in apps.get_app_config("pgqueue").get_models():
        models_of.setdefault(model._meta.db_table, []).append(model.__name__)
    for table, names in models_of.items():
        page = "../reference/tables.md" if table.endswith("_jobs") else ""
        yield Row(f"[`{table}`]({page}#{table})", {"model": listed(names)})


def of_columns(table: str, part: str = "", *, but: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the columns of a table; ``but pgqueue_jobs`` leaves out those that this one has too.

    With a part, ``public`` or ``internal``, only the columns that are not, or are, in INTERNAL.
    """
    known = {field.column for other in but for field in model_of(other)._meta.fields}
    for field in fields_of(table):
        if field.column not in known and part in ("", "internal" if field.column in INTERNAL else "public"):
            kind, default = type_of(field), default_in_database(field)
            facts = {"type": kind, "default": default, "type, default": f"{kind}, {default}"}
            yield Row(code(field.column), facts, str(field.help_text))


def fields_of(table: str) -> list[Any]:
    """Return the fields in the order of the columns; in a model those of its bases come first."""
    model = model_of(table)._meta
    order = list(migrated().models[model.app_label, str(model.model_name)].fields)
    return sorted(model.fields, key=lambda field: order.index(field.name))


@functools.cache
def migrated() -> ProjectState:
    """Return the models as the migrations have made them."""
    return MigrationLoader(None).project_state()


def of_constraints(table: str) -> Iterator[Row]:
    """Yield the checks of a table, by which the database refuses rows."""
    rules = model_of(table)._meta.constraints
    return (Row(code(rule.name)) for rule in rules if isinstance(rule, models.CheckConstraint))


def of_indexes(table: str) -> Iterator[Row]:
    """Yield the indexes of a table, those of unique constraints among them."""
    model = model_of(table)._meta
    yield Row("primary key", {"on": code(model.pk.column)})
    unique = [rule for rule in model.constraints if isinstance(rule, models.UniqueConstraint)]
    for index in [*model.indexes, *unique]:
        columns = [*index.fields] or [column_of(one) for one in index.expressions]
        where = f" where {condition(index.condition)}" if index.condition else ""
        yield Row(code(index.name), {"on": f"`{', '.join(columns)}`{where}{', unique' if index in unique else ''}"})


# Commands


@functools.cache
def parser_of(command: str) -> CommandParser:
    [app] = (path.parents[2] for path in PACKAGE.rglob(f"management/commands/{command}.py"))
    made = CommandParser(add_help=False)
    load_command_class(".".join(app.relative_to(PACKAGE.parent).parts), command).add_arguments(made)
    return made


def subparsers_of(command: str) -> Any:
    """Return what holds the actions of a command; None where it has none."""
    found = [one for one in parser_of(command)._actions if isinstance(one, argparse._SubParsersAction)]
    return found[0] if found else None


def parsers_of(command: str) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each action, aliases left out; of a command without actions its own, under no name."""
    subparsers = subparsers_of(command)
    if subparsers is None:
        return {"": parser_of(command)}
    return {one.dest: subparsers.choices[one.dest] for one in subparsers._choices_actions}


def taken(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Yield the options of a parser that are shown."""
    for action in parser._actions:
        if action.option_strings and action.help != argparse.SUPPRESS and action.dest != "help":
            yield action.option_strings[0], action


def facts_of(action: argparse.Action) -> dict[str, str]:
    """Return what a parser says of an option; a default that means nothing by itself is prose, as a long choice is."""
    facts = {}
    if action.required:
        facts["default"] = "required"
    elif action.default is False:
        facts |= {"default": "off", "unit, range": ""}
    elif isinstance(action.default, str | int | float) and action.default:
        facts["default"] = code(action.default if isinstance(action.default, str) else f"{action.default:g}")
    if action.choices and len([*action.choices]) < MANY:
        facts["unit, range"] = listed(action.choices)
    return facts


# Signals


def arguments_of(signal: str) -> list[str]:
    """Return what is sent with a signal, as the calls that send it name it."""
    from django_pgqueue import signals  # noqa: PLC0415

    if getattr(signals, signal) in {signals.attempt_ended, *signals.OF_FATE.values()}:
        return arguments_of("attempt_started")  # the same line of code sends them all
    found = {tuple(named) for name, named in sent() if name == signal}
    if not found:
        raise LookupError(f"Nothing in the package sends {signal}.")
    return list(dict.fromkeys(name for named in sorted(found) for name in named))


@functools.cache
def sent() -> list[tuple[str, list[str]]]:
    """Return the names in calls that may be a signal's, as ``announce(signal, ...)`` or ``signal.send(...)``."""
    trees = [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        (name.id, [keyword.arg for keyword in call.keywords if keyword.arg])
        for call in calls
        for name in [*call.args[:1], getattr(call.func, "value", None)]
        if isinstance(name, ast.Name) and call.keywords and getattr(call.func, "attr", "") != "connect"
    ]


# Tables


def model_of(table: str) -> Any:
    return next(model for model in apps.get_models() if model._meta.db_table == table)


def type_of(field: models.Field) -> str:
    known = str(field.db_type(connections["default"]))
    return SHORT.get(known, known)


def default_in_database(field: models.Field) -> str:
    default: Any = field.db_default
    if isinstance(field, models.AutoField | models.BigAutoField):
        return "identity"
    if field.generated:
        return "generated"
    if default is NOT_PROVIDED:
        return "null" if field.null else "required"
    if isinstance(default, Now):
        return "now"
    default = getattr(default, "value", default)
    if isinstance(default, dt.datetime):
        return str(default.year)
    return str(default).lower() if isinstance(default, bool) else code(default) if default != "" else "empty"


def column_of(expression: Any) -> str:
    return str(expression.name) if isinstance(expression, models.F) else f"(-{expression.source_expressions[0].name})"


def condition(q: models.Q) -> str:
    """Return a simple condition in words."""
    parts = [condition(part) if isinstance(part, models.Q) else compared(*part) for part in q.children]
    return f" {q.connector.lower()} ".join(parts)


def compared(lookup: str, value: Any) -> str:
    column, _, how = lookup.partition("__")
    if how == "isnull" or value is None:
        return f"`{column}` is {'null' if value or value is None else 'not null'}"
    if isinstance(value, bool):
        return f"`{column}`"
    values = value if how == "in" else [value]
    return f"`{column}` is {' or '.join(map(code, values))}"


# Words


def code(value: object) -> str:
    return f"`{value}`"


def literal(value: object) -> str:
    """Write a value as it stands in settings."""
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))})"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def listed(values: Iterable[object]) -> str:
    return ", ".join(map(code, values))


def one_of(values: Iterable[object]) -> str:
    *others, last = map(code, values)
    return f"{', '.join(others)} or {last}"
