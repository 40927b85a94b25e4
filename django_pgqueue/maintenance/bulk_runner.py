"""Carry out bulk operations that staff have begun, one bounded slice after the other.

A slice, its outcome and the place where the next one begins are one transaction, in which the row of the operation is
locked. So a worker that dies anywhere has done a slice or nothing of it, and no job is seen to twice; the next worker
goes on.

It cannot go round in circles. Jobs are read by ascending id, each operation passes each id once, and it ends with the
id that was the newest when it began. Jobs that have come to the table since the operation was begun are left out, as
one that dies anew or is enqueued while it runs.
"""

import dataclasses
import datetime as dt
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import psycopg
from django.db import DataError, Error

from django_pgqueue.db.connections import PassConnection, QueueConnection
from django_pgqueue.db.errors import is_locked, is_refusal, is_transient
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidOperation
from django_pgqueue.jobs.actions import Done, Left, Verb, verb_of
from django_pgqueue.jobs.bulk_actions import filter_of
from django_pgqueue.jobs.search import Filter, Page, Source, page_of
from django_pgqueue.services import Slice, spell

logger = logging.getLogger("django_pgqueue.worker")

LARGEST = 1000
LOCK_MILLISECONDS = 100
LONGEST_ERROR = 1000

LOCKED_SECONDS = 0.2  # what is due and cannot be taken is being done by another worker


class Operation(NamedTuple):
    """One that is due; the columns of ``take_operation.sql``."""

    id: int
    created_at: dt.datetime
    after_id: int
    until_id: int | None
    rate: float | None
    verb: str
    source: str
    by: str
    filter: str  # JSON
    said: str  # JSON
    outcome: str  # JSON: how many, by what was done
    left: str  # JSON: how many, by the reason
    is_stopped: bool


class Step(NamedTuple):
    """Result of one slice."""

    after_id: int
    until_id: int | None
    is_over: bool = False
    looked: int = 0
    did: Mapping[str, int] = {}
    left: Mapping[str, int] = {}
    error: str = ""

    @property
    def done(self) -> int:
        return sum(self.did.values())


class Carried(NamedTuple):
    """Result of a pass."""

    operation_id: int | None = None  # None: none is due, or others are at it
    done: int = 0
    announcements: Mapping[str, set[str]] = {}  # payloads by channel, to be sent now


def carry_on(database: QueueConnection, *, limit: int = LARGEST) -> Carried:
    """Do a slice of up to ``limit`` jobs, 1 to 1,000, for one operation that is due, and no more than its rate allows.

    A job that the database refuses to change, or for which it would have to wait, is found by halving the slice and
    left alone. Whatever else will not go away by itself ends the operation, with the error.

    Raises:
        django.db.Error: a transient one; nothing was changed.
    """
    connection = PassConnection(database)
    operation: Operation | None = None
    try:
        with database.transaction():
            operation = _take(database)
            if operation is None:
                return Carried()
            step = _step(connection, operation, limit)
            _write(database, operation, step)
    except Exception as error:
        is_about_jobs = isinstance(error, Error) and (is_refusal(error) or is_locked(error))
        if operation is None or (is_transient(error) and not is_about_jobs):
            raise
        if is_about_jobs and limit > 1:
            return carry_on(database, limit=limit // 2)
        return _give_up(database, operation, error, is_about_jobs=is_about_jobs)
    if step.is_over:
        logger.info("Operation %d (%s, by %s) has ended", operation.id, operation.verb, operation.by)
    return Carried(operation.id, step.done, connection.announcements)


def prune_operations(database: QueueConnection, *, days: int) -> int:
    """Remove up to 1,000 operations that ended ``days`` days ago or before; return how many."""
    return len(database.rows(statement("prune_operations"), {"days": days}))


def _take(database: QueueConnection, operation_id: int | None = None) -> Operation | None:
    database.rows(statement("lock_timeout"), {"milliseconds": LOCK_MILLISECONDS})
    rows = database.rows(statement("take_operation"), {"id": operation_id})
    return Operation._make(rows[0]) if rows else None


def _step(connection: PassConnection, operation: Operation, limit: int) -> Step:
    """Do the next slice, in the transaction that is open."""
    if operation.is_stopped:
        return Step(operation.after_id, operation.until_id, is_over=True)
    verb, said, chosen = verb_of(operation.verb, operation.source), json.loads(operation.said), _filter(operation)
    verb.check(said)
    page = _page(connection, operation, verb, chosen, limit)
    statuses = chosen.kinds if verb.source is Source.LIVE else ()
    done = verb.do(page.ids, by=operation.by, said=said, statuses=statuses, where=connection) if page.ids else NONE
    return Step(
        after_id=operation.after_id if page.next_id is None else page.next_id,
        until_id=page.until_id,
        is_over=page.next_id is None,
        looked=page.looked,
        did={what.value: len(ids) for what, ids in done.did.items() if ids},
        left=Counter(why.name.lower() for why in done.left.values()),
    )


NONE = Done({}, {})


def _filter(operation: Operation) -> Filter:
    """Return what matches, as it matched when the operation was asked for."""
    chosen = filter_of(json.loads(operation.filter))
    before = operation.created_at - dt.timedelta(seconds=chosen.older_than_seconds or 0)
    return dataclasses.replace(chosen, older_than_seconds=None, before=before)


def _page(connection: PassConnection, operation: Operation, verb: Verb, chosen: Filter, limit: int) -> Page:
    """Return the next jobs that match, and no more of them than the limit and the rate allow."""
    kinds = tuple(kind for kind in chosen.kinds if kind in verb.statuses) or chosen.kinds or verb.statuses
    wanted = dataclasses.replace(chosen, kinds=kinds)
    try:
        page = page_of(connection, verb.source, wanted, after_id=operation.after_id, until_id=operation.until_id)
    except (DataError, psycopg.DataError) as error:  # it becomes Django's where the transaction is left
        raise InvalidOperation(f"The stored filter cannot be used: {_told(error)}") from error
    most = limit if operation.rate is None else min(limit, max(int(operation.rate), 1))
    if len(page.ids) <= most:
        return page
    ids = page.ids[:most]
    return page._replace(ids=ids, next_id=ids[-1], looked=most)


def _write(database: QueueConnection, operation: Operation, step: Step) -> None:
    parameters: dict[str, Any] = {
        "id": operation.id,
        "pause_seconds": step.done / operation.rate if operation.rate else 0.0,
        "is_over": step.is_over,
        "after_id": step.after_id,
        "until_id": step.until_id,
        "looked": step.looked,
        "done": step.done,
        "outcome": _added(operation.outcome, step.did),
        "left": _added(operation.left, step.left),
        "error": step.error,
    }
    database.rows(statement("write_operation"), parameters)


def _added(counts: str, more: Mapping[str, int]) -> str:
    return json.dumps(Counter(json.loads(counts)) + Counter(more))


def _give_up(database: QueueConnection, operation: Operation, error: Exception, *, is_about_jobs: bool) -> Carried:
    """Leave the job alone that the slice consisted of, or end the operation, in a transaction of its own."""
    with database.transaction():
        again = _take(database, operation.id)
        if again is None or again.after_id != operation.after_id:
            return Carried()  # others have gone on with it meanwhile
        if is_about_jobs:
            step = _without_next(PassConnection(database), again, error)
        else:
            step = Step(again.after_id, again.until_id, is_over=True, error=_told(error))
        _write(database, again, step)
    logger.warning("Operation %d (%s, by %s): %s", operation.id, operation.verb, operation.by, _told(error))
    return Carried(operation.id)


def _without_next(connection: PassConnection, operation: Operation, error: Exception) -> Step:
    """Leave the next job alone."""
    verb = verb_of(operation.verb, operation.source)
    page = _page(connection, operation, verb, _filter(operation), 1)
    why = Left.CHANGING if is_locked(error) else Left.REFUSED
    return Step(
        after_id=operation.after_id if page.next_id is None else page.next_id,
        until_id=page.until_id,
        is_over=page.next_id is None,
        looked=page.looked,
        left=Counter({why.name.lower(): len(page.ids)}),
        error="" if is_locked(error) else f"Job {', '.join(map(str, page.ids))}: {_told(error)}",
    )


def _told(error: Exception) -> str:
    """Return an error on one line; what the database adds to it may have values of arguments."""
    return f"{type(error).__name__}: {error}".partition("\n")[0][:LONGEST_ERROR]


# The maintenance task


class Operations:
    """A duty of the steward.

    Args:
        announce: called with payloads by channel, once what they are about is committed.
    """

    def __init__(self, database: QueueConnection, announce: Callable[[Mapping[str, set[str]]], None]) -> None:
        self._database = database
        self._announce = announce
        self._slice = Slice()

    def carry_on(self, due_seconds: float | None) -> float | None:
        """Do slices for a spell; return the seconds until the next look, None where there is no operation.

        Args:
            due_seconds: until the next slice of any operation; None where there is none.
        """
        if due_seconds is None or due_seconds > 0:
            return due_seconds
        pause = LOCKED_SECONDS
        for _ in spell():
            with self._slice.taken() as limit:
                carried = carry_on(self._database, limit=limit)
            if carried.operation_id is None:
                return pause
            self._announce(carried.announcements)
            pause = 0.0
        return pause
