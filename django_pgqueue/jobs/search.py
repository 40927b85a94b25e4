"""Search for jobs by filter and by the value of an argument, in pages.

The database compares what is stored. Its matches are compared again here, as they would be shown: else a search for a
value could guess what stands behind ``[redacted]``.
"""

import contextlib
import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from django.db import connections, transaction

from django_pgqueue import registry
from django_pgqueue.db.connections import CallerConnection, Database, Parameters
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs.redaction import named, shown
from django_pgqueue.stored_values import read

NUMBER = re.compile(r"-?(0|[1-9]\d{0,99})(\.\d{1,99})?", re.ASCII)
WORDS = {"true": True, "false": False, "null": None}

INDEX_ONLY = (
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), "
    "set_config('enable_sort', 'off', true), set_config('jit', 'off', true)"
)


def argument_parameters(value: str | None, name: str | None) -> dict[str, Any]:
    """Return the parameters by which the select statements compare arguments.

    Args:
        value: a text, a number or ``true``, ``false``, ``null``, as it is typed. None: nothing is compared.
        name: of a parameter. None: any argument may have the value.
    """
    return {
        "argument": json.dumps(meant(value)) if value is not None else None,
        "argument_name": name,
        "positions": json.dumps(dict(positions(name)) if name else {}),
    }


def visible(database: Database, table: str, ids: Sequence[int], value: str, name: str | None) -> list[int]:
    """Return those of the ``live``, ``dead`` or ``finished`` jobs that have the value where people may see it."""
    if not ids:
        return []
    rows = database.rows(statement("job_arguments"), {"ids": list(ids), "table": table})
    found = {job_id for job_id, task, args, kwargs in rows if is_visible(task, read(args), read(kwargs), value, name)}
    return [job_id for job_id in ids if job_id in found]


def is_visible(task_name: str, args: Any, kwargs: Any, value: str, name: str | None) -> bool:
    """Whether an argument, or that of the name, is shown and has the value."""
    task = registry.find(task_name)
    args, kwargs = shown(task, args, kwargs)
    wanted = meant(value)
    return any(_is_one_of(one, wanted) for one in _candidates(task, args, kwargs, name))


def _candidates(task: Any, args: Any, kwargs: Any, name: str | None) -> Iterator[Any]:
    if isinstance(args, list):
        pairs: Iterable[tuple[Any, Any]] = named(task, args) if name and task else [(None, one) for one in args]
        yield from (one for called, one in pairs if name is None or called == name)
    if isinstance(kwargs, Mapping):
        yield from (one for called, one in kwargs.items() if name is None or called == name)


def meant(value: str) -> list[Any]:
    """Return what may be meant: the text, and the number or the word of JSON that it spells."""
    if value in WORDS:
        return [value, WORDS[value]]
    return [value, json.loads(value)] if NUMBER.fullmatch(value) else [value]


def _is_one_of(one: Any, wanted: Iterable[Any]) -> bool:
    """Compare as JSON does, where true is no number."""
    return any(one == value and isinstance(one, bool) == isinstance(value, bool) for value in wanted)


def positions(name: str) -> Iterator[tuple[str, int]]:
    """Yield the tasks that have a parameter of this name, each with its place among the positional ones."""
    for task_name in registry.answering():
        task = registry.find(task_name)
        parameters_of = list(task.signature.parameters.values()) if task else []
        positional = [one.name for one in parameters_of if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]
        if name in positional:
            yield task_name, positional.index(name)


# Filters and pages
#
# A filter may match one row in a million, and no index helps most of them. So nothing is searched for: rows are read
# along the primary key, up to 10,000 in a statement, and the next one begins where that has ended.


class Source(StrEnum):
    """Table of jobs, by the statement that reads it."""

    LIVE = "search_live"
    DEAD = "search_dead"
    FINISHED = "search_finished"


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Filter of jobs; what is empty or None matches any.

    Args:
        queues: names, one of which it is.
        tasks: the same.
        kinds: statuses of live jobs, reasons of dead ones. Finished ones have none.
        older_than_seconds: 0 or more since it was enqueued, died or finished, by the database's clock.
        before: it was enqueued, died or finished at this instant or earlier.
        error: the last entry of the history has this ``error``: a class, with its module or without.
        task_prefix: the name of the task begins so.
        cause: of dead jobs: the number of what they died of, by ``models.Cause``.
        unique_key: of dead jobs, and of the live one that holds it.
        day: of finished jobs: the day in UTC, as ``2031-05-01``.
        argument: an argument that may be seen is this text, or the number, ``true``, ``false`` or ``null`` it spells.
        argument_name: the parameter that it is; None: any.
    """

    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    older_than_seconds: float | None = None
    error: str | None = None
    before: dt.datetime | None = None
    task_prefix: str | None = None
    cause: int | None = None
    unique_key: str | None = None
    day: str | None = None
    argument: str | None = None
    argument_name: str | None = None

    def parameters(self) -> Parameters:
        return {
            "queues": list(self.queues) or None,
            "tasks": list(self.tasks) or None,
            "kinds": list(self.kinds) or None,
            "older_than_seconds": self.older_than_seconds,
            "error": self.error,
            "before": self.before,
            "task_prefix": self.task_prefix,
            "cause": self.cause,
            "unique_key": self.unique_key,
            "day": self.day,
            **argument_parameters(self.argument, self.argument_name),
        }

    def must_fit(self, source: "Source") -> None:
        """Raise ValueError if the table does not have what the filter asks for: it would match any job there."""
        missing: dict[Source, dict[str, object]] = {
            Source.LIVE: {"cause": self.cause, "day": self.day},
            Source.DEAD: {"day": self.day},
            Source.FINISHED: {"cause": self.cause, "unique_key": self.unique_key},
        }
        if asked := [name for name, value in missing[source].items() if value is not None]:
            raise ValueError(f"{source.name.capitalize()} jobs cannot be chosen by {' or '.join(asked)}.")


class SearchPage(NamedTuple):
    """Result of one statement; the columns of ``search_live.sql``."""

    next_id: int | None  # the next page begins behind it; None: that was all
    until_id: int | None  # the newest when the first page was read; None: there are none
    looked: int  # number of rows read
    ids: list[int]


def pages(source: Source, chosen: Filter, *, after_id: int = 0, database: str | None = None) -> Iterator[SearchPage]:
    """Yield the ids that match, ascending: up to 1,000 of up to 10,000 rows at a time.

    Ends with the job that was the newest at the first page, so however fast others come in. Each page is a statement of
    its own, and locks nothing: a caller that changes the jobs has to check that they still match.

    Args:
        after_id: 0 or more; ids begin above it.
    """
    caller = CallerConnection(database)
    next_id: int | None = after_id
    until_id: int | None = None
    while next_id is not None:
        with along_an_index(caller.alias):
            page = page_of(caller, source, chosen, after_id=next_id, until_id=until_id)
        yield page
        next_id, until_id = page.next_id, page.until_id


def page_of(database: Database, source: Source, chosen: Filter, *, after_id: int, until_id: int | None) -> SearchPage:
    """Return one page, where the planner reads along indexes already; raise ValueError as ``Filter.must_fit``."""
    chosen.must_fit(source)
    [row] = database.rows(statement(source.value), {**chosen.parameters(), "after_id": after_id, "until_id": until_id})
    page = SearchPage._make(row)
    if chosen.argument is None:
        return page
    table = source.name.lower()
    return page._replace(ids=visible(database, table, page.ids, chosen.argument, chosen.argument_name))


@contextlib.contextmanager
def along_an_index(alias: str) -> Iterator[None]:
    """Read in the order of an index where there is one, whatever a scan and a sort seem to cost.

    The hot table swings between empty and full, so its statistics mislead: a count that looks cheap may be a scan of
    everything. Nothing is written inside, so the transaction, or the savepoint, is rolled back to end the settings.
    """
    with transaction.atomic(using=alias):
        with connections[alias].cursor() as cursor:
            cursor.execute(INDEX_ONLY)
        yield
        transaction.set_rollback(True, using=alias)
