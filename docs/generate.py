"""Writes what the reference pages can know from the code: which rows their tables have, and the facts in them.

python -m docs.generate            # or: make reference

A table between ``<!-- generated: columns pgqueue_jobs -->`` and ``<!-- end -->`` has the rows of ``facts.of_columns``,
and the facts that it knows of each. Its head is the page's. A column of which nothing is known is prose, and stays as
it is written; in a new row it begins with what the code says of the thing, as a draft.

Lines that install the package have ``INSTALLED_FROM`` and the extras that the page names. They are in the README and in
the two tutorials, where they are typed; other pages name the extra.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import django
from django.conf import settings

from docs import facts

DOCS = Path(__file__).parent
INSTALLED_FROM = "../django-pgqueue"
"""What ``pip install`` is given on all pages: a checkout, until the distribution has a name on PyPI; then that name."""

INSTALL = re.compile(r"""(pip install(?: --upgrade)?\s+["'])[\w./-]*pgqueue[\w.-]*(?=\[)""")
REGION = re.compile(r"(<!-- generated: (.+?) -->\n\n)(.*?)(\n<!-- end -->)", re.DOTALL)


def rewritten(page: str) -> str:
    """Return a page as the code wants it; what people have written in it stays."""
    page = INSTALL.sub(lambda found: f"{found[1]}{INSTALLED_FROM}", page)
    return REGION.sub(lambda found: f"{found[1]}{filled(found[3], rows_of(found[2]))}{found[4]}", page)


def rows_of(marker: str) -> Iterable[facts.Row]:
    """Call what a marker names: ``columns pgqueue_dead_jobs but pgqueue_jobs``."""
    wanted, _, but = marker.partition(" but ")
    name, *words = wanted.split()
    return getattr(facts, f"of_{name}")(*words, **({"but": but.split()} if but else {}))


def filled(table: str, rows: Iterable[facts.Row]) -> str:
    """Return a table with these rows, their facts, and the prose that it has of them."""
    first, line, *others = table.splitlines()
    head, *written = map(cells_of, [first, *others])
    prose = {key(cells[0]): dict(zip(head, cells, strict=True)) for cells in written}
    lines = [first, line]
    for row in rows:
        known = prose.get(key(row.name), {head[-1]: row.draft}) | row.facts | {head[0]: row.name}
        lines.append("".join(f"| {known.get(column, '')} " for column in head).replace("|  ", "| ") + "|")
    return "\n".join(lines) + "\n"


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def key(cell: str) -> str:
    """Return the name that a row begins with."""
    return (re.findall(r"`([^`]+)`", cell) or [cell])[0]


def pages() -> Iterator[Path]:
    """Yield the pages that may have something generated in them."""
    yield DOCS.parent / "README.md"
    yield from (page for page in sorted(DOCS.rglob("*.md")) if "_build" not in page.parts)


def main() -> None:
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.postgresql"}},
        INSTALLED_APPS=["django.contrib.contenttypes", "django_pgqueue", "django_pgqueue.contrib.cutover"],
        USE_TZ=True,
    )
    django.setup()
    for page in pages():
        before = page.read_text()
        after = rewritten(before)
        if after != before:
            page.write_text(after)
            print(page.relative_to(DOCS.parent), file=sys.stderr)  # noqa: T201 - a command


if __name__ == "__main__":
    main()
