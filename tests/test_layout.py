"""The folders of tests mirror those of the package."""

import ast
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


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.relative_to(TESTS).as_posix())
def test_no_test_is_imported_from_another_module(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            assert not node.module.rpartition(".")[2].startswith("test_"), f"{node.module}: move it to tests/support"
