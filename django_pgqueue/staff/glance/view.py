"""All that is shown, from top to bottom."""

from collections.abc import Sequence
from typing import NamedTuple

from django.utils import timezone

from django_pgqueue.staff.glance.fit import in_height, table
from django_pgqueue.staff.glance.look import Glance, Workers
from django_pgqueue.staff.glance.paint import Line, Piece, Style, clipped
from django_pgqueue.staff.glance.table import COLUMNS, rows_of
from django_pgqueue.staff.health import Finding, Level
from django_pgqueue.staff.terminal import plain

MOST_FINDINGS = 0.4
"""Of the height of the terminal."""

STYLES = {Level.ERROR: Style.BAD, Level.WARNING: Style.WARNING}


class Room(NamedTuple):
    """Columns and lines of a terminal."""

    wide: int
    high: int


def view(glance: Glance, *, wide: int | None = None) -> list[Line]:
    """Return all of it, however long: findings and queues, none left out."""
    findings = [_finding(finding) for finding in glance.findings]
    rows = list(rows_of(glance))
    if not rows:
        return [_headline(glance), *findings, [], [Piece("There are no queues yet.")]]
    return [_headline(glance), *findings, [], *table(rows, COLUMNS, head="queue", wide=wide)]


def view_in(room: Room, glance: Glance) -> list[Line]:
    """Return what has room."""
    findings = _some(glance.findings, int(room.high * MOST_FINDINGS))
    rows = list(rows_of(glance))
    heads, more = 4, 1  # the headline, a free line, the two heads of the table; what is said of queues not shown
    left = room.high - len(findings) - heads
    shown = rows if sum(map(len, rows)) <= left else in_height(rows, max(left - more, 0))
    lines: list[Line] = [_headline(glance), *findings, []]
    lines += table(shown, COLUMNS, head="queue", wide=room.wide) if rows else [[Piece("There are no queues yet.")]]
    if len(shown) < len(rows):
        lines.append([Piece(f"… and {len(rows) - len(shown):,} more queues", Style.QUIET)])
    return [clipped(line, room.wide) for line in lines][: room.high]


def _headline(glance: Glance) -> Line:
    at = timezone.localtime(glance.at) if timezone.is_aware(glance.at) else glance.at
    return [Piece(f"{at:%H:%M:%S}", Style.BOLD), Piece(f"  {_who(glance.workers)} "), _verdict(glance.findings)]


def _who(workers: Workers) -> str:
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


def _some(findings: Sequence[Finding], most: int) -> list[Line]:
    if len(findings) <= most:
        return [_finding(finding) for finding in findings]
    shown = [_finding(finding) for finding in findings[: max(most - 1, 0)]]
    return [*shown, [Piece(f"… and {_number(len(findings) - len(shown), 'more finding')}", Style.QUIET)]]


def _finding(finding: Finding) -> Line:
    words = plain(" ".join(finding.what.split()))
    return [Piece(f"{finding.level:<8}", STYLES[finding.level]), Piece(f"{finding.name}: {words}")]


def _number(number: int, word: str, plural: str = "s") -> str:
    return f"{number:,} {word}{'' if number == 1 else plural}"
