"""Bulk actions: actions on all jobs that match a filter, which workers carry out in slices."""

import dataclasses
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection, ids_of
from django_pgqueue.db.notify import notify_maintenance
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidBulkAction
from django_pgqueue.jobs.actions import Action, ActionResult, Ids, JobChange, Params, SkipReason
from django_pgqueue.jobs.search import LISTS, Filter

logger = logging.getLogger("django_pgqueue")

FASTEST = 100_000  # jobs a second
MOST_EXAMPLES = 10  # ids of each reason


def begin(
    action: Action,
    chosen: Filter,
    *,
    by: str,
    params: Params | None = None,
    rate: float | None = None,
    expected: int | None = None,
    database: str | None = None,
) -> int:
    """Request an action on all jobs that match now, in the caller's transaction; any worker may carry it out.

    Jobs that are enqueued, die or finish after this are left out. Nothing is changed before the commit.

    Args:
        by: user who asks for it; kept in the history of the jobs.
        rate: maximum number of jobs a second, above 0. None: no limit.
        expected: number of jobs that match now, where it is known, for the progress that is shown.

    Returns:
        The id of the bulk action.

    Raises:
        InvalidOption: a param is missing or cannot be.
        InvalidBulkAction: the rate cannot be.
        InvalidFilter: these jobs have nothing of what the filter asks for.
    """
    params = params or {}
    action.check(params)
    chosen.must_fit(action.source)
    if rate is not None and not (math.isfinite(rate) and 0 < rate <= FASTEST):
        raise InvalidBulkAction(f"A rate is above 0 and up to {FASTEST} jobs a second, not {rate!r}.")
    caller = CallerConnection(database)
    parameters = {
        "action": action.name,
        "source": action.source.value,
        "by": by,
        "filter": json.dumps(stored(chosen)),
        "params": json.dumps(dict(params)),
        "rate": rate,
        "expected": expected,
    }
    [(bulk_action_id,)] = caller.rows(statement("begin_bulk_action"), parameters)
    notify_maintenance(caller.alias)
    logger.info("Bulk action %d begun by %s: %s %s", bulk_action_id, by, action.name, parameters["filter"])
    return int(bulk_action_id)


def stop(ids: Iterable[int], *, by: str, database: str | None = None) -> list[int]:
    """End bulk actions in the caller's transaction; return the ids of those that had not ended.

    Changes that they have made stay. Waits for the slice that a worker is just processing, if any: about a second.
    """
    rows = CallerConnection(database).rows(statement("stop_bulk_action"), {"ids": ids_of(ids), "by": by})
    stopped = [bulk_action_id for (bulk_action_id,) in rows]
    for bulk_action_id in stopped:
        logger.info("Bulk action %d stopped by %s", bulk_action_id, by)
    return stopped


def stored(chosen: Filter) -> dict[str, Any]:
    """Return a filter as JSON has it, without what matches any."""
    return {name: value for name, value in dataclasses.asdict(chosen).items() if value not in (None, ())}


def filter_of(stored_filter: Any) -> Filter:
    """Return a filter as it was stored; raise InvalidBulkAction for one of newer code, or one that chooses by no list.

    A text is not taken for the list of its characters, nor an empty one for any.
    """
    known = {field.name for field in dataclasses.fields(Filter)}
    if not isinstance(stored_filter, Mapping) or (strange := sorted(set(stored_filter) - known)):
        what = f"unknown: {', '.join(strange)}" if isinstance(stored_filter, Mapping) else "no object"
        raise InvalidBulkAction(f"The stored filter cannot be read: {what}.")
    values = dict(stored_filter)
    for name in LISTS & set(values):
        if not isinstance(values[name], list):
            raise InvalidBulkAction(f"The stored filter cannot be read: {name} is no list.")
        values[name] = tuple(values[name])
    return Filter(**values)


@dataclass
class BulkActionResult:
    done: Counter[JobChange] = field(default_factory=Counter)
    skipped: Counter[SkipReason] = field(default_factory=Counter)
    examples: dict[SkipReason, list[int]] = field(default_factory=dict)  # ids of each

    def add(self, result: ActionResult) -> None:
        self.done.update({change: len(ids) for change, ids in result.done.items()})
        self.skipped.update(result.skipped.values())
        for job_id, why in result.skipped.items():
            some = self.examples.setdefault(why, [])
            if len(some) < MOST_EXAMPLES:
                some.append(job_id)


def in_slices(
    slices: Iterable[Ids], do: Callable[[Ids], ActionResult], *, tally: BulkActionResult, database: str | None = None
) -> Iterator[BulkActionResult]:
    """Act on slice after slice, each in a transaction of its own; yield the tally whenever one has been committed.

    After any error the slices before it stay committed, and the tally counts no others. Raises RuntimeError if
    a transaction is open.
    """
    for ids in slices:
        with transaction.atomic(using=database or conf.database_here, durable=True):
            result = do(ids)
        tally.add(result)
        yield tally
