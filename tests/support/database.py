"""Leftovers of a test in PostgreSQL, read on Django's own connections, as facts.

psycopg is asked directly: what Django knows of its connection, its wrappers and lists of queries are left as they are.
"""

from pathlib import Path
from typing import Any

import psycopg
from django.db import connections
from psycopg.pq import TransactionStatus

from tests.support.facts import Facts

ALIASES = ("default", "other")
FINGERPRINT, CATALOG, CLUSTER, SERVER, SESSION, TABLES = (
    Path(__file__).with_name(f"{name}.sql").read_text()
    for name in ("fingerprint", "catalog", "cluster", "server", "session", "tables")
)
WRITTEN = "SELECT pg_current_snapshot()::text"  # another one as soon as any transaction that has written has ended


class Databases:
    """The test databases.

    What transactions write is read again only once one has ended, and a schema only once it has changed.
    """

    def __init__(self) -> None:
        self._snapshots: dict[str, str] = {}
        self._written: dict[str, Facts] = {}
        self._schemas: dict[str, tuple[str, Facts]] = {}
        self._last: dict[str, Facts] = {}

    def read(self) -> Facts:
        """Return the facts of all; none while there are no test databases."""
        facts: Facts = {}
        for alias in ALIASES:
            if is_of_tests(alias):
                facts |= self._facts(alias)
        return facts

    def _facts(self, alias: str) -> Facts:
        """Return those of one; of a connection that answers nothing, since its transaction is broken, the last ones."""
        facts = state_of_connection(alias)
        session = opened(alias)
        if session.info.transaction_status == TransactionStatus.INERROR:
            return facts | self._last.get(alias, {})
        was_idle = session.info.transaction_status == TransactionStatus.IDLE
        self._last[alias] = self._asked(alias, session, was_idle=was_idle)
        if was_idle and not session.autocommit:
            session.rollback()
        return facts | self._last[alias]

    def _asked(self, alias: str, session: psycopg.Connection, *, was_idle: bool) -> Facts:
        facts = self._ended(alias, session, was_idle=was_idle) | told(session, SESSION, alias)
        if alias == ALIASES[0]:
            session.execute("SELECT pg_stat_clear_snapshot()")
            facts |= told(session, SERVER, "", {"own": pids()})
        return facts

    def _ended(self, alias: str, session: psycopg.Connection, *, was_idle: bool) -> Facts:
        """Return what transactions have written; a session sees that of its own open one before that has ended."""
        [(snapshot,)] = session.execute(WRITTEN).fetchall()
        if not was_idle or self._snapshots.get(alias) != snapshot:
            self._written[alias] = self._schema(alias, session) | rows(alias, session)
            if alias == ALIASES[0]:
                self._written[alias] |= told(session, CLUSTER, "")
            self._snapshots[alias] = snapshot if was_idle else ""
        return self._written[alias]

    def _schema(self, alias: str, session: psycopg.Connection) -> Facts:
        [(fingerprint,)] = session.execute(FINGERPRINT).fetchall()
        if self._schemas.get(alias, ("",))[0] != fingerprint:
            self._schemas[alias] = fingerprint, told(session, CATALOG, alias)
        return self._schemas[alias][1]


def is_of_tests(alias: str) -> bool:
    """Whether the test database has been made: else another database has this alias."""
    settings = connections[alias].settings_dict
    return settings["NAME"] == settings["TEST"]["NAME"]


def state_of_connection(alias: str) -> Facts:
    """Return what Django and the driver know of a connection that is in a state other than at its beginning."""
    wrapper = connections[alias]
    states = {
        "in a transaction": wrapper.in_atomic_block,
        "not in autocommit": wrapper.connection is not None and not wrapper.get_autocommit(),
        "wrapped": bool(wrapper.execute_wrappers),
        "listing its queries": wrapper.force_debug_cursor,
        "transaction that is open": is_open(wrapper.connection),
    }
    return {("connection", f"{alias}: {name}"): "" for name, holds in states.items() if holds}


def is_open(session: psycopg.Connection | None) -> bool:
    return session is not None and session.info.transaction_status in {
        TransactionStatus.INTRANS,
        TransactionStatus.INERROR,
    }


def opened(alias: str) -> psycopg.Connection:
    """Return the connection itself, made anew where a test has closed it or made the server end it.

    The class is asked to connect: test cases forbid it to their instance.
    """
    wrapper = connections[alias]
    if wrapper.connection is not None and not answers(wrapper.connection):
        wrapper.close()
    if wrapper.connection is None:
        type(wrapper).connect(wrapper)
    return wrapper.connection


def answers(session: psycopg.Connection) -> bool:
    if session.info.transaction_status == TransactionStatus.INERROR:
        return True
    was_idle = session.info.transaction_status == TransactionStatus.IDLE
    try:
        session.execute("SELECT 1")
        if was_idle and not session.autocommit:
            session.rollback()
    except psycopg.Error:
        return False
    return True


def told(session: psycopg.Connection, query: str, where: str, given: dict[str, Any] | None = None) -> Facts:
    """Return the rows of a query as facts, each in its database."""
    before = f"{where}: " if where else ""
    return {(kind, before + name): value or "" for kind, name, value in session.execute(query, given)}


def rows(alias: str, session: psycopg.Connection) -> Facts:
    """Return the number of rows of each table that has any."""
    names = [name for (name,) in session.execute(TABLES)]
    if not names:
        return {}
    counts = " UNION ALL ".join(f"SELECT '{name}', (SELECT count(*) FROM {name})" for name in names)
    return {("rows", f"{alias}: {name}"): str(count) for name, count in session.execute(counts) if count}


def pids() -> list[int]:
    """Return the sessions of Django's connections in this thread."""
    open_ones = [one.connection for one in connections.all(initialized_only=True) if one.vendor == "postgresql"]
    return [session.info.backend_pid for session in open_ones if session is not None and not session.closed]
