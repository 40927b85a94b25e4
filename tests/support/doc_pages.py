"""Sections and tables of the pages of the documentation."""

import re

from tests.support.pages import DOCS


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def reference(name: str) -> str:
    return (DOCS / "reference" / f"{name}.md").read_text()


def section(text: str, heading: str) -> str:
    """Return what stands below a heading, up to the next one of its rank or a higher one; without code."""
    _, found, rest = without_blocks(f"\n{text}").partition(f"\n{heading}\n")
    assert found, f"no heading {heading!r}"
    return re.split(rf"^#{{1,{heading.count('#')}}} ", rest, flags=re.MULTILINE)[0]


def table(text: str) -> list[list[str]]:
    """Return the rows of the tables in a text, without their heads."""
    rows, is_body = [], False
    for line in text.splitlines():
        if not line.startswith("|"):
            is_body = False
        elif set(line) <= set("|- "):
            is_body = True
        elif is_body:
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def first_names(text: str) -> list[str]:
    """Return the names in the first column of the tables in a text."""
    return [name for row in table(text) for name in names(row[0])]
