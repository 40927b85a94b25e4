"""Bounded reading: no statement takes longer than a limit, and each goes along an index where there is one."""

import contextlib
from collections.abc import Iterator

from django.db import OperationalError
from psycopg.errors import QueryCanceled

from django_pgqueue.conf import conf
from django_pgqueue.jobs.search import along_an_index


class TookTooLong(Exception):  # noqa: N818 - reads as what happened
    """PostgreSQL has stopped a statement for the time it took."""


@contextlib.contextmanager
def bounded(alias: str | None = None) -> Iterator[None]:
    """Read inside, each statement for ``READ_TIMEOUT_SECONDS`` at most and along an index where there is one.

    It is a transaction, or a savepoint, that is rolled back to end the settings: write nothing inside. Raises
    TookTooLong where a statement was stopped.
    """
    try:
        with along_an_index(alias or conf.database, timeout_seconds=conf.read_timeout_seconds):
            yield
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise TookTooLong(
                f"Reading took longer than {conf.read_timeout_seconds:g} s and was stopped. The server is busy, or "
                "short of memory. Try again, or allow more: PGQUEUE['READ_TIMEOUT_SECONDS']."
            ) from error
        raise
