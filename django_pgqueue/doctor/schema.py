"""Look whether the database has what this code needs: migrations, tables, indexes, checks, functions.

While migrations are unapplied, they alone are named: the rest comes with them.
"""

from collections.abc import Iterator, Sequence

from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from psycopg import sql

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import how_to_migrate
from django_pgqueue.db.queries import numbering
from django_pgqueue.doctor.catalogue import FUNCTIONS, Part, id_number
from django_pgqueue.doctor.finding import Finding, Level, View, named
from django_pgqueue.models import Job


def migrations(view: View) -> Iterator[Finding]:
    if not view.unapplied:
        return
    yield Finding(
        name="migrations-missing",
        level=Level.ERROR,
        what=ngettext(
            "%(number)s migration of pgqueue is not applied: %(names)s.",
            "%(number)s migrations of pgqueue are not applied: %(names)s.",
            len(view.unapplied),
        )
        % {"number": len(view.unapplied), "names": named(view.unapplied)},
        remedy=_("Before workers of this code start, run manage.py migrate pgqueue --database %(alias)s.")
        % {"alias": view.alias},
        facts={"migrations": view.unapplied},
    )


def columns(view: View) -> Iterator[Finding]:
    missing = _missing(view, "column")
    if not missing:
        return
    tables = {part.table for part in missing} - view.catalogue.tables
    names = [*sorted(tables), *(f"{part.table}.{part.name}" for part in missing if part.table not in tables)]
    yield Finding(
        name="columns-missing",
        level=Level.ERROR,
        what=_("Tables or columns are missing, although all migrations are noted as applied: %(names)s.")
        % {"names": named(names)},
        remedy=_remedy(view),
        facts={"missing": names},
    )


def _remedy(view: View) -> str:
    if not view.catalogue.tables:
        return how_to_migrate(view.alias, is_recorded=True)
    return _(
        "They were removed, or a migration was faked. Restore them; manage.py sqlmigrate pgqueue "
        "shows how each migration makes them."
    )


def numbers(view: View) -> Iterator[Finding]:
    """Look whether ids begin with the number of the database, by which jobs are found where there are shards."""
    if not conf.shards or view.alias not in conf.databases or (found := id_number(view.alias)) is None:
        return
    if found == (wanted := conf.number_of(view.alias)):
        return
    yield Finding(
        name="shard-number",
        level=Level.ERROR,
        what=_("New ids of jobs on %(alias)s begin with the number %(found)d, and its number in SHARDS is %(wanted)d.")
        % {"alias": view.alias, "found": found, "wanted": wanted},
        remedy=_(
            "Correct PGQUEUE['SHARDS'], or the alias, if it leads to another database than it should. Only if no job "
            "has an id from there yet: %(statement)s;"
        )
        % {"statement": numbering(Job._meta.db_table, wanted)},  # noqa: SLF001
        facts={"found": found, "wanted": wanted},
    )


def indexes(view: View) -> Iterator[Finding]:
    if missing := [part for part in _missing(view, "index") if part.table in view.catalogue.tables]:
        yield _missing_indexes(missing, view.catalogue.making(missing))
    ours, left = view.catalogue.wrong("index")
    if ours or left:
        yield _invalid_indexes(ours, left)


def _missing_indexes(missing: Sequence[Part], statements: Sequence[str]) -> Finding:
    names = [part.name for part in missing]
    return Finding(
        name="indexes-missing",
        level=_level(missing),
        what=ngettext("An index is missing: %(names)s.", "Indexes are missing: %(names)s.", len(names))
        % {"names": named(names)},
        remedy=_("Make it again: %(statements)s") % {"statements": " ".join(statements)},
        facts={"indexes": names, "statements": statements},
    )


def _invalid_indexes(ours: Sequence[Part], left: Sequence[str]) -> Finding:
    names = [*(part.name for part in ours), *left]
    statements = [f"REINDEX INDEX CONCURRENTLY {part.name};" for part in ours]
    statements += [f"DROP INDEX CONCURRENTLY {sql.Identifier(name).as_string()};" for name in left]
    return Finding(
        name="indexes-invalid",
        level=_level(ours),
        what=ngettext(
            "An index is invalid, so that it is written and never read: %(names)s.",
            "Indexes are invalid, so that they are written and never read: %(names)s.",
            len(names),
        )
        % {"names": named(names)},
        remedy=_("A statement with CONCURRENTLY has failed. Once the reason is gone: %(statements)s")
        % {"statements": " ".join(statements)},
        facts={"indexes": names, "statements": statements},
    )


def checks(view: View) -> Iterator[Finding]:
    missing = [part for part in _missing(view, "check") if part.table in view.catalogue.tables]
    unproven, _others = view.catalogue.wrong("check")
    if not missing and not unproven:
        return
    names = [part.name for part in (*missing, *unproven)]
    statements = view.catalogue.making(missing)
    statements += [f"ALTER TABLE {part.table} VALIDATE CONSTRAINT {part.name};" for part in unproven]
    yield Finding(
        name="checks-missing",
        level=Level.WARNING,
        what=_("The database lets in what must not be: checks are missing, or not validated: %(names)s.")
        % {"names": named(names)},
        remedy=_("Make them again: %(statements)s") % {"statements": " ".join(statements)},
        facts={"checks": names, "statements": statements},
    )


def functions(view: View) -> Iterator[Finding]:
    missing = [part.name for part in _missing(view, "function")]
    if not missing:
        return
    made_by = sorted({FUNCTIONS[name] for name in missing})
    yield Finding(
        name="functions-missing",
        level=Level.ERROR,
        what=ngettext("A function is missing: %(names)s().", "Functions are missing: %(names)s().", len(missing))
        % {"names": "(), ".join(missing)},
        remedy=_("Run the CREATE FUNCTION that this prints: %(commands)s")
        % {"commands": "; ".join(f"manage.py sqlmigrate pgqueue {migration}" for migration in made_by)},
        facts={"functions": missing},
    )


def _missing(view: View, kind: str) -> list[Part]:
    return [] if view.unapplied else view.catalogue.missing(kind)


def _level(parts: Sequence[Part]) -> Level:
    """Return ERROR for parts that workers and enqueuers need, WARNING for those that make admin pages fast."""
    is_needed = any(part.is_unique or part.model is Job for part in parts)
    return Level.ERROR if is_needed else Level.WARNING
