"""What of a table has room in a terminal."""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import NamedTuple

from django_pgqueue.staff.glance.paint import Line, Piece, Style
from django_pgqueue.staff.glance.table import Column, Row
from django_pgqueue.staff.terminal import cut, left, right, width

GAP = "  "
NARROWEST_NAME = 16

Rows = Sequence[Sequence[Row]]
"""Of each queue, those that stay together."""


class Sized(NamedTuple):
    """A column, its pieces, and how wide it is."""

    column: Column
    pieces: Sequence[Piece]
    wide: int


def table(rows: Rows, columns: Sequence[Column], *, head: str, wide: int | None = None) -> list[Line]:
    """Return the lines of a table.

    Args:
        head: what the names are of.
        wide: columns of the terminal: what has no room is left out, by its rank, and long names are cut. None: as wide
            as it is.
    """
    flat = list(chain.from_iterable(rows))
    shown = _with_room(flat, columns, wide)
    rest = sum(len(GAP) + sized.wide for sized in shown)
    name = max((width(text) for text in (head, *(row.name.text for row in flat))), default=0)
    if wide is not None:
        name = max(min(name, wide - rest), min(name, NARROWEST_NAME))
    lines: list[Line] = []
    if any(sized.column.group for sized in shown):
        lines.append([Piece(left("", name)), *_groups(shown)])
    heads = [_cell(Piece(sized.column.head, Style.BOLD), sized.wide) for sized in shown]
    lines.append([Piece(left(head, name), Style.BOLD), *heads])
    for number, row in enumerate(flat):
        cells = [_cell(sized.pieces[number], sized.wide) for sized in shown]
        lines.append([row.name._replace(text=left(cut(row.name.text, name), name)), *cells])
    return lines


def in_height(rows: Rows, high: int) -> Rows:
    """Return the queues that have room in so many lines, in their order: those with most to do, where not all have."""
    if sum(map(len, rows)) <= high:
        return rows
    chosen: set[int] = set()
    for place in sorted(range(len(rows)), key=lambda place: _urgency(rows[place][0])):
        if (high := high - len(rows[place])) < 0:
            break
        chosen.add(place)
    return [queue for place, queue in enumerate(rows) if place in chosen]


def _with_room(rows: Sequence[Row], columns: Sequence[Column], wide: int | None) -> list[Sized]:
    sized = [_sized(column, rows) for column in columns]
    room = (wide or 0) - NARROWEST_NAME
    while wide is not None and len(sized) > 1 and sum(len(GAP) + one.wide for one in sized) > room:
        worst = max(one.column.rank for one in sized)
        sized.remove(next(one for one in reversed(sized) if one.column.rank == worst))
    return sized


def _sized(column: Column, rows: Sequence[Row]) -> Sized:
    pieces = [column.piece(row) for row in rows]
    return Sized(column, pieces, max(width(text) for text in (column.head, *(piece.text for piece in pieces))))


def _cell(piece: Piece, wide: int) -> Piece:
    return piece._replace(text=GAP + right(piece.text, wide))


def _groups(shown: Sequence[Sized]) -> Iterator[Piece]:
    for group, members in groupby(shown, key=lambda sized: sized.column.group):
        wide = sum(len(GAP) + sized.wide for sized in members)
        yield Piece(left(f"{GAP}{cut(group, wide - len(GAP))}", wide), Style.QUIET)


def _urgency(row: Row) -> tuple[float, ...]:
    if row.queue is None:
        return (0.0,)
    line, counts = row.queue.line, row.done.counts
    return (
        -(line.oldest_seconds or 0.0),
        -(line.queued.value + line.waiting.value + line.running.value),
        -counts.ended,
    )
