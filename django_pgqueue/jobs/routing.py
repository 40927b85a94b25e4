"""Choose the database of a job whose queue is on several, and remember which of them cannot be reached.

A job with a key is put on the database that has the slot of the key, and on no other: else two databases might each
have a job of one unique key. A job without a key is put on any. The database is connected to before anything is sent,
and another is chosen only if that fails: a statement that was sent may have been committed, even if its connection is
lost.
"""

import hashlib
import os
import random
import selectors
import threading
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import psycopg
from django.db import Error, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_pgqueue.conf import SLOTS, conf, running
from django_pgqueue.db.connections import has_transaction, only_reads, postgresql
from django_pgqueue.db.errors import one_line
from django_pgqueue.exceptions import InvalidOption, ShardUnavailable
from django_pgqueue.jobs.redaction import in_errors
from django_pgqueue.jobs.serialization import check_signature
from django_pgqueue.outbox.writing import outbox_for
from django_pgqueue.registry import TaskDefinition

AWAY_SECONDS = 0.5
"""Time for which a database that could not be reached is not tried again by this process."""

TRYING_SECONDS = 30.0
"""Maximum time for which it is not tried again while a caller tries, which may be interrupted anywhere."""


class Outage(NamedTuple):
    """A database that could not be reached."""

    until: float  # monotonic; no caller tries it before
    reason: str


_outages: dict[str, Outage] = {}  # by alias
_lock = threading.Lock()

os.register_at_fork(after_in_child=_outages.clear)  # the thread that tries one is not there to say how it went


def slot_of(key: str) -> int:
    """Return the slot that a key is in, 0 to 1023: the same in every process, whichever databases there are."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4], "big") % SLOTS


def shard_key_of(task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    """Return the key by which a job is put on one of several databases; None: it may be put on any.

    Raises:
        InvalidArguments: the arguments do not fit.
        InvalidOption: the job has a unique key and a concurrency key, and none that says where both are.
    """
    check_signature(task, args, kwargs)
    with in_errors([(task, args, kwargs)]):
        if (key := task.shard_by(*args, **kwargs)) is not None:
            return key
        unique, concurrency, _ = task.keys_of(args, kwargs)
    if unique is not None and concurrency is not None:
        raise InvalidOption(
            f"The queue {task.options.queue!r} is on several databases, and a job of {task.name} has a unique key and "
            "a concurrency key, which may be on different ones. Name the arguments that both have in common by "
            "shard_by, as in shard_by='account_id'."
        )
    return concurrency if unique is None else unique


def route(
    task: TaskDefinition, args: tuple[Any, ...], kwargs: Mapping[str, Any], chosen: dict[str, str] | None = None
) -> TaskDefinition:
    """Return the task on the database that a job with these arguments is put on, which can be reached.

    That is the task itself where its queue is on one database, or the call names one.

    Args:
        chosen: databases that were chosen for jobs without a key, by queues, so that those of one call go together.

    Raises:
        ShardUnavailable: there is none.
        InvalidArguments, InvalidOption: as ``shard_key_of``.
    """
    options = task.options
    if not conf.is_on_several(options.queue) or options.database is not None:
        return task
    aliases = conf.queue_databases[options.queue]
    key = shard_key_of(task, args, kwargs)
    if key is not None:
        return task.on(_database_with(slot_of(key), options.queue))
    if chosen is None:
        return task.on(_any_of(options.queue, aliases))
    if options.queue not in chosen:
        known = next((alias for alias in chosen.values() if alias in aliases), None)
        chosen[options.queue] = known or _any_of(options.queue, aliases)
    return task.on(chosen[options.queue])


def _database_with(slot: int, queue: str) -> str:
    alias = conf.database_with(slot, queue)
    if alias is None:
        raise ShardUnavailable(
            f"The slot {slot} of keys is on none of the databases of the queue {queue!r}, as while it is moved: "
            "nothing was enqueued. Name it in 'slots' of one of them in PGQUEUE['SHARDS']."
        )
    if (reason := _why_not(alias)) is not None:
        raise ShardUnavailable(
            f"Jobs of the queue {queue!r} with a key in the slot {slot} are on {alias!r} alone, which cannot be "
            f"reached: nothing was enqueued. Try again later. {reason}"
        )
    return alias


def _any_of(queue: str, aliases: tuple[str, ...]) -> str:
    """Return the one with an open transaction, so that the job is committed with it; else one that can be reached."""
    if (inside := next((alias for alias in aliases if has_transaction(connections[alias])), None)) is not None:
        return inside
    job = running.get()
    here = None if job is None else job.database
    in_order = sorted(random.sample(aliases, len(aliases)), key=lambda alias: (_is_away(alias), alias != here))
    reasons = []
    for alias in in_order:
        if (reason := _why_not(alias)) is None:
            return alias
        reasons.append(f"{alias}: {reason}")
    raise ShardUnavailable(
        f"None of the databases of the queue {queue!r} can be reached: nothing was enqueued. Try again later. "
        f"{' '.join(reasons)}"
    )


def _why_not(alias: str) -> str | None:
    """Return why no statement can be sent to a database now; None: one can, or the call waits in an outbox."""
    connection = postgresql(alias)
    if has_transaction(connection) or _is_open(connection) or (conf.outboxes and outbox_for(alias)):
        return None
    with _lock:
        outage = _outages.get(alias)
        if outage is not None and time.monotonic() < outage.until:
            return outage.reason
        if outage is not None:  # this caller tries; the others go on without the database meanwhile
            _outages[alias] = outage._replace(until=time.monotonic() + TRYING_SECONDS)
    return _try(connection, alias, outage)


def _try(connection: BaseDatabaseWrapper, alias: str, outage: Outage | None) -> str | None:
    """Connect, and note how that went; return why it cannot be done. ``outage``: the one that was known before."""
    try:
        _open(connection)
    except Error as error:
        reason = one_line(error)
        _note(alias, Outage(time.monotonic() + AWAY_SECONDS, reason))
        return reason
    except BaseException:  # as the time limit of a job: the next caller tries, and no others do meanwhile
        _note(alias, outage)
        raise
    _note(alias, None)
    return None


def _note(alias: str, outage: Outage | None) -> None:
    with _lock:
        if outage is None:
            _outages.pop(alias, None)
        else:
            _outages[alias] = outage


def _is_away(alias: str) -> bool:
    outage = _outages.get(alias)
    return outage is not None and time.monotonic() < outage.until


def _open(connection: BaseDatabaseWrapper) -> None:
    connection.close()  # it may be there and broken
    connection.ensure_connection()
    if not _is_open(connection):
        connection.close()
        raise OperationalError("The server takes no writes, or has closed the connection at once.")


def _is_open(connection: BaseDatabaseWrapper) -> bool:
    """Whether a connection is there, takes writes and was not closed by the server, as far as is known here."""
    beneath: Any = connection.connection
    if beneath is None or beneath.closed or only_reads(beneath):
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(beneath.fileno(), selectors.EVENT_READ)
        try:
            while selector.select(0):  # a last word first, then the end
                beneath.pgconn.consume_input()
        except psycopg.OperationalError:
            return False
    return True
