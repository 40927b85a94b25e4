"""Search for jobs by filter and by the value of an argument, in pages.

The database compares the stored values. Its matches are compared again here, as they would be shown: else a search for
a value could guess one that is ``[redacted]``.
"""

import dataclasses
import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from django_pgqueue import registry
from django_pgqueue.db.connections import CallerConnection, Database, Parameters
from django_pgqueue.db.queries import along_an_index, statement
from django_pgqueue.exceptions import InvalidFilter
from django_pgqueue.jobs.lookup import find_holder
from django_pgqueue.jobs.redaction import named, positional, shown
from django_pgqueue.stored_values import read

SCALAR = re.compile(r"true|false|null|-?(0|[1-9]\d{0,99})(\.\d{1,99})?", re.ASCII)  # of JSON, but for texts


def is_visible(task_name: str, args: Any, kwargs: Any, value: str, name: str | None) -> bool:
    """Whether an argument, or the one of this name, is shown and has the value."""
    task = registry.find(task_name)
    args, kwargs = shown(task, args, kwargs)
    pairs: list[tuple[str | None, Any]] = []
    if isinstance(args, list):
        pairs += named(task, args) if task else [(None, one) for one in args]
    if isinstance(kwargs, Mapping):
        pairs += kwargs.items()
    wanted = meant(value)
    return any(_is_one_of(one, wanted) for called, one in pairs if name is None or called == name)


def meant(value: str) -> list[Any]:
    """Return the values that a text may mean: itself, and the number or the word of JSON that it spells."""
    return [value, json.loads(value)] if SCALAR.fullmatch(value) else [value]


def _is_one_of(one: Any, wanted: Iterable[Any]) -> bool:
    """Compare as JSON does, where true is no number."""
    return any(one == value and isinstance(one, bool) == isinstance(value, bool) for value in wanted)


def positions(name: str) -> Iterator[tuple[str, int]]:
    """Yield the tasks that have a parameter of this name, each with its place among the positional ones."""
    for task_name in registry.answering():
        task = registry.find(task_name)
        if task and name in (names := positional(task)):
            yield task_name, names.index(name)


# Filters and pages
#
# A filter may match one row in a million, and no index helps most of them. So nothing is searched for: rows are read
# along the primary key, up to 10,000 in a statement, and the next one begins where that has ended.

MOST_LOOKED = 10_000


class Source(StrEnum):
    """Table of jobs, as a bulk action stores it."""

    LIVE = "live"
    DEAD = "dead"
    SUCCEEDED = "succeeded"


STATEMENTS = {Source.LIVE: "search_live", Source.DEAD: "search_dead", Source.SUCCEEDED: "search_succeeded"}
"""One for each table: a statement locks all that it names against ALTER and DROP, whether it reads them or not."""

MISSING = {Source.LIVE: ("cause", "day"), Source.DEAD: ("day",), Source.SUCCEEDED: ("cause", "unique_key")}
"""Parts of a filter that a table does not have."""

LISTS = frozenset({"queues", "tasks", "kinds", "tags"})  # parts of a filter that are several texts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filter:
    """Filter of jobs; a part that is empty or None matches any."""

    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()  # statuses of live jobs, reasons of dead ones; succeeded ones have none
    tags: tuple[str, ...] = ()  # it has all of them
    older_than_seconds: float | None = None  # 0 or more since it was enqueued, died or succeeded
    error: str | None = None  # of the last entry of the history: a class, with its module or without
    before: dt.datetime | None = None  # it was enqueued, died or succeeded at this instant or earlier
    task_prefix: str | None = None
    cause: int | None = None  # of dead jobs: the number of their cause of death, by ``models.ErrorGroup``
    stage: int | None = None  # of a workflow: its members
    unique_key: str | None = None  # of dead jobs, and of the live one that holds it
    day: str | None = None  # in UTC on which it succeeded, as ``2031-05-01``
    argument: str | None = None  # an argument that may be seen is this text, or the number or word of JSON it spells
    argument_name: str | None = None  # None: any

    def parameters(self) -> Parameters:
        lists = {name: list(getattr(self, name)) or None for name in LISTS}
        return {
            **dataclasses.asdict(self),
            **lists,
            "argument": None if self.argument is None else json.dumps(meant(self.argument)),
            "positions": json.dumps(dict(positions(self.argument_name)) if self.argument_name else {}),
        }

    def must_fit(self, source: Source) -> None:
        """Raise InvalidFilter if the table does not have what the filter asks for."""
        if asked := [name for name in MISSING[source] if getattr(self, name) is not None]:
            raise InvalidFilter(f"{source.capitalize()} jobs cannot be chosen by {' or '.join(asked)}.")


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
    if source is Source.LIVE and chosen.unique_key is not None:  # one job at most, and there is an index
        holder = find_holder(caller, chosen.unique_key)
        if holder is None or holder.id <= after_id:
            return
        next_id, until_id = holder.id - 1, holder.id
    while next_id is not None:
        with along_an_index(caller.alias):
            page = page_of(caller, source, chosen, after_id=next_id, until_id=until_id)
        yield page
        next_id, until_id = page.next_id, page.until_id


def page_of(
    database: Database, source: Source, chosen: Filter, *, after_id: int, until_id: int | None, most: int = MOST_LOOKED
) -> SearchPage:
    """Return one page, of ``most`` rows, where the planner reads along indexes; raise InvalidFilter as ``must_fit``."""
    chosen.must_fit(source)
    parameters = {**chosen.parameters(), "after_id": after_id, "until_id": until_id, "most": most}
    [row] = database.rows(statement(STATEMENTS[source]), parameters)
    page = SearchPage._make(row)
    if chosen.argument is None or not page.ids:
        return page
    rows = database.rows(statement("job_arguments"), {"ids": page.ids, "source": source.value})
    value, name = chosen.argument, chosen.argument_name
    seen = [job_id for job_id, task, args, kwargs in rows if is_visible(task, read(args), read(kwargs), value, name)]
    return page._replace(ids=sorted(seen))
