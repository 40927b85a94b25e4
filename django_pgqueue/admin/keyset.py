"""Pages of a list by keyset, however deep.

A page begins behind the last row of the page before: behind its key, which is in the address. Nothing is skipped
by counting it off. Where a filter has no index, a stated window of rows is looked through along one that there is.
"""

import datetime as dt
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import BooleanField, Q, QuerySet, TextField
from django.db.models.expressions import RawSQL
from django.utils.dateparse import parse_datetime

WINDOW = 100_000  # rows read at most for what no index finds
LONGEST_CURSOR = 1000  # characters


class BadCursor(ValueError):  # noqa: N818 - the name says it all
    """An address does not say where a page begins."""


class KeyColumn(NamedTuple):
    sql: str
    cast: str
    is_valid: Callable[[str], bool]


INSTANT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-])", re.ASCII)


def is_integer(text: str) -> bool:
    """Whether a column of 64 bits can have it."""
    return re.fullmatch(r"-?\d{1,19}", text, re.ASCII) is not None and abs(int(text)) < 2**63


def instant_of(text: str) -> dt.datetime | None:
    """Read an instant with its zone: an id such as 20260101 could be read as a day, too; PostgreSQL reads no weeks."""
    try:
        at = parse_datetime(text) if INSTANT.match(text) else None
    except ValueError:
        return None
    return at if at is not None and at.tzinfo is not None else None


def _is_instant(text: str) -> bool:
    return instant_of(text) is not None


def _is_text(text: str) -> bool:
    """Whether PostgreSQL can have it; JSON can spell halves of a character too."""
    return re.search("[\0\ud800-\udfff]", text) is None


def _is_place(text: str) -> bool:
    return re.fullmatch(r"\(\d{1,9},\d{1,5}\)", text, re.ASCII) is not None and int(text[1:-1].split(",")[1]) < 2**15


COLUMNS = {
    "id": KeyColumn("id", "bigint", is_integer),
    "queue": KeyColumn("queue", "text", _is_text),
    "run_at": KeyColumn("run_at", "timestamptz", _is_instant),
    "deadline_at": KeyColumn("deadline_at", "timestamptz", _is_instant),
    "died_at": KeyColumn("died_at", "timestamptz", _is_instant),
    "priority": KeyColumn(
        "(-priority)", "smallint", lambda text: re.fullmatch(r"-?\d{1,3}", text, re.ASCII) is not None
    ),
    "worker_id": KeyColumn("worker_id", "bigint", is_integer),
    "stage_id": KeyColumn("stage_id", "bigint", is_integer),
    "concurrency_key": KeyColumn("concurrency_key", "text", _is_text),
    # Entries of an index that are equal are in the order of their rows' places; no index need have the id for
    # it. Source: https://www.postgresql.org/docs/current/btree.html#BTREE-DEDUPLICATION
    "ctid": KeyColumn("ctid", "tid", _is_place),
}


@dataclass(frozen=True)
class IndexOrder:
    """The order of an index, which is that of a list."""

    names: tuple[str, ...]  # of COLUMNS; no two rows have the same values in all of them
    order: tuple[Any, ...]  # the same for ``order_by``, up to the place of the row
    is_descending: bool = False  # all of them are

    @property
    def columns(self) -> list[KeyColumn]:
        return [COLUMNS[name] for name in self.names]

    def keyed(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        parts = ", ".join(f"({column.sql})::text" for column in self.columns)
        keyed: QuerySet[Any] = rows.annotate(cursor_key=RawSQL(f"json_build_array({parts})::text", (), TextField()))  # noqa: S611
        return keyed

    def behind(self, cursor: str) -> RawSQL:
        """Return the condition of the rows behind a key, in the order of the list."""
        return self._compare("<" if self.is_descending else ">", cursor)

    def before(self, cursor: str) -> RawSQL:
        return self._compare(">" if self.is_descending else "<", cursor)

    def down_to(self, cursor: str) -> RawSQL:
        return self._compare(">=" if self.is_descending else "<=", cursor)

    def values(self, cursor: str) -> Sequence[str]:
        """Return the values of a key; BadCursor where it cannot be one of this order."""
        try:
            values = json.loads(cursor) if len(cursor) <= LONGEST_CURSOR else None
        except ValueError as error:
            raise BadCursor from error
        if not isinstance(values, list) or len(values) != len(self.names):
            raise BadCursor
        for one, column in zip(values, self.columns, strict=True):
            if not isinstance(one, str) or not column.is_valid(one):
                raise BadCursor
        return values

    def _compare(self, operator: str, cursor: str) -> RawSQL:
        values = self.values(cursor)
        columns = ", ".join(column.sql for column in self.columns)
        marks = ", ".join(f"%s::{column.cast}" for column in self.columns)
        return RawSQL(f"({columns}) {operator} ({marks})", tuple(values), BooleanField())  # noqa: S611


NEWEST = IndexOrder(("id",), ("-id",), is_descending=True)


@dataclass(frozen=True)
class Route:
    along: IndexOrder
    base: Q  # what the index of that order finds
    rest: Q | None = None  # the condition that it does not cover, and that is searched for in a window
    shown: Callable[[Any], bool] | None = None  # sees ``pk``, ``task``, ``args`` and ``kwargs``; None: all may be shown


class Window(NamedTuple):
    first: str  # key of the first row
    last: str  # of the last; empty: nothing is behind it

    @property
    def is_all(self) -> bool:
        return not self.last


def window_of(rows: QuerySet[Any], along: IndexOrder, below: str) -> Window | None:
    """Return the window of a list that begins behind a key, or with its first row; None: there are no rows.

    Args:
        rows: what the index finds, in the order of the list.
    """
    rows = rows.filter(along.behind(below)) if below else rows
    first = next(iter(along.keyed(rows).values_list("cursor_key", flat=True)[:1]), None)
    if first is None:
        return None
    # Ids alone, which the index has: a key would be made of each row that is passed over.
    end = list(rows.values_list("pk", flat=True)[WINDOW - 1 : WINDOW + 1])  # the last of it, and the one behind
    if len(end) < 2:  # noqa: PLR2004 - there is none behind
        return Window(first, "")
    last = along.keyed(rows.model._default_manager.using(rows.db).filter(pk=end[0]))  # noqa: SLF001 - Django's own idiom
    key = next(iter(last.values_list("cursor_key", flat=True)), None)
    return Window(first, key) if key else window_of(rows, along, below)  # it has left the table meanwhile: look again


class KeysetPage(NamedTuple):
    rows: list[Any]  # with their ``cursor_key``
    has_previous: bool
    has_next: bool


LAST = "last"  # in place of a key: the end of the list


def page_of(rows: QuerySet[Any], along: IndexOrder, size: int, *, after: str = "", before: str = "") -> KeysetPage:
    """Read a page behind the key ``after``, or one that ends before the key ``before`` (``LAST``: with the list).

    Raises:
        BadCursor: a key is none of this order.
    """
    rows = along.keyed(rows)
    if before:
        found = list((rows if before == LAST else rows.filter(along.before(before))).reverse()[: size + 1])[::-1]
        if len(found) > size:
            return KeysetPage(found[1:], has_previous=True, has_next=before != LAST)
        after = ""  # so few that it is the first page, and that is shown whole
    found = list((rows.filter(along.behind(after)) if after else rows)[: size + 1])
    return KeysetPage(found[:size], has_previous=bool(after and found), has_next=len(found) > size)
