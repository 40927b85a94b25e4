"""Comparison of the models with the catalogue of the database, and the statements that make missing parts."""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import CheckConstraint, Model, UniqueConstraint

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.models import SucceededJob

APP = "pgqueue"

FUNCTIONS = dict.fromkeys(  # with the migration that last made each
    (
        *("pgqueue_enqueue", "pgqueue_turns", "pgqueue_move_members", "pgqueue_settle_stage", "pgqueue_advance"),
        *("pgqueue_end_workflow", "pgqueue_stuck_stages", "pgqueue_workflow_of"),
    ),
    "0001_initial",
)


@dataclass(frozen=True, kw_only=True)
class Part:
    kind: str  # one of these words, as ``schema.sql`` has them
    name: str
    model: type[Model] | None = None
    rule: Any = None  # the index or constraint of the model; None: what PostgreSQL makes with the column
    is_unique: bool = False  # statements rely on it for more than speed

    @property
    def table(self) -> str:
        return self.model._meta.db_table if self.model else ""  # noqa: SLF001


def wanted() -> Iterator[Part]:
    """Yield what this code needs. Indexes that Django adds to find texts by their beginnings are not needed."""
    for model in apps.get_app_config(APP).get_models():
        if not model._meta.proxy:  # noqa: SLF001
            yield from _of_model(model)
    for name in FUNCTIONS:
        yield Part(kind="function", name=name)


class Catalogue:
    """The catalogue's entries of the tables, read once."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._wanted = list(wanted())
        tables = sorted({part.table for part in self._wanted if part.model})
        rows = CallerConnection(alias).rows(statement("schema"), {"tables": tables, "functions": list(FUNCTIONS)})
        self._present = {(kind, table, name): is_fine for kind, table, name, is_fine in rows}
        self.tables = {table for _kind, table, _name in self._present}

    def missing(self, kind: str) -> list[Part]:
        return [
            part for part in self._wanted if part.kind == kind and (kind, part.table, part.name) not in self._present
        ]

    def wrong(self, kind: str) -> tuple[list[Part], list[str]]:
        """Return the parts that exist and are of no use: those that are wanted, and the names of others."""
        names = {(table, name) for (of, table, name), is_fine in self._present.items() if of == kind and not is_fine}
        ours = [part for part in self._wanted if part.kind == kind and (part.table, part.name) in names]
        return ours, sorted({name for _table, name in names} - {part.name for part in ours})

    def making(self, parts: Iterable[Part]) -> list[str]:
        """Return the statements that make indexes and checks. But for keys, they do not lock the table for long."""
        return [text for part in parts for text in _making(self._alias, part)]


def unapplied(alias: str) -> list[str]:
    """Return the names of the app's migrations that the database has not seen; none where the project has no such.

    Reads the names of its files alone: Django's own loader would import the migrations of all apps.
    """
    module, _is_explicit = MigrationLoader.migrations_module(APP)
    if module is None:
        return []
    files = pkgutil.iter_modules(importlib.import_module(module).__path__)
    names = {file.name for file in files if not file.ispkg and file.name[0] not in "_~"}
    applied = _applied(alias)
    return sorted(name for name in names if (APP, name) not in applied)


def is_recorded(alias: str, app: str = APP) -> bool:
    """Whether the database has a migration of the app among those applied, so that ``migrate`` leaves it out."""
    return any(label == app for label, _name in _applied(alias))


def id_number(alias: str) -> int | None:
    """Return the number with which new ids of jobs begin; None where the table is not there."""
    rows = CallerConnection(alias).rows(statement("id_number"), {})
    return rows[0][0] if rows else None


def _applied(alias: str) -> Iterable[tuple[str, str]]:
    return MigrationRecorder(connections[alias]).applied_migrations()


def _of_model(model: type[Model]) -> Iterator[Part]:
    options = model._meta  # noqa: SLF001
    for field in options.local_concrete_fields:
        yield Part(kind="column", name=str(field.column), model=model)
        if field.unique:
            name = f"{options.db_table}_pkey" if field.primary_key else f"{options.db_table}_{field.column}_key"
            yield Part(kind="index", name=name, model=model, is_unique=True)
    for index in options.indexes:
        yield Part(kind="index", name=str(index.name), model=model, rule=index)
    for rule in options.constraints:
        if isinstance(rule, UniqueConstraint):
            yield Part(kind="index", name=str(rule.name), model=model, rule=rule, is_unique=True)
        elif isinstance(rule, CheckConstraint):
            yield Part(kind="check", name=str(rule.name), model=model, rule=rule)


def _making(alias: str, part: Part) -> list[str]:
    if part.model is None:
        return []
    if part.rule is None:
        return [_making_key(part)]
    with connections[alias].schema_editor(collect_sql=True, atomic=False) as editor:
        if part.kind == "index" and not part.is_unique:
            editor.add_index(part.model, part.rule)
        else:
            editor.add_constraint(part.model, part.rule)
    return [text for made in editor.collected_sql for text in _unobtrusive(part, str(made))]


def _unobtrusive(part: Part, made: str) -> list[str]:
    """Let a statement read the table without a lock that stops others; a partitioned table knows no such way."""
    if part.kind == "check":
        proving = f"ALTER TABLE {part.table} VALIDATE CONSTRAINT {part.name};"
        return [f"{made.removesuffix(';')} NOT VALID;", proving]
    return [made if part.model is SucceededJob else made.replace(" INDEX ", " INDEX CONCURRENTLY ", 1)]


def _making_key(part: Part) -> str:
    """Return the statement for a key that PostgreSQL has named; that of a partitioned table has one column more."""
    columns = part.name.removeprefix(f"{part.table}_").removesuffix("_key")
    if columns != "pkey":
        return f"ALTER TABLE {part.table} ADD UNIQUE ({columns});"
    key = "id, succeeded_at" if part.model is SucceededJob else part.model._meta.pk.column  # type: ignore[union-attr]  # noqa: SLF001
    return f"ALTER TABLE {part.table} ADD PRIMARY KEY ({key});"
