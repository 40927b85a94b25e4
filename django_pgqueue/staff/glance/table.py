"""One line for each queue, or for each task in it: what stands there, and how urgent it looks."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from django_pgqueue.jobs.stats import BOUNDS
from django_pgqueue.staff.glance.look import Glance, QueueGlance
from django_pgqueue.staff.glance.paint import Piece, Style
from django_pgqueue.staff.glance.report import DONE, NUMBERS, per_minute
from django_pgqueue.staff.overview import QueueLine
from django_pgqueue.staff.recent import SHARES, Recent
from django_pgqueue.staff.terminal import plain

MOST_FAIL = 0.5
OLD_SECONDS = 900
FEW = 10
NONE = Piece("-", Style.QUIET)


@dataclass(frozen=True)
class Row:
    """A queue or, where ``queue`` is None, a task."""

    name: Piece
    done: Recent
    seconds: float
    queue: QueueGlance | None = None


class Column(NamedTuple):
    """What a column says of a row.

    Attributes:
        group: stands above the heads of neighbours that have the same.
        rank: where there is no room for all columns, those of the highest rank go first.
    """

    group: str
    head: str
    rank: int
    piece: Callable[[Row], Piece]


def rows_of(glance: Glance) -> Iterator[list[Row]]:
    """Return the rows of each queue: its own, and those of its tasks."""
    for queue in glance.queues:
        name, style = plain(queue.line.name), Style.WARNING if queue.line.is_paused else Style.BOLD
        paused = " (paused)" if queue.line.is_paused else ""
        yield [
            Row(Piece(f"{name}{paused}", style), queue.done, glance.seconds, queue),
            *(Row(Piece(f"  {plain(task.name)}"), task.done, glance.seconds) for task in queue.tasks),
        ]


def number(name: str, row: Row) -> Piece:
    """Show how many jobs of a status there are."""
    if row.queue is None:
        return Piece("")
    found = getattr(row.queue.line, name)
    return Piece(str(found), Style.PLAIN if found.value else Style.QUIET)


def oldest(row: Row) -> Piece:
    """Show for how long a job has waited that could have run."""
    if row.queue is None:
        return Piece("")
    seconds = row.queue.line.oldest_seconds
    if seconds is None:
        return NONE
    is_old = seconds >= OLD_SECONDS and not row.queue.line.is_paused
    return Piece(short(seconds), Style.BAD if is_old else Style.PLAIN)


def workers(row: Row) -> Piece:
    """Show how many processes serve the queue."""
    if row.queue is None:
        return Piece("")
    line = row.queue.line
    return Piece(str(line.workers), Style.BAD if is_left_alone(line) else Style.PLAIN)


def is_left_alone(line: QueueLine) -> bool:
    """Whether jobs wait there in vain."""
    return line.has_work and not line.is_paused and not line.workers


def rate(name: str, row: Row) -> Piece:
    """Show how often something happens in a minute."""
    often = per_minute(row.done.counts, name, row.seconds)
    if not often:
        return NONE
    words = f"{often:,.0f}" if often >= FEW else f"{often:.1f}" if often >= 1 / FEW else "<0.1"
    if name == "succeeded":
        return Piece(words)
    is_bad = name == "failed" and (row.done.counts.failure_rate or 0.0) >= MOST_FAIL
    return Piece(words, Style.BAD if is_bad else Style.WARNING)


def wait(share: float, row: Row) -> Piece:
    """Show how long a share of the jobs has waited at most."""
    return _percentile(row.done.wait_seconds(share))


def run(share: float, row: Row) -> Piece:
    """Show how long a share of the jobs has run at most."""
    return _percentile(row.done.run_seconds(share))


def empty_in(row: Row) -> Piece:
    """Show how long it takes until nothing is queued, at the present pace."""
    if row.queue is None:
        return Piece("")
    if not row.queue.line.queued.value:
        return NONE
    if row.queue.drain_seconds is not None:
        return Piece(short(row.queue.drain_seconds))
    return Piece("paused" if row.queue.line.is_paused else "stalled", Style.WARNING)


RANKS = {
    "queued": 0,
    "running": 0,
    "dead": 1,
    "scheduled": 4,
    "waiting": 4,
    "succeeded": 0,
    "failed": 0,
    "died": 3,
    "retried": 6,
    "lost": 5,
    "stale": 7,
}
RANK_OF_SHARE = {0.5: 6, 0.95: 1, 0.99: 5}

COLUMNS = (
    *(Column("", name, RANKS[name], functools.partial(number, name)) for name in NUMBERS),
    Column("", "oldest", 0, oldest),
    Column("", "workers", 2, workers),
    *(Column("per minute", name, RANKS[name], functools.partial(rate, name)) for name in DONE),
    *(Column("wait", f"p{share * 100:g}", RANK_OF_SHARE[share], functools.partial(wait, share)) for share in SHARES),
    *(Column("run", f"p{share * 100:g}", RANK_OF_SHARE[share] + 1, functools.partial(run, share)) for share in SHARES),
    Column("", "empty in", 3, empty_in),
)


def short(seconds: float) -> str:
    """Return a duration in few characters, by its two largest units."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds >= 0.001 else "<1ms"  # noqa: PLR2004 - a millisecond
    if seconds < FEW:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for size, unit, less, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // less
            return f"{whole // size}{unit}{rest}{part}" if rest else f"{whole // size}{unit}"
    return f"{whole}s"


def _percentile(seconds: float | None) -> Piece:
    if seconds is None:
        return NONE
    return Piece(f"{short(seconds)}+" if seconds >= BOUNDS[-1] else short(seconds))
