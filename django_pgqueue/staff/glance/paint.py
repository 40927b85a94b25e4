"""Text with a style, which is left out where there are no colours."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from django_pgqueue.staff.terminal import width


class Style(Enum):
    """How text looks: parameters of Select Graphic Rendition, ECMA-48."""

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
