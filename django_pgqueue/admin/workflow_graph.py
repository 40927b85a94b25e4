"""Drawing of a workflow: its stages as boxes, those that wait behind those that they wait for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from django_pgqueue.insights.formatting import grouped
from django_pgqueue.insights.workflow_info import StageLine
from django_pgqueue.states import OpensWhen, StageStatus

MOST_DRAWN = 100  # stages
MARGIN = 4
INSET = 10  # of the words in a box
ARROW = 5  # of its head, before the box

CONDITIONS = {  # when a stage opens, but for the usual one
    OpensWhen.ENDED: gettext_lazy("when over"),
    OpensWhen.DIED: gettext_lazy("if one died"),
}


class Size(NamedTuple):
    """Lengths in pixels."""

    wide: int
    high: int
    along: int  # between boxes, in the direction of the edges
    across: int  # between boxes, in the other direction
    letters: int  # of a name, at most

    @property
    def end(self) -> int:
        """Where words in a box end."""
        return self.wide - INSET

    @property
    def bar_y(self) -> int:
        return self.high - 14


TO_THE_SIDE = Size(168, 74, along=52, across=18, letters=20)
DOWN = Size(110, 88, along=34, across=8, letters=14)  # three of them on a phone


@dataclass(frozen=True)
class Box:
    """A stage, with the numbers of its members."""

    stage: StageLine
    size: Size
    x: int
    y: int

    @property
    def name(self) -> str:
        name, most = self.stage.name, self.size.letters
        return name if len(name) <= most else f"{name[: most - 1]}…"

    @property
    def kind(self) -> str:
        """Return what the stylesheet colours it by."""
        is_dead = self.stage.is_killed or (self.stage.dead and not self.stage.is_over)
        return "dead" if is_dead and self.stage.status != StageStatus.SKIPPED else str(self.stage.status)

    @property
    def done(self) -> str:
        if self.stage.status == StageStatus.SKIPPED:
            return _("skipped")
        return self.stage.short_text if self.size is DOWN else self.stage.done_text

    @property
    def dead(self) -> str:
        words = ngettext("%(number)s dead", "%(number)s dead", self.stage.dead)
        return words % {"number": self.stage.dead_text} if self.stage.dead else ""

    @property
    def condition(self) -> Any:
        return CONDITIONS.get(OpensWhen(self.stage.opens_when), "")

    @property
    def bar(self) -> "Bar":
        return bar_of(self.stage, self.size.end - INSET)


@dataclass(frozen=True)
class Bar:
    """Lengths of the parts of a bar, of which the rest is not done."""

    done: float
    dead: float
    length: int


def bar_of(stage: StageLine, length: int) -> Bar:
    """Divide a bar; each part that is not empty can be seen."""
    if not stage.members:
        return Bar(length if stage.status == StageStatus.ENDED else 0, 0, length)
    dead = max(round(length * min(stage.dead / stage.members, 1), 1), 3) if stage.dead else 0
    done = min(round(length * stage.done / stage.members, 1), length - dead)
    return Bar(done, dead, length)


@dataclass(frozen=True)
class Edge:
    path: str
    outcome: str  # "": it is not known yet


@dataclass(frozen=True)
class Graph:
    """The drawing. ``is_tall``: edges go down instead of to the side, for a narrow screen."""

    boxes: list[Box]
    edges: list[Edge]
    width: int
    height: int
    is_tall: bool
    more: str  # words about the stages that are left out; empty: none are


def graph_of(stages: Sequence[StageLine], *, is_tall: bool) -> Graph:
    """Place the boxes in columns, or rows, by the longest way that leads to each."""
    drawn = {stage.id: stage for stage in stages[:MOST_DRAWN]}
    ranks = _in_order(_ranks(drawn), drawn)
    widest = max((len(rank) for rank in ranks), default=0)
    size = DOWN if is_tall else TO_THE_SIDE
    step, side = (size.high, size.wide) if is_tall else (size.wide, size.high)
    step, side = step + size.along, side + size.across
    boxes = {}
    for depth, rank in enumerate(ranks):
        offset = (widest - len(rank)) * side // 2
        for place, stage_id in enumerate(rank):
            along, across = MARGIN + depth * step, MARGIN + offset + place * side
            boxes[stage_id] = Box(drawn[stage_id], size, *((across, along) if is_tall else (along, across)))
    left_out = len(stages) - len(drawn)
    more = ngettext("%(number)s more stage is not drawn.", "%(number)s more stages are not drawn.", left_out) % {
        "number": grouped(left_out)
    }
    return Graph(
        list(boxes.values()),
        [
            Edge(_path(boxes[stage.id], boxes[to_id], is_tall=is_tall), outcome)
            for stage in drawn.values()
            for to_id, outcome in stage.edges
            if to_id in boxes
        ],
        max((box.x for box in boxes.values()), default=0) + size.wide + MARGIN,
        max((box.y for box in boxes.values()), default=0) + size.high + MARGIN,
        is_tall,
        more if left_out else "",
    )


def _ranks(stages: dict[int, StageLine]) -> list[list[int]]:
    """Return the ids of the stages by depth: one is deeper than all that it waits for."""
    depth = dict.fromkeys(stages, 0)
    waits = dict.fromkeys(stages, 0)
    for stage in stages.values():
        for to_id, _outcome in stage.edges:
            if to_id in waits:
                waits[to_id] += 1
    ready = [stage_id for stage_id, number in waits.items() if not number]
    for stage_id in ready:
        for to_id, _outcome in stages[stage_id].edges:
            if to_id in waits:
                depth[to_id] = max(depth[to_id], depth[stage_id] + 1)
                waits[to_id] -= 1
                if not waits[to_id]:
                    ready.append(to_id)  # the loop goes on with it
    ranks: list[list[int]] = [[] for _depth in range(max(depth.values(), default=-1) + 1)]
    for stage_id, deep in depth.items():
        ranks[deep].append(stage_id)
    return ranks


def _in_order(ranks: list[list[int]], stages: dict[int, StageLine]) -> list[list[int]]:
    """Order each rank by the mean place of the stages before, so that few edges cross."""
    before: dict[int, list[int]] = {stage_id: [] for stage_id in stages}
    for stage in stages.values():
        for to_id, _outcome in stage.edges:
            if to_id in before:
                before[to_id].append(stage.id)
    places: dict[int, float] = {}
    ordered = []
    for rank in ranks:
        wanted = {
            stage_id: sum(places[one] for one in before[stage_id]) / len(before[stage_id])
            if before[stage_id]
            else place
            for place, stage_id in enumerate(rank)
        }
        ordered.append(sorted(rank, key=lambda stage_id: (wanted[stage_id], stage_id)))
        places |= {stage_id: place - len(rank) / 2 for place, stage_id in enumerate(ordered[-1])}
    return ordered


def _path(one: Box, other: Box, *, is_tall: bool) -> str:
    """Return a curve from the end of one box to the beginning of another."""
    wide, high = one.size.wide, one.size.high
    if is_tall:
        x1, y1, x2, y2 = one.x + wide // 2, one.y + high, other.x + wide // 2, other.y - ARROW
        middle = (y1 + y2) // 2
        return f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}"
    x1, y1, x2, y2 = one.x + wide, one.y + high // 2, other.x - ARROW, other.y + high // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"
