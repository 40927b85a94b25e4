"""Overview of ``pgqueue_stats``: reading it, and its tables."""

import datetime as dt
import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, groupby
from typing import Any, NamedTuple

from django.utils.translation import override

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.doctor import Finding, findings
from django_pgqueue.insights import overview, throughput, worker_info
from django_pgqueue.insights.bounded import bounded
from django_pgqueue.insights.formatting import compact, cut, left, plain, right, width
from django_pgqueue.insights.overview import QueueLine
from django_pgqueue.insights.throughput import SHARES, RecentWork, StatsCounts, drain_seconds_of
from django_pgqueue.insights.worker_info import WorkerState
from django_pgqueue.jobs.stats import BOUNDS

MINUTES = 5

NUMBERS = ("queued", "scheduled", "waiting", "running", "dead")
DONE = ("succeeded", "failed", "retried", "died", "lost", "stale")

FEW = 10

GAP = "  "
NARROWEST_NAME = 16


@dataclass(frozen=True, kw_only=True)
class WorkerNumbers:
    """Numbers of living ``pgqueue_worker`` commands, their processes and slots, and of slots in use."""

    commands: int
    processes: int
    slots: int
    busy: int


@dataclass(frozen=True, kw_only=True)
class TaskStats:
    """One task in one queue."""

    name: str
    done: RecentWork


@dataclass(frozen=True, kw_only=True)
class QueueStats:
    """One queue.

    Attributes:
        line: how it stands.
        done: what was done in the time that is looked back at.
        drain_seconds: until nothing is queued, at this pace; None where nothing can be said.
        tasks: those that took most time first; empty where they were not asked for.
    """

    line: QueueLine
    done: RecentWork
    drain_seconds: float | None
    tasks: Sequence[TaskStats] = ()


@dataclass(frozen=True, kw_only=True)
class StatsSnapshot:
    """The queue as it stands, at one moment.

    Attributes:
        at: when that was, by the database's clock.
        seconds: so far back go the counts of what was done.
        findings: what is wrong, the worst first.
    """

    at: dt.datetime
    seconds: float
    workers: WorkerNumbers
    findings: Sequence[Finding]
    queues: Sequence[QueueStats]


def snapshot(
    alias: str | None = None, *, queues: Collection[str] = (), minutes: int = MINUTES, with_tasks: bool = False
) -> StatsSnapshot:
    """Read it all, each statement within the time limit of the admin's pages.

    Args:
        queues: names of those to look at; none: all, up to 1,000.
        minutes: number of past minutes to include, besides the one that is not over; 1 to 1,440.

    Raises:
        TookTooLong: a statement was stopped.
        django.db.Error: there is trouble with the database.
    """
    alias = alias or conf.database
    with bounded(alias), override("en"):  # a command shows it; this may be a thread of its own
        [(at, into_minute)] = CallerConnection(alias).rows(statement("clock"), {})
        seconds = minutes * 60 + into_minute
        alive = worker_info.states_of(worker_info.with_clock(overview.living_workers(alias)), alias)
        lines = overview.lines_of(sorted(set(queues)) or overview.names(alias), alias, [state.row for state in alive])
        return StatsSnapshot(
            at=at,
            seconds=seconds,
            workers=_workers(alive),
            findings=findings(alias, queues=lines),
            queues=_queues(lines, alias, minutes=minutes, seconds=seconds, with_tasks=with_tasks),
        )


def _workers(alive: Sequence[WorkerState]) -> WorkerNumbers:
    return WorkerNumbers(
        commands=len({state.row.supervisor_id for state in alive}),
        processes=len(alive),
        slots=sum(state.row.concurrency for state in alive),
        busy=sum(state.busy for state in alive),
    )


def _queues(
    lines: Sequence[QueueLine], alias: str, *, minutes: int, seconds: float, with_tasks: bool
) -> list[QueueStats]:
    done = defaultdict(RecentWork, throughput.recent_by_queue(alias, minutes=minutes))
    tasks = _tasks(alias, minutes) if with_tasks else {}
    waiting = overview.waiting(lines, {name for name in done if done[name].counts.left}, alias)
    return [
        QueueStats(
            line=line,
            done=done[line.name],
            drain_seconds=drain_seconds_of(waiting[line.name], done[line.name].counts, seconds=seconds),
            tasks=tasks.get(line.name, ()),
        )
        for line in lines
    ]


def _tasks(alias: str, minutes: int) -> Mapping[str, Sequence[TaskStats]]:
    found: dict[str, list[TaskStats]] = defaultdict(list)
    for (queue, task), done in throughput.by_task(alias, minutes=minutes).items():
        found[queue].append(TaskStats(name=task, done=done))
    return found


# Colours


class Style(Enum):
    """The look of text: parameters of Select Graphic Rendition, ECMA-48."""

    PLAIN = ""
    BOLD = "1"
    QUIET = "2"
    GOOD = "32"
    WARNING = "33"
    BAD = "1;31"
    LOUD = "7"


class Piece(NamedTuple):
    """Text of one style; it has nothing in it that would do something to a terminal."""

    text: str
    style: Style = Style.PLAIN


Line = Sequence[Piece]


def painted(line: Line, *, has_colours: bool) -> str:
    """Return a line as a terminal takes it."""
    return "".join(map(_coloured, line)) if has_colours else "".join(piece.text for piece in line).rstrip()


def clipped(line: Line, wide: int) -> Line:
    """Return a line that is no wider, and ends with an ellipsis where something was left out."""
    if sum(width(piece.text) for piece in line) <= wide:
        return line
    return list(_up_to(line, wide))


def _coloured(piece: Piece) -> str:
    text, style = piece
    return f"\x1b[{style.value}m{text}\x1b[m" if style.value else text


def _up_to(line: Line, wide: int) -> Iterable[Piece]:
    room = wide - 1
    for text, style in line:
        end = 0
        while end < len(text) and width(text[: end + 1]) <= room:
            end += 1
        room -= width(text[:end])
        if end < len(text):
            yield Piece(f"{text[:end]}…", style)
            return
        yield Piece(text, style)


# JSON


def as_json(glance: StatsSnapshot, *, with_tasks: bool = False) -> dict[str, Any]:
    """Return all that is known; numbers of jobs are counted up to some limit, and ``at_least`` names those."""
    return {
        "at": glance.at,
        "window_seconds": round(glance.seconds, 3),
        "workers": {
            "commands": glance.workers.commands,
            "processes": glance.workers.processes,
            "slots": glance.workers.slots,
            "busy": glance.workers.busy,
        },
        "findings": [finding.as_json() for finding in glance.findings],
        "queues": [_queue(queue, glance.seconds, with_tasks=with_tasks) for queue in glance.queues],
    }


def _queue(queue: QueueStats, seconds: float, *, with_tasks: bool) -> dict[str, Any]:
    line = queue.line
    numbers = {name: getattr(line, name) for name in NUMBERS}
    tasks = [{"name": task.name, **_done(task.done, seconds)} for task in queue.tasks]
    return {
        "name": line.name,
        "is_paused": line.is_paused,
        **{name: number.value for name, number in numbers.items()},
        "at_least": [name for name, number in numbers.items() if number.is_short],
        "oldest_runnable_seconds": _rounded(line.oldest_seconds),
        "workers": line.workers,
        "drain_seconds": _rounded(queue.drain_seconds),
        **_done(queue.done, seconds),
        **({"tasks": tasks} if with_tasks else {}),
    }


def _done(done: RecentWork, seconds: float) -> dict[str, Any]:
    counts = done.counts
    return {
        "counts": {name: getattr(counts, name) for name in DONE},
        "per_minute": {name: round(per_minute(counts, name, seconds), 3) for name in DONE},
        "wait_seconds": {"mean": _rounded(counts.mean_wait_seconds), **_percentiles(done.wait_seconds)},
        "run_seconds": {"mean": _rounded(counts.mean_run_seconds), **_percentiles(done.run_seconds)},
    }


def per_minute(counts: StatsCounts, name: str, seconds: float) -> float:
    """Return how often something was counted in a minute, on average."""
    number: int = getattr(counts, name)
    return number * 60 / seconds


def _percentiles(seconds_of: Callable[[float], float | None]) -> dict[str, float | None]:
    return {f"p{share * 100:g}": _rounded(seconds_of(share)) for share in SHARES}


def _rounded(seconds: float | None) -> float | None:
    """Return seconds to the microsecond: nothing here is known more exactly."""
    return None if seconds is None else round(seconds, 6)


# Rows and columns

NONE = Piece("-", Style.QUIET)


@dataclass(frozen=True)
class TableRow:
    """A queue or, where ``queue`` is None, a task."""

    name: Piece
    done: RecentWork
    seconds: float
    queue: QueueStats | None = None


class TableColumn(NamedTuple):
    """A column of a table: its heading, and its text for a row.

    Attributes:
        group: stands above the heads of neighbours that have the same.
        rank: where there is no room for all columns, those of the highest rank go first.
    """

    group: str
    head: str
    rank: int
    piece: Callable[[TableRow], Piece]


def rows_of(glance: StatsSnapshot) -> Iterator[list[TableRow]]:
    """Return the rows of each queue: its own, and those of its tasks."""
    for queue in glance.queues:
        name, style = plain(queue.line.name), Style.WARNING if queue.line.is_paused else Style.BOLD
        paused = " (paused)" if queue.line.is_paused else ""
        yield [
            TableRow(Piece(f"{name}{paused}", style), queue.done, glance.seconds, queue),
            *(TableRow(Piece(f"  {plain(task.name)}"), task.done, glance.seconds) for task in queue.tasks),
        ]


def number(name: str, row: TableRow) -> Piece:
    """Show how many jobs of a status there are."""
    if row.queue is None:
        return Piece("")
    found = getattr(row.queue.line, name)
    return Piece(str(found), Style.PLAIN if found.value else Style.QUIET)


def oldest(row: TableRow) -> Piece:
    """Show for how long a job has waited that could have run."""
    if row.queue is None:
        return Piece("")
    seconds = row.queue.line.oldest_seconds
    if seconds is None:
        return NONE
    is_old = seconds >= overview.OLD_SECONDS and not row.queue.line.is_paused
    return Piece(compact(seconds), Style.BAD if is_old else Style.PLAIN)


def workers(row: TableRow) -> Piece:
    """Show how many processes serve the queue."""
    if row.queue is None:
        return Piece("")
    line = row.queue.line
    return Piece(str(line.workers), Style.BAD if line.is_unserved else Style.PLAIN)


def rate(name: str, row: TableRow) -> Piece:
    """Show how often something happens in a minute."""
    often = per_minute(row.done.counts, name, row.seconds)
    if not often:
        return NONE
    words = f"{often:,.0f}" if often >= FEW else f"{often:.1f}" if often >= 1 / FEW else "<0.1"
    if name == "succeeded":
        return Piece(words)
    is_bad = name == "failed" and row.done.counts.is_failing
    return Piece(words, Style.BAD if is_bad else Style.WARNING)


def wait(share: float, row: TableRow) -> Piece:
    """Show how long a share of the jobs has waited at most."""
    return _percentile(row.done.wait_seconds(share))


def run(share: float, row: TableRow) -> Piece:
    """Show how long a share of the jobs has run at most."""
    return _percentile(row.done.run_seconds(share))


def empty_in(row: TableRow) -> Piece:
    """Show how long it takes until nothing is queued, at the present pace."""
    if row.queue is None:
        return Piece("")
    if not row.queue.line.queued.value:
        return NONE
    if row.queue.drain_seconds is not None:
        return Piece(compact(row.queue.drain_seconds))
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
    *(TableColumn("", name, RANKS[name], functools.partial(number, name)) for name in NUMBERS),
    TableColumn("", "oldest", 0, oldest),
    TableColumn("", "workers", 2, workers),
    *(TableColumn("per minute", name, RANKS[name], functools.partial(rate, name)) for name in DONE),
    *(
        TableColumn("wait", f"p{share * 100:g}", RANK_OF_SHARE[share], functools.partial(wait, share))
        for share in SHARES
    ),
    *(
        TableColumn("run", f"p{share * 100:g}", RANK_OF_SHARE[share] + 1, functools.partial(run, share))
        for share in SHARES
    ),
    TableColumn("", "empty in", 3, empty_in),
)


def _percentile(seconds: float | None) -> Piece:
    if seconds is None:
        return NONE
    return Piece(f"{compact(seconds)}+" if seconds >= BOUNDS[-1] else compact(seconds))


# Fitting the table to the terminal


Rows = Sequence[Sequence[TableRow]]  # of each queue, those that stay together


class SizedColumn(NamedTuple):
    """A column, its pieces, and how wide it is."""

    column: TableColumn
    pieces: Sequence[Piece]
    wide: int


def table(rows: Rows, columns: Sequence[TableColumn], *, head: str, wide: int | None = None) -> list[Line]:
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
    """Return the queues that fit into a number of lines, in their order: those with most to do, where not all fit."""
    if sum(map(len, rows)) <= high:
        return rows
    chosen: set[int] = set()
    for place in sorted(range(len(rows)), key=lambda place: _urgency(rows[place][0])):
        if (high := high - len(rows[place])) < 0:
            break
        chosen.add(place)
    return [queue for place, queue in enumerate(rows) if place in chosen]


def _with_room(rows: Sequence[TableRow], columns: Sequence[TableColumn], wide: int | None) -> list[SizedColumn]:
    sized = [_sized(column, rows) for column in columns]
    room = (wide or 0) - NARROWEST_NAME
    while wide is not None and len(sized) > 1 and sum(len(GAP) + one.wide for one in sized) > room:
        worst = max(one.column.rank for one in sized)
        sized.remove(next(one for one in reversed(sized) if one.column.rank == worst))
    return sized


def _sized(column: TableColumn, rows: Sequence[TableRow]) -> SizedColumn:
    pieces = [column.piece(row) for row in rows]
    return SizedColumn(column, pieces, max(width(text) for text in (column.head, *(piece.text for piece in pieces))))


def _cell(piece: Piece, wide: int) -> Piece:
    return piece._replace(text=GAP + right(piece.text, wide))


def _groups(shown: Sequence[SizedColumn]) -> Iterator[Piece]:
    for group, members in groupby(shown, key=lambda sized: sized.column.group):
        wide = sum(len(GAP) + sized.wide for sized in members)
        yield Piece(left(f"{GAP}{cut(group, wide - len(GAP))}", wide), Style.QUIET)


def _urgency(row: TableRow) -> tuple[float, ...]:
    if row.queue is None:
        return (0.0,)
    line, counts = row.queue.line, row.done.counts
    return (
        -(line.oldest_seconds or 0.0),
        -(line.queued.value + line.waiting.value + line.running.value),
        -counts.ended,
    )
