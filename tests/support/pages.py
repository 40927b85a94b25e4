"""The pages of the documentation, for tests that look at all of them."""

import functools
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
        if (ROOT / name).exists()
    ),
    *sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.relative_to(DOCS).parts),
]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


each_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@functools.cache
def tokens(page: Path, *rules: str) -> list[Token]:
    """Return what Markdown, with these rules beside CommonMark's, makes of a page: each is parsed for many tests."""
    return MarkdownIt().enable([*rules]).parse(page.read_text())


def blocks(page: Path, *languages: str) -> list[str]:
    """Return the blocks of code on a page that are in one of these languages."""
    return [token.content for token in tokens(page) if token.info in languages]


def codes(page: Path) -> list[str]:
    """Return what stands as code in the lines of a page."""
    inlines = [token for token in tokens(page, "table") if token.type == "inline"]
    return [child.content for token in inlines for child in token.children or () if child.type == "code_inline"]
