"""The person at the terminal: who it is, what is asked, and text that is fit to be read there."""

import getpass
import os
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from django_pgqueue import log_lines

plain = log_lines.plain


def columns(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as lines of columns, below a head."""
    lines = [head, *(tuple(map(plain, row)) for row in rows)]
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(left, line, widths)).rstrip() for line in lines)


def left(text: str, wide: int) -> str:
    """Return text with spaces behind it, so wide in a terminal."""
    return text + " " * (wide - width(text))


def right(text: str, wide: int) -> str:
    """Return text with spaces before it."""
    return " " * (wide - width(text)) + text


def width(text: str) -> int:
    """Return how many columns of a terminal text takes: two for each wide character, none for what is put on another.

    Source: https://www.unicode.org/reports/tr11/
    """
    return len(text) if text.isascii() else sum(map(_width, text))


def cut(text: str, wide: int) -> str:
    """Return text that is no wider; what is left out is in its middle, as names differ at both ends."""
    if width(text) <= wide:
        return text
    head = _beginning(text, (wide - 1) // 2)
    return f"{head}…{_beginning(text[::-1], wide - 1 - width(head))[::-1]}" if wide > 0 else ""


def says_yes(question: str) -> bool:
    """Whether somebody at the terminal says so."""
    try:
        return input(question).strip().lower() in {"y", "yes"}
    except EOFError:
        return False


def user() -> str:
    """Return the name of the system's user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return f"user {os.getuid()}"


def _width(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def _beginning(text: str, wide: int) -> str:
    end = 0
    while end < len(text) and (wide := wide - _width(text[end])) >= 0:
        end += 1
    return text[:end]
