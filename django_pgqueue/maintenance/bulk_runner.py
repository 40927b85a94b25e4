"""Carry out bulk actions that staff have begun, one bounded slice after the other.

A slice, its outcome and the place where the next one begins are one transaction, in which the row of the bulk action is
locked. So a worker that dies anywhere has done a slice or nothing of it, and no job is seen to twice; the next worker
goes on.

It cannot go round in circles. Jobs are read by ascending id, each bulk action passes each id once, and it ends with the
id that was the newest when it began. Jobs that have come to the table since the bulk action was begun are left out:
those that die again or are enqueued while it runs.
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

from django_pgqueue.db.connections import MaintenanceConnection, QueueConnection
from django_pgqueue.db.errors import first_line, is_locked, is_refusal, is_transient
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidBulkAction
from django_pgqueue.jobs.actions import Action, SkipReason, action_named
from django_pgqueue.jobs.bulk_actions import filter_of
from django_pgqueue.jobs.search import MOST_LOOKED, Filter, SearchPage, Source, page_of
from django_pgqueue.services import AdaptiveBatch, repeat_slices
from django_pgqueue.signals import dropped_on_error

logger = logging.getLogger("django_pgqueue.worker")

LARGEST = 1000
LOCK_MILLISECONDS = 100
LONGEST_ERROR = 1000


class DueBulkAction(NamedTuple):
    """One that is due; the columns of ``take_bulk_action.sql``."""

    id: int
    created_at: dt.datetime
    after_id: int
    until_id: int | None
    rate: float | None
    action: str
    source: str
    by: str
    filter: str  # JSON
    params: str  # JSON
    outcome: str  # JSON: numbers of jobs, by change
    skipped: str  # JSON: how many, by the reason
    is_stopped: bool


class BatchResult(NamedTuple):
    """Result of one slice: the page it was about, and what became of its jobs."""

    page: SearchPage  # without a next one: the bulk action is over
    changed: Mapping[str, int] = {}
    skipped: Mapping[str, int] = {}
    error: str = ""

    @property
    def done(self) -> int:
        return sum(self.changed.values())


class BulkPassResult(NamedTuple):
    bulk_action_id: int | None = None  # None: none is due, or others are at it
    done: int = 0
    announcements: Mapping[str, set[str]] = {}  # payloads by channel, to be sent now


def carry_on(database: QueueConnection, *, limit: int = LARGEST) -> BulkPassResult:
    """Do a slice of up to ``limit`` jobs, 1 to 1,000, of one bulk action that is due, within its rate.

    A job that the database refuses to change, or for which it would have to wait, is found by halving the slice and
    skipped. Any other permanent error ends the bulk action, with the error.

    Raises:
        django.db.Error: a transient one; nothing was changed.
    """
    connection = MaintenanceConnection(database)
    bulk_action: DueBulkAction | None = None
    try:
        with dropped_on_error(), database.transaction(lock_milliseconds=LOCK_MILLISECONDS):
            bulk_action = _take(database)
            if bulk_action is None:
                return BulkPassResult()
            step = _step(connection, bulk_action, limit)
            _write(database, bulk_action, step)
    except Exception as error:
        is_about_jobs = isinstance(error, Error) and (is_refusal(error) or is_locked(error))
        if bulk_action is None or (is_transient(error) and not is_about_jobs):
            raise
        if is_about_jobs and limit > 1:
            return carry_on(database, limit=limit // 2)
        return _give_up(database, bulk_action, error, is_about_jobs=is_about_jobs)
    if step.page.next_id is None:
        logger.info("Bulk action %d (%s, by %s) has ended", bulk_action.id, bulk_action.action, bulk_action.by)
    return BulkPassResult(bulk_action.id, step.done, connection.announcements)


def _take(database: QueueConnection, bulk_action_id: int | None = None) -> DueBulkAction | None:
    rows = database.rows(statement("take_bulk_action"), {"id": bulk_action_id})
    return DueBulkAction._make(rows[0]) if rows else None


def _step(connection: MaintenanceConnection, bulk_action: DueBulkAction, limit: int) -> BatchResult:
    """Do the next slice, in the transaction that is open."""
    if bulk_action.is_stopped:
        return BatchResult(_no_page(bulk_action))
    action = action_named(bulk_action.action, bulk_action.source)
    params, chosen = json.loads(bulk_action.params), _filter(bulk_action)
    action.check(params)
    page = _page(connection, bulk_action, action, chosen, limit)
    if not page.ids:
        return BatchResult(page)
    statuses = chosen.kinds if action.source is Source.LIVE else ()
    result = action.do(page.ids, by=bulk_action.by, params=params, statuses=statuses, where=connection)
    changed = {change.value: len(ids) for change, ids in result.done.items()}
    return BatchResult(page, changed, Counter(why.value for why in result.skipped.values()))


def _no_page(bulk_action: DueBulkAction) -> SearchPage:
    return SearchPage(next_id=None, until_id=bulk_action.until_id, looked=0, ids=[])


def _filter(bulk_action: DueBulkAction) -> Filter:
    """Return what matches, as it matched when the bulk action was asked for."""
    chosen = filter_of(json.loads(bulk_action.filter))
    before = bulk_action.created_at - dt.timedelta(seconds=chosen.older_than_seconds or 0)
    return dataclasses.replace(chosen, older_than_seconds=None, before=before)


def _page(
    connection: MaintenanceConnection, bulk_action: DueBulkAction, action: Action, chosen: Filter, limit: int
) -> SearchPage:
    kinds = tuple(kind for kind in chosen.kinds if kind in action.statuses) or chosen.kinds or action.statuses
    wanted = dataclasses.replace(chosen, kinds=kinds)
    after_id, until_id, most = bulk_action.after_id, bulk_action.until_id, limit * MOST_LOOKED // LARGEST
    try:
        page = page_of(connection, action.source, wanted, after_id=after_id, until_id=until_id, most=most)
    except (DataError, psycopg.DataError) as error:  # it becomes Django's where the transaction is left
        raise InvalidBulkAction(f"The stored filter cannot be used: {_error_text(error)}") from error
    allowed = limit if bulk_action.rate is None else min(limit, max(int(bulk_action.rate), 1))
    if len(page.ids) <= allowed:
        return page
    ids = page.ids[:allowed]
    return page._replace(ids=ids, next_id=ids[-1], looked=allowed)


def _write(database: QueueConnection, bulk_action: DueBulkAction, step: BatchResult) -> None:
    page = step.page
    parameters: dict[str, Any] = {
        "id": bulk_action.id,
        "pause_seconds": step.done / bulk_action.rate if bulk_action.rate else 0.0,
        "is_over": page.next_id is None,
        "after_id": bulk_action.after_id if page.next_id is None else page.next_id,
        "until_id": page.until_id,
        "looked": page.looked,
        "done": step.done,
        "outcome": _added(bulk_action.outcome, step.changed),
        "skipped": _added(bulk_action.skipped, step.skipped),
        "error": step.error,
    }
    database.rows(statement("save_bulk_action"), parameters)


def _added(counts: str, more: Mapping[str, int]) -> str:
    return json.dumps(Counter(json.loads(counts)) + Counter(more))


def _give_up(
    database: QueueConnection, bulk_action: DueBulkAction, error: Exception, *, is_about_jobs: bool
) -> BulkPassResult:
    """Skip the job that the slice consisted of, or end the bulk action, in a transaction of its own."""
    with database.transaction(lock_milliseconds=LOCK_MILLISECONDS):
        again = _take(database, bulk_action.id)
        if again is None or again.after_id != bulk_action.after_id:
            return BulkPassResult()  # others have gone on with it meanwhile
        if is_about_jobs:
            step = _without_next(MaintenanceConnection(database), again, error)
        else:
            step = BatchResult(_no_page(again), error=_error_text(error))
        _write(database, again, step)
    logger.warning(
        "Bulk action %d (%s, by %s): %s", bulk_action.id, bulk_action.action, bulk_action.by, _error_text(error)
    )
    return BulkPassResult(bulk_action.id)


def _without_next(connection: MaintenanceConnection, bulk_action: DueBulkAction, error: Exception) -> BatchResult:
    action = action_named(bulk_action.action, bulk_action.source)
    page = _page(connection, bulk_action, action, _filter(bulk_action), 1)
    if is_locked(error):
        return BatchResult(page, skipped={SkipReason.CHANGING.value: len(page.ids)})
    text = f"Job {', '.join(map(str, page.ids))}: {_error_text(error)}"
    return BatchResult(page, skipped={SkipReason.REFUSED.value: len(page.ids)}, error=text)


def _error_text(error: Exception) -> str:
    return first_line(error)[:LONGEST_ERROR]


class BulkActionRunner:
    """A service; ``announce`` is called with payloads by channel, after the commit of their changes."""

    def __init__(self, database: QueueConnection, announce: Callable[[Mapping[str, set[str]]], None]) -> None:
        self._database = database
        self._announce = announce
        self._slice = AdaptiveBatch()

    def carry_on(self) -> float:
        """Do slices for a spell; return the seconds until the next pass."""
        return repeat_slices(self._do_slice)

    def _do_slice(self) -> bool:
        with self._slice.taken() as limit:
            carried = carry_on(self._database, limit=limit)
        self._announce(carried.announcements)
        return carried.bulk_action_id is not None
