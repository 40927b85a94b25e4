"""Figures of a run: what was expected, what was seen. No database here."""

from collections.abc import Sequence
from typing import NamedTuple


class Figure(NamedTuple):
    name: str
    expected: int
    seen: int

    @property
    def is_right(self) -> bool:
        return self.expected == self.seen


def all_right(figures: Sequence[Figure]) -> bool:
    return bool(figures) and all(figure.is_right for figure in figures)


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as lines of text."""
    lines = [f"  {'':<36}{'expected':>10}{'seen':>8}"]
    for figure in figures:
        mark = "" if figure.is_right else "  <-- wrong"
        lines.append(f"  {figure.name:<36}{figure.expected:>10}{figure.seen:>8}{mark}")
    return "\n".join(lines)
