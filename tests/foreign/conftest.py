import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foreign.environment import Foreign
from tests.support.server import own_database

OLDEST_PYTHON = (3, 12)
"""That of Django 6."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave these tests to ``make foreign``: they need a package index, and minutes."""
    return None if os.environ.get("FOREIGN") else True


def pytest_configure() -> None:
    if os.environ.get("FOREIGN") and sys.version_info < OLDEST_PYTHON:
        raise pytest.UsageError("It needs Python 3.12: make foreign PYTHON=python3.13 DJANGO=6.1 VENV=.venv-313")


@pytest.fixture(scope="module")
def foreign(request, wheel: Path, tmp_path_factory) -> Iterator[Foreign]:
    """The environment that the module names as ``REQUIREMENTS``, with a database of its own."""
    folder = tmp_path_factory.mktemp("foreign")
    with own_database() as server:
        yield Foreign(request.module.REQUIREMENTS, wheel=wheel, folder=folder, server=server)
