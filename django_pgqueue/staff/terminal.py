"""The person at the terminal: who it is, what is asked, and text that is fit to be read there."""

import getpass
import os
from collections.abc import Iterable, Sequence
from typing import Any


def columns(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as lines of columns, below a head."""
    lines = [head, *(tuple(map(plain, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def plain(value: Any) -> str:
    """Return text that does nothing to a terminal: names may come from anybody who can insert a row."""
    return "".join(character if character.isprintable() else "?" for character in str(value))


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
