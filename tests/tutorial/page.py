"""The page of the tutorial, as what a reader does: one step after the other, and nothing left out.

A paragraph names the terminal (first, second, third) and the file that the blocks below it are for. What is typed
stands in blocks of ``console``, what is printed in blocks of ``text``, what is written into a file in blocks of
``python``. In numbered lists, **bold** is what to click on and a link is what to open.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token


@dataclass(frozen=True)
class Typed:
    terminal: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Printed:
    terminal: str
    text: str


@dataclass(frozen=True)
class Interrupted:
    terminal: str


@dataclass(frozen=True)
class Edited:
    file: str
    code: str
    is_new: bool


@dataclass(frozen=True)
class Opened:
    url: str


@dataclass(frozen=True)
class LoggedIn:
    user: str


@dataclass(frozen=True)
class Clicked:
    name: str


@dataclass(frozen=True)
class Pictured:
    path: Path


Step = Typed | Printed | Interrupted | Edited | Opened | LoggedIn | Clicked | Pictured

IGNORED = re.compile(r"(heading|paragraph|bullet_list|list_item|ordered_list)_(open|close)$")


def steps_of(path: Path) -> list[Step]:
    """Read a page; fail on whatever the test does not know how to use."""
    return list(_Reader(path).steps())


class _Reader:
    def __init__(self, path: Path) -> None:
        self._folder = path.parent
        self._tokens = MarkdownIt().parse(path.read_text())
        self._terminal = "first"
        self._file, self._is_new = "", False

    def steps(self) -> Iterator[Step]:
        in_numbered = False
        for token in self._tokens:
            if token.type.startswith("ordered_list"):
                in_numbered = token.type.endswith("open")
            elif token.type == "fence":
                yield self._block(token)
            elif token.type == "inline":
                yield from self._clicks(token) if in_numbered else self._paragraph(token)
            else:
                assert IGNORED.match(token.type), f"the test cannot use {token.type}: {token.content}"

    def _block(self, token: Token) -> Step:
        match token.info:
            case "console":
                return Typed(self._terminal, tuple(token.content.splitlines()))
            case "text":
                return Printed(self._terminal, token.content)
            case "python":
                assert self._file, f"no file is named for this code:\n{token.content}"
                return Edited(self._file, token.content, self._is_new)
        raise AssertionError(f"the test cannot use a block of {token.info!r}:\n{token.content}")

    def _paragraph(self, token: Token) -> Iterator[Step]:
        if named := re.search(r"\b(first|second|third) terminal", token.content):
            self._terminal = named[1]
        if named := re.search(r"(Write[^`]*)?`([\w/]+\.py)`", token.content):
            self._file, self._is_new = named[2], bool(named[1])
        if "Ctrl-C" in token.content:
            assert "Press Ctrl-C in the" in token.content, f"in which terminal? {token.content}"
            yield Interrupted(self._terminal)
        for child in token.children or ():
            if child.type == "image":
                yield Pictured(self._folder / str(child.attrs["src"]))

    def _clicks(self, token: Token) -> Iterator[Step]:
        """Yield what an item of a numbered list says is to be done in the browser."""
        before, found = "", []
        for child in token.children or ():
            if child.type == "link_open":
                found.append(Opened(str(child.attrs["href"])))
            elif child.type == "code_inline" and before.endswith("log in as "):
                found.append(LoggedIn(child.content))
            elif before == "**" and child.type == "text":
                found.append(Clicked(child.content))
            before = "**" if child.type == "strong_open" else child.content
        assert found, f"the test finds nothing to do in: {token.content}"
        yield from found
