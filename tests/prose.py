"""Lint of prose: patterns that are not plain technical English, in the docs, and in comments and texts of the package.

    python -m tests.prose                           each place with what to write instead
    python -m tests.prose docs/how-to/admin.md      those of these files
    python -m tests.prose --check                   only patterns that occur more often than they may; exit code 1

``MOST`` is a ratchet: the numbers go down with each page that is rewritten, and never up.
"""

import argparse
import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "django_pgqueue"


class Pattern(NamedTuple):
    found: re.Pattern[str]
    instead: str


def _pattern(expression: str, instead: str) -> Pattern:
    return Pattern(re.compile(expression, re.IGNORECASE | re.MULTILINE), instead)


PATTERNS = {
    "archaic word": _pattern(
        r"\b(anew|likewise|in vain|as ever|lest|albeit|whosoever|thereof|wherein|hereby)\b",
        "again, also, without effect, as before",
    ),
    "for ever": _pattern(r"\bfor ever\b", "forever, or the limit"),
    "mend": _pattern(
        r"\bmend(s|ed|ing)?\b|\bsee(s|ing)? to (?!it that)|\blook(s|ed|ing)? after\b", "fix, maintain, handle"
    ),
    "beside": _pattern(r"\bbesides?\b", "next to, also, in addition"),
    "is to be": _pattern(r"\b(is|are|was|were) (not )?to (be|go)\b", "should, must, will"),
    "as by": _pattern(r", as (by|with|at|of|behind|under|for)\b", "such as, for example"),
    "inverted conditional": _pattern(
        r"(?-i:(?:^|(?<=\. ))(Is|Are|Does|Has|Have|Was|Were) )[^.?!:\n]{1,60}[:,] (?!.{0,90}\?)", "If …, …"
    ),
    "what as a noun": _pattern(
        r"\bwhat (is|are|was|were|has|had|runs|fails|waits|it|they|can|may|came|comes)\b(?![^.\n]*\?)",
        "name the thing: the due jobs, the failures",
    ),
    "whatever": _pattern(r"\bwhatever\b|\bhowever (many|long|often|few|far)\b", "any, each; a number"),
    "so long": _pattern(r"\bso (long|often|much)\b(?! (as|that))", "name the number or the parameter"),
    "those who": _pattern(r"\bthose who\b|(?-i:(?:^|(?<=\. ))Who )(?!.*\?|leads)", "users, the process that"),
    "tell": _pattern(r"\b(tell|tells|told|telling)\b(?! apart)", "report, show, export, say"),
    "stand": _pattern(r"\b(stands?|stood|standing)\b(?! for)", "is in, is stored, is shown"),
    "pet name": _pattern(r"\b(horizon|hungry|deaf|janitor|a slip)\b", "the standard term"),
}
"""By name; words that are gone for good are in ``test_words``."""

MOST: dict[str, dict[str, int]] = {
    "docs": {},
    "texts": {},
    "docstrings": {},
    "comments": {},
}
"""Maximum number of places, by kind of text and pattern; 0 if a pattern is left out."""


class Place(NamedTuple):
    path: Path
    line: int
    kind: str
    pattern: str
    text: str


def files() -> list[Path]:
    code = [
        path
        for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.sql")])
        if path.suffix == ".sql" or path.parent.name != "migrations"
    ]
    docs = [path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts]
    tops = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
    return [*tops, *sorted(docs), *sorted(PACKAGE.rglob("*.html")), *code]


def places(paths: Iterable[Path]) -> Iterator[Place]:
    for path in paths:
        for kind, line, text in _texts(path):
            for name, pattern in PATTERNS.items():
                for match in pattern.found.finditer(text):
                    number = text.count("\n", 0, match.start())
                    yield Place(path, line + number, kind, name, text.splitlines()[number].strip())


def surplus(found: Iterable[Place]) -> list[str]:
    """Say which patterns occur more often than they may."""
    numbers = Counter((place.kind, place.pattern) for place in found)
    return [
        f"{kind}: “{pattern}” {number} times, {most} at most; write: {PATTERNS[pattern].instead}"
        for (kind, pattern), number in sorted(numbers.items())
        if number > (most := MOST[kind].get(pattern, 0))
    ]


def _texts(path: Path) -> Iterator[tuple[str, int, str]]:
    """Return the prose of a file: kind, number of its first line, text; code is left out."""
    text = path.read_text()
    if path.suffix == ".md":
        without = re.sub(
            r"^ *(```+|~~~+).*?^ *\1", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL
        )
        yield "docs", 1, re.sub(r"`[^`\n]+`|\]\([^)\n]*\)|<!--.*?-->", "``", without)
    elif path.suffix == ".html":
        for said in re.finditer(r'{% (?:translate|blocktranslate[^%]*%}) ?"?([^"%]+)', text):
            yield "texts", text.count("\n", 0, said.start()) + 1, said[1]
    elif path.suffix == ".sql":
        for number, line in enumerate(text.splitlines(), 1):
            if comment := re.search(r"-- ?(.*)", line):
                yield "comments", number, comment[1]
    else:
        yield from _texts_of_python(text)


def _texts_of_python(text: str) -> Iterator[tuple[str, int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield "comments", token.start[0], _without_code(token.string.lstrip("# "))
    tree = ast.parse(text)
    documented = {id(node.value) for block in ast.walk(tree) for node in _body(block) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            if id(node) in documented:
                yield "docstrings", node.lineno, _without_code(node.value)
            else:
                yield "texts", node.lineno, node.value


def _without_code(text: str) -> str:
    return re.sub(r"``[^`\n]+``", "````", text)


def _body(block: ast.AST) -> list[ast.AST]:
    body = getattr(block, "body", None)
    return body if isinstance(body, list) else []  # of a lambda it is one expression


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    found = list(places([path.resolve() for path in given.paths] or files()))
    if given.check:
        print(*(problems := surplus(found)), sep="\n", end="\n" if problems else "")
        return int(bool(problems))
    for place in found:
        print(f"{place.path.relative_to(ROOT)}:{place.line}: {place.pattern}: {place.text}")
        print(f"    write: {PATTERNS[place.pattern].instead}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
