"""System checks. Stable ids, each with a hint.

E001 unknown key in PGQUEUE · E002 value out of range · E003 database alias missing · E004 database not PostgreSQL ·
W001 router missing · W002 psycopg without its C speedups
"""

from collections.abc import Iterator
from typing import Any

import psycopg
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Caution
from django.db import connections
from django.utils.module_loading import import_string

from django_pgqueue.base.conf import DEFAULTS

ROUTER = "django_pgqueue.routers.PgQueueRouter"


@register("pgqueue")
def check_settings(**_: Any) -> list[CheckMessage]:
    """Find every wrong value of PGQUEUE at once."""
    given = getattr(settings, "PGQUEUE", {})
    if not isinstance(given, dict):
        return [Error(f"PGQUEUE is {given!r}.", hint="Make it a dict.", id="pgqueue.E002")]
    return [*_unknown_keys(given), *_wrong_values(DEFAULTS | given), *_wrong_database(DEFAULTS | given)]


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


def _unknown_keys(given: dict[str, Any]) -> Iterator[CheckMessage]:
    for key in sorted(set(given) - set(DEFAULTS)):
        yield Error(f"PGQUEUE has no key {key!r}.", hint=f"Keys are: {', '.join(DEFAULTS)}.", id="pgqueue.E001")


def _wrong_values(values: dict[str, Any]) -> Iterator[CheckMessage]:
    bounds = {
        "LEASE_SECONDS": (int, 3, 86400),
        "MAX_ATTEMPTS": (int, 1, 32767),
        "MAX_PAYLOAD_BYTES": (int, 1, 256 * 1024 * 1024),
        "POLL_SECONDS": ((int, float), 0.01, 3600),
        "RETENTION_DAYS": (int, 0, 36500),
        "STATEMENT_TIMEOUT_SECONDS": (int, 1, 86400),
    }
    for key, (kind, lowest, highest) in bounds.items():
        value = values[key]
        if isinstance(value, bool) or not isinstance(value, kind) or not lowest <= value <= highest:  # type: ignore[arg-type]
            yield Error(
                f"PGQUEUE[{key!r}] is {value!r}.", hint=f"Use a number from {lowest} to {highest}.", id="pgqueue.E002"
            )
    for key in ("NOTIFY", "PREPARED_STATEMENTS"):
        if not isinstance(values[key], bool):
            yield Error(f"PGQUEUE[{key!r}] is {values[key]!r}.", hint="Use True or False.", id="pgqueue.E002")
    try:
        if isinstance(values["ENCODER"], str):
            import_string(values["ENCODER"])
    except ImportError as error:
        yield Error(f"PGQUEUE['ENCODER'] cannot be imported: {error}.", hint="Give a dotted path.", id="pgqueue.E002")


def _wrong_database(values: dict[str, Any]) -> Iterator[CheckMessage]:
    alias = values["DATABASE"]
    if alias not in connections:
        yield Error(
            f"PGQUEUE['DATABASE'] is {alias!r}, which is not in DATABASES.",
            hint=f"Use one of {', '.join(connections)}.",
            id="pgqueue.E003",
        )
        return
    if connections[alias].vendor != "postgresql":
        yield Error(
            f"The queue's database {alias!r} is {connections[alias].vendor}.",
            hint="Set PGQUEUE['DATABASE'] to the alias of a PostgreSQL database. Where it is on purpose, as in "
            "settings for tests that enqueue nothing, silence this check.",
            id="pgqueue.E004",
        )
    if alias != "default" and ROUTER not in settings.DATABASE_ROUTERS:
        yield Caution(
            f"The queue is on {alias!r}, but its models and admin look for it on 'default'.",
            hint=f"Add {ROUTER!r} to DATABASE_ROUTERS.",
            id="pgqueue.W001",
        )
