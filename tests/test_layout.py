"""The folders of tests mirror those of the package."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.pages import ROOT

PACKAGE, TESTS = ROOT / "django_pgqueue", ROOT / "tests"

SHORT_LINES = 60
"""Longest module that may be tested by way of others alone."""


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if len(path.read_text().splitlines()) > SHORT_LINES]


@pytest.mark.parametrize("module", modules(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_module_has_tests_where_they_are_looked_for(module):
    name = module.parent.name if module.name == "__init__.py" else module.stem
    folder = module.parent.parent if module.name == "__init__.py" else module.parent
    assert (TESTS / folder.relative_to(PACKAGE) / f"test_{name}.py").exists()


def test_no_test_imports_from_another_one():
    found = {
        f"{path.relative_to(TESTS)}: {node.module}"
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and re.search(r"^tests\b.*\.test_\w+$", node.module or "")
    }
    assert not found, "what tests share is in tests/support"
