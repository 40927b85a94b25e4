"""Bounded reading: no statement takes longer than a limit, and each goes along an index where there is one."""

import contextlib
from collections.abc import Iterator

from django.db import OperationalError, connections, transaction
from psycopg.errors import QueryCanceled

from django_pgqueue.conf import conf
from django_pgqueue.jobs.search import INDEX_ONLY

LIMITED = f"{INDEX_ONLY}, set_config('statement_timeout', %s, true)"


class TookTooLong(Exception):  # noqa: N818 - reads as what happened
    """PostgreSQL has stopped a statement for the time it took."""


@contextlib.contextmanager
def bounded(alias: str | None = None) -> Iterator[None]:
    """Read inside, each statement for ``ADMIN_TIMEOUT_SECONDS`` at most and along an index where there is one.

    It is a transaction, or a savepoint, that is rolled back to end the settings: write nothing inside.

    Args:
        alias: default: that of the queue.

    Raises:
        TookTooLong: a statement was stopped.
    """
    alias = alias or conf.database
    try:
        with transaction.atomic(using=alias):
            with connections[alias].cursor() as cursor:
                cursor.execute(LIMITED, [f"{conf.admin_timeout_seconds * 1000:.0f}ms"])
            yield
            transaction.set_rollback(True, using=alias)
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise TookTooLong(
                f"Reading took longer than {conf.admin_timeout_seconds:g} s and was stopped. The server is busy, or "
                "short of memory. Try again, or allow more: PGQUEUE['ADMIN_TIMEOUT_SECONDS']."
            ) from error
        raise
