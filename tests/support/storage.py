"""Storage options of tables, altered for a while."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

JOBS = "pgqueue_jobs"


@contextlib.contextmanager
def kept(sql: Callable[..., list[tuple[Any, ...]]], table: str = JOBS) -> Iterator[None]:
    """Give a table back the options that it had before, in their order: one that is set again comes last."""
    before = options(sql, table)
    try:
        yield
    finally:
        now = options(sql, table)
        if now != before and now:
            sql(f"ALTER TABLE {table} RESET ({', '.join(one.partition('=')[0] for one in now)})")
        if now != before and before:
            sql(f"ALTER TABLE {table} SET ({', '.join(before)})")


@contextlib.contextmanager
def without_autovacuum(sql: Callable[..., list[tuple[Any, ...]]], table: str = JOBS) -> Iterator[None]:
    """Keep autovacuum away from a table."""
    with kept(sql, table):
        sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        yield


def options(sql: Callable[..., list[tuple[Any, ...]]], table: str) -> list[str]:
    """Return the options as they stand in the catalog: ``name=value``."""
    [(given,)] = sql(f"SELECT COALESCE(reloptions, '{{}}') FROM pg_class WHERE oid = '{table}'::regclass")
    return given
