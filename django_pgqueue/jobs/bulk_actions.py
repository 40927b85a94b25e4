"""Bulk operations: actions on all jobs that match a filter, which workers carry out in slices."""

import dataclasses
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.notify import wake_for_operation
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidOperation
from django_pgqueue.jobs.actions import Left, Said, Verb, Why, why_left
from django_pgqueue.jobs.search import Filter

logger = logging.getLogger("django_pgqueue")

FASTEST = 100_000
"""Maximum rate, in jobs a second."""

MOST_EXAMPLES = 10


def begin(
    verb: Verb,
    chosen: Filter,
    *,
    by: str,
    said: Said | None = None,
    rate: float | None = None,
    expected: int | None = None,
    database: str | None = None,
) -> int:
    """Have a verb done to all jobs that match now, by whichever worker is free, in the caller's transaction.

    Jobs that are enqueued, die or finish after this are left out. Nothing is changed before the commit.

    Args:
        by: who wants it; stands in the history of the jobs.
        said: what the verb needs.
        rate: maximum number of jobs a second, above 0. None: no limit.
        expected: how many match now, where that is known, for the progress that is shown.

    Returns:
        The id of the operation.

    Raises:
        InvalidJob: what was said cannot be.
        InvalidOperation: the rate cannot be, or these jobs have nothing of what the filter asks for.
    """
    said = said or {}
    verb.check(said)
    try:
        chosen.must_fit(verb.source)
    except ValueError as error:
        raise InvalidOperation(str(error)) from error
    if rate is not None and not (math.isfinite(rate) and 0 < rate <= FASTEST):
        raise InvalidOperation(f"A rate is above 0 and up to {FASTEST} jobs a second, not {rate!r}.")
    caller = CallerConnection(database)
    parameters = {
        "verb": verb.name,
        "source": verb.source.name.lower(),
        "by": by,
        "filter": json.dumps(stored(chosen)),
        "said": json.dumps(dict(said)),
        "rate": rate,
        "expected": expected,
    }
    [(operation_id,)] = caller.rows(statement("begin_operation"), parameters)
    wake_for_operation(caller.alias)
    logger.info("Operation %d begun by %s: %s %s", operation_id, by, verb.name, parameters["filter"])
    return int(operation_id)


def stop(ids: Iterable[int], *, by: str, database: str | None = None) -> list[int]:
    """End operations in the caller's transaction; what they have done stays done.

    Waits for the slice that a worker is just doing, if one is: up to a second or so.

    Args:
        by: who does it; shown to others.

    Returns:
        The ids of those that had not ended.
    """
    rows = CallerConnection(database).rows(statement("stop_operation"), {"ids": list(ids), "by": by})
    stopped = [operation_id for (operation_id,) in rows]
    for operation_id in stopped:
        logger.info("Operation %d stopped by %s", operation_id, by)
    return stopped


def stored(chosen: Filter) -> dict[str, Any]:
    """Return a filter as JSON has it, without what matches any."""
    values = dataclasses.asdict(chosen)
    return {name: value for name, value in values.items() if value is not None and value != ()}


def filter_of(stored_filter: Any) -> Filter:
    """Return a filter as it was stored.

    Raises:
        InvalidOperation: it has what no filter has, as one that newer code has stored.
    """
    known = {field.name for field in dataclasses.fields(Filter)}
    if not isinstance(stored_filter, Mapping) or (strange := sorted(set(stored_filter) - known)):
        what = f"unknown: {', '.join(strange)}" if isinstance(stored_filter, Mapping) else "no object"
        raise InvalidOperation(f"The stored filter cannot be read: {what}.")
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored_filter.items()
    }
    return Filter(**values)


# Carrying out in slices

Act = Callable[[Sequence[int]], Mapping[str, Sequence[int]]]
"""Does something to a slice of jobs; returns which it was done to, by words that say what."""


@dataclass
class Tally:
    """Result so far."""

    done: Counter[str] = field(default_factory=Counter)
    left: Counter[Left] = field(default_factory=Counter)
    examples: dict[Left, list[int]] = field(default_factory=dict)  # a few ids of each

    def add(self, done: Mapping[str, Sequence[int]], left: Mapping[int, Left]) -> None:
        self.done.update({words: len(ids) for words, ids in done.items()})
        self.left.update(left.values())
        for job_id, why in left.items():
            some = self.examples.setdefault(why, [])
            if len(some) < MOST_EXAMPLES:
                some.append(job_id)


def in_slices(
    slices: Iterable[Sequence[int]], act: Act, why: Why, *, tally: Tally, database: str | None = None
) -> Iterator[Tally]:
    """Act on slice after slice, each in a transaction of its own; yield the tally whenever one has been committed.

    Whatever ends it, and wherever, the slices before stay done, and the tally counts no others.

    Args:
        act: is called inside the transaction.
        why: says why the others of a slice were left alone.

    Raises:
        RuntimeError: a transaction is open.
    """
    alias = database or conf.database
    for ids in slices:
        with transaction.atomic(using=alias, durable=True):
            done = act(ids)
            left = why_left(set(ids).difference(*done.values()), why, database=alias)
        tally.add(done, left)
        yield tally
