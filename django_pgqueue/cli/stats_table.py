"""Overview of ``pgqueue_stats`` as lines of text: workers, findings, and a table of queues."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import groupby
from typing import NamedTuple

from django_pgqueue.cli.stats import DONE, QueueStats, StatsSnapshot, WorkerNumbers, per_minute
from django_pgqueue.doctor import Finding, Level
from django_pgqueue.insights import overview
from django_pgqueue.insights.formatting import beginning, compact, left, local, plain, right, width
from django_pgqueue.insights.throughput import SHARES, RecentWork
from django_pgqueue.jobs.stats import BOUNDS

FEW = 10

HEAD = "queue"  # of the names
GAP = "  "

# Colours


class Style(Enum):
    """The look of text: parameters of Select Graphic Rendition, ECMA-48."""

    PLAIN = ""
    BOLD = "1"
    QUIET = "2"
    GOOD = "32"
    WARNING = "33"
    BAD = "1;31"


class Piece(NamedTuple):
    """Text of one style; it has nothing in it that would do something to a terminal."""

    text: str
    style: Style = Style.PLAIN


Line = Sequence[Piece]

NONE = Piece("-", Style.QUIET)

STYLES = {Level.ERROR: Style.BAD, Level.WARNING: Style.WARNING}


def painted(line: Line, *, has_colours: bool) -> str:
    if not has_colours:
        return "".join(piece.text for piece in line).rstrip()
    return "".join(f"\x1b[{style.value}m{text}\x1b[m" if style.value else text for text, style in line)


def cut_to(lines: Sequence[Line], *, wide: int, high: int) -> list[Line]:
    """Return the part that fits into a terminal: the first lines, and the beginning of each."""
    if len(lines) > high:
        more = Piece(f"… and {len(lines) - high + 1:,} more lines", Style.QUIET)
        lines = [*lines[: max(high - 1, 0)], [more]]
    return [list(_beginning(line, wide)) for line in lines]


def _beginning(line: Line, wide: int) -> Iterator[Piece]:
    for text, style in line:
        start = beginning(text, wide)
        yield Piece(start, style)
        if start != text:
            return
        wide -= width(start)


# The whole view


def views(found: Mapping[str, StatsSnapshot], failures: Mapping[str, str]) -> list[Line]:
    """Return the lines of several databases, each below a heading; where only one was asked, its lines alone.

    Args:
        found: by alias.
        failures: why others that were asked have none.
    """
    if len(found) + len(failures) == 1:
        return [line for glance in found.values() for line in view(glance)]
    lines: list[Line] = []
    for alias, why in failures.items():  # first: the end has no room in a small terminal
        lines += [[Piece(f"On {plain(alias)}, no answer: {plain(' '.join(why.split()))}", Style.BAD)], []]
    for alias, glance in found.items():
        lines += [[Piece(f"On {plain(alias)}:", Style.BOLD)], [], *view(glance), []]
    return lines[:-1]


def view(glance: StatsSnapshot) -> list[Line]:
    """Return the lines of all of it: workers, findings and queues."""
    below = table(list(rows_of(glance))) if glance.queues else [[Piece("There are no queues yet.")]]
    return [_headline(glance), *map(_finding, glance.findings), [], *below]


def _headline(glance: StatsSnapshot) -> Line:
    return [
        Piece(f"{local(glance.at):%H:%M:%S}", Style.BOLD),
        Piece(f"  {_alive(glance.workers)} "),
        _verdict(glance.findings),
    ]


def _alive(workers: WorkerNumbers) -> str:
    if not workers.processes:
        return "No worker is alive."
    return (
        f"{_number(workers.commands, 'worker')} alive, {_number(workers.processes, 'process', 'es')}, "
        f"{workers.busy:,} of {_number(workers.slots, 'slot')} busy."
    )


def _verdict(findings: Sequence[Finding]) -> Piece:
    if not findings:
        return Piece("All is well.", Style.GOOD)
    return Piece(f"{_number(len(findings), 'finding')}:", STYLES[findings[0].level])


def _finding(finding: Finding) -> Line:
    words = plain(" ".join(finding.what.split()))
    return [Piece(f"{finding.level:<8}", STYLES[finding.level]), Piece(f"{finding.name}: {words}")]


def _number(number: int, word: str, plural: str = "s") -> str:
    return f"{number:,} {word}{'' if number == 1 else plural}"


# Rows and columns


@dataclass(frozen=True)
class TableRow:
    """A queue or, where ``queue`` is None, a task."""

    name: Piece
    done: RecentWork
    seconds: float
    queue: QueueStats | None = None


class TableColumn(NamedTuple):
    group: str  # shown above the heads of neighbours that have the same
    head: str
    piece: Callable[[TableRow], Piece]  # for a row


def rows_of(glance: StatsSnapshot) -> Iterator[TableRow]:
    """Return a row for each queue, each with those of its tasks behind it."""
    for queue in glance.queues:
        name, style = plain(queue.line.name), Style.WARNING if queue.line.is_paused else Style.BOLD
        paused = " (paused)" if queue.line.is_paused else ""
        yield TableRow(Piece(f"{name}{paused}", style), queue.done, glance.seconds, queue)
        for task, done in queue.tasks.items():
            yield TableRow(Piece(f"  {plain(task)}"), done, glance.seconds)


def of_queue(show: Callable[[QueueStats], Piece]) -> Callable[[TableRow], Piece]:
    """Leave a column empty in rows of tasks."""
    return lambda row: show(row.queue) if row.queue else Piece("")


def number(name: str, queue: QueueStats) -> Piece:
    found = getattr(queue.line, name)
    return Piece(str(found), Style.PLAIN if found.value else Style.QUIET)


def oldest(queue: QueueStats) -> Piece:
    """Show for how long a job has waited that could have run."""
    seconds = queue.line.oldest_seconds
    if seconds is None:
        return NONE
    is_old = seconds >= overview.patience_seconds(queue.line.name) and not queue.line.is_paused
    return Piece(compact(seconds), Style.BAD if is_old else Style.PLAIN)


def workers(queue: QueueStats) -> Piece:
    return Piece(str(queue.line.workers), Style.BAD if queue.line.is_unserved else Style.PLAIN)


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
    return _at_most(row.done.wait_seconds(share))


def run(share: float, row: TableRow) -> Piece:
    """Show how long a share of the jobs has run at most."""
    return _at_most(row.done.run_seconds(share))


def _at_most(seconds: float | None) -> Piece:
    if seconds is None:
        return NONE
    return Piece(f"{compact(seconds)}+" if seconds >= BOUNDS[-1] else compact(seconds))


def empty_in(queue: QueueStats) -> Piece:
    """Show how long it takes until nothing is queued, at the present pace."""
    if not queue.line.queued.value:
        return NONE
    if queue.empty_in_seconds is not None:
        return Piece(compact(queue.empty_in_seconds))
    return Piece("paused" if queue.line.is_paused else "stalled", Style.WARNING)


COLUMNS = (  # the most important first: a narrow terminal cuts the last ones off
    *(TableColumn("", name, of_queue(partial(number, name))) for name in ("queued", "running", "dead")),
    TableColumn("", "oldest", of_queue(oldest)),
    TableColumn("", "workers", of_queue(workers)),
    *(TableColumn("per minute", name, partial(rate, name)) for name in DONE),
    *(TableColumn("wait", f"p{share * 100:g}", partial(wait, share)) for share in SHARES),
    *(TableColumn("run", f"p{share * 100:g}", partial(run, share)) for share in SHARES),
    TableColumn("", "empty in", of_queue(empty_in)),
    *(TableColumn("", name, of_queue(partial(number, name))) for name in ("scheduled", "limited")),
)


def table(rows: Sequence[TableRow]) -> list[Line]:
    """Return the lines of a table, below two lines of heads."""
    columns = [[column.piece(row) for row in rows] for column in COLUMNS]
    widths = [_widest(column.head, pieces) for column, pieces in zip(COLUMNS, columns, strict=True)]
    names = _widest(HEAD, [row.name for row in rows])
    heads = [Piece(column.head, Style.BOLD) for column in COLUMNS]
    return [
        [Piece(left("", names)), *_groups(widths)],
        [Piece(left(HEAD, names), Style.BOLD), *map(_cell, heads, widths)],
        *(
            [row.name._replace(text=left(row.name.text, names)), *map(_cell, pieces, widths)]
            for row, *pieces in zip(rows, *columns, strict=True)
        ),
    ]


def _widest(head: str, pieces: Sequence[Piece]) -> int:
    return max(map(width, (head, *(piece.text for piece in pieces))))


def _cell(piece: Piece, wide: int) -> Piece:
    return piece._replace(text=GAP + right(piece.text, wide))


def _groups(widths: Sequence[int]) -> Iterator[Piece]:
    for group, members in groupby(zip(COLUMNS, widths, strict=True), key=lambda member: member[0].group):
        wide = sum(len(GAP) + width for _, width in members)
        yield Piece(left(f"{GAP}{group}", wide), Style.QUIET)
