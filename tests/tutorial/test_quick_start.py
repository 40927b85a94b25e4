"""The quick starts of the README and of the site, typed as they are written, in a project that Django has just made."""

import os
import subprocess
import sysconfig
import venv
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.pages import DOCS, ROOT, name_of, tokens
from tests.support.wheel import OF_THE_TESTS
from tests.tutorial.edits import KEPT, edit

OF_A_VIEW = """
from types import SimpleNamespace

from django.db import transaction
from shop.tasks import send_receipt

order = SimpleNamespace(pk=18, save=lambda: None)
"""
"""What is there where the code of a view runs."""


class Reader:
    """Does what a page says in a folder, and compares what is printed with what the page says of that."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder, self._variables = folder, variables

    def do(self, language: str, code: str) -> None:
        first, _, rest = code.partition("\n")
        match language, first:
            case "console", _:
                self._type(code)
            case "python", "# settings.py":
                edit(self.folder / "mysite" / "settings.py", rest.replace("# ...", KEPT), is_new=False)
            case "python", "# shop/tasks.py":
                edit(self.folder / "shop" / "tasks.py", rest, is_new=True)
            case "python", _ if code.startswith("TASKS"):
                with (self.folder / "mysite" / "settings.py").open("a") as settings:
                    settings.write(code)
                assert "no issues" in self.run("python manage.py check")
            case "python", "with transaction.atomic():":
                self.run("python manage.py shell --verbosity 0", given=OF_A_VIEW + code + "\n")
                assert self.run("python manage.py pgqueue_worker --drain --verbosity 0") == "Receipt for order 18\n"
            case _:
                raise AssertionError(f"the test cannot use this block of {language!r}:\n{code}")

    def _type(self, code: str) -> None:
        """Type the lines that begin with a dollar and compare the others with what is printed; or type all lines."""
        if not code.startswith("$ "):
            self.run(code)
            return
        for typed in code.removeprefix("$ ").split("\n$ "):
            command, _, wanted = typed.partition("\n")
            printed = self.run(command)
            assert not wanted.strip() or printed.strip() == wanted.strip(), f"{command}\n{printed}"

    def run(self, command: str, *, given: str = "") -> str:
        """Return what a command prints, log lines and errors too; it fails unless the command succeeds."""
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=self.folder,
            env=self._variables,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout


def blocks_below(page: Path, heading: str) -> Iterator[tuple[str, str]]:
    """Yield language and code of the blocks below a heading, up to the next one of its rank."""
    is_below, found = "", tokens(page)
    for token, content in pairwise(found):
        if token.type == "heading_open" and token.tag <= (is_below or "h6"):
            is_below = token.tag if content.content == heading else ""
        elif is_below and token.type == "fence":
            yield token.info, token.content


@pytest.fixture
def reader(tmp_path, libpq) -> Reader:
    """In a project of Django's, with a checkout beside it and a ``pip`` that needs nothing from the network.

    That is the one of the tests' environment: to install another one takes a third of this test's time.
    """
    venv.create(tmp_path / "venv", symlinks=True)
    [site_packages] = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site_packages / "tests.pth").write_text(sysconfig.get_paths()["purelib"])
    pip = tmp_path / "venv" / "bin" / "pip"
    pip.write_text('#!/bin/sh\nexec python -m pip "$@"\n')
    pip.chmod(0o755)
    (tmp_path / "django-pgqueue").symlink_to(ROOT)
    variables = {name: value for name, value in os.environ.items() if name not in OF_THE_TESTS} | {
        "PATH": f"{tmp_path / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(tmp_path / "venv"),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    reader = Reader(tmp_path / "project", variables | libpq)
    reader.folder.mkdir()
    reader.run("python -m django startproject mysite . && python manage.py startapp shop")
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": libpq["PGDATABASE"]}
    edit(reader.folder / "mysite" / "settings.py", f"DATABASES = {{'default': {database!r}}}\n", is_new=False)
    return reader


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "tutorial" / "quick-start.md"], ids=name_of)
def test_quick_start_prints_what_the_page_shows(reader, page):
    found = [*blocks_below(page, "Quick start")]
    assert len(found) >= 5
    for language, code in found:
        reader.do(language, code)
