"""Put calls into the outbox, in a transaction on the database of the data; know their ids."""

import contextlib
import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from django.db import ProgrammingError, connections

from django_pgqueue.conf import NUMBER_SHIFT, conf
from django_pgqueue.db.connections import CallerConnection, has_transaction, how_to_migrate
from django_pgqueue.db.errors import is_of_another_schema
from django_pgqueue.db.notify import notify_relays
from django_pgqueue.db.queries import MOST_OF_NUMBER, statement

OUTBOX_SHIFT = 40
"""Bits of the id of a job, below the number of its outbox, for the number of its row there."""


class Origin(NamedTuple):
    """The place of a call in its outbox, as the id of its job has it."""

    outbox: int  # the number of the outbox
    row: int

    @classmethod
    def of(cls, job_id: int) -> "Origin | None":
        """Return where the job with this id has come from; None: from no outbox."""
        rest = job_id & ((1 << NUMBER_SHIFT) - 1)
        if job_id <= 0 or not rest & MOST_OF_NUMBER:
            return None
        rest ^= MOST_OF_NUMBER
        return cls(rest >> OUTBOX_SHIFT, rest & ((1 << OUTBOX_SHIFT) - 1))

    @property
    def alias(self) -> str | None:
        """The database with the outbox; None: no outbox has its number."""
        return next((alias for alias, number in conf.outboxes.items() if number == self.outbox), None)


def job_id_of(number: int, outbox: int, row: int) -> int:
    """Return the id of a job that comes by an outbox.

    Args:
        number: of the database that the job is for.
        outbox: the number of the outbox.
        row: the id of the row there.
    """
    return (number << NUMBER_SHIFT) | MOST_OF_NUMBER | (outbox << OUTBOX_SHIFT) | row


def outbox_for(alias: str) -> str | None:
    """Return the database in whose open transaction a call for the queue on ``alias`` belongs; None: in none.

    A transaction that is open on the queue's database itself is preferred.
    """
    if has_transaction(connections[alias]):
        return None
    return next((one for one in conf.outboxes if one != alias and connections[one].in_atomic_block), None)


def put(outbox: str, alias: str, calls: Sequence[str]) -> list[tuple[int, dt.datetime]]:
    """Put calls for the queue on ``alias``, as JSON, into the outbox, in the transaction that is open there.

    Relays are notified when that has committed.

    Returns:
        The ids of their jobs, in their order, and when each was enqueued.
    """
    number = conf.number_of(alias)
    parameters = {"number": number, "args": f"[{','.join(calls)}]"}
    with _explained(outbox):
        rows = CallerConnection(outbox).rows(statement("put_into_outbox"), parameters)
    notify_relays(outbox, number)
    return [(job_id_of(number, conf.outboxes[outbox], row), enqueued_at) for row, enqueued_at in sorted(rows)]


class CallInOutbox(NamedTuple):
    """The columns of ``call_in_outbox.sql``."""

    call: str  # JSON
    tags: list[str] | None
    enqueued_at: Any
    now: Any


def call_in(outbox: str, row: int) -> CallInOutbox | None:
    """Return a call that is in an outbox still, as the caller's connection sees it; None: it is not."""
    with _explained(outbox):
        rows = CallerConnection(outbox).rows(statement("call_in_outbox"), {"id": row})
    return CallInOutbox._make(rows[0]) if rows else None


@contextlib.contextmanager
def _explained(outbox: str) -> Iterator[None]:
    try:
        yield
    except ProgrammingError as error:
        if is_of_another_schema(error):
            error.__notes__ = [how_to_migrate(outbox, app="pgqueue_outbox")]
        raise
