"""The tutorial, typed from its first line to its last, outside of this repository."""

import contextlib
import os
import re
import signal
import socket
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.conftest import CHROMIUM, PATIENCE
from tests.browser.thread import Elsewhere
from tests.support.ports import free_port
from tests.support.waiting import eventually
from tests.support.wheel import OF_THE_TESTS, ROOT
from tests.tutorial import page
from tests.tutorial.edits import edit
from tests.tutorial.terminal import PASSWORD, Terminal
from tests.tutorial.visitor import ByForms, InChromium, Visitor

PAGE = ROOT / "docs" / "tutorial" / "first-job.md"
PAGES_PORT = ":8000/"
SERVES = "Quit the server with"
"""What Django's server says at each of its starts."""

NORMAL = [
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([,.]\d+)?(\+00:00)?", "<time>"),
    (r"\[\d{2,}\]", "[<pid>]"),
    (r"\b\d+(\.\d+)? m?s\b", "<duration>"),
    (r"\b\d+ files", "<many> files"),
    (r"\bpg\d\d\b", "pg<version>"),
    (r"\b\d+\.\d+\.\d+\b", "<version>"),
]
"""What differs from one machine, or from one run, to the next."""


class Reader:
    """Does what the page says, and compares what happens with what the page says of that."""

    def __init__(self, folder: Path, environment: dict[str, str], visitor: Visitor) -> None:
        self._folder = folder
        self._environment = environment
        self._visitor = visitor
        self._port = f":{free_port()}/"
        self._terminals: dict[str, Terminal] = {}

    def do(self, step: page.Step) -> None:
        match step:
            case page.Typed(terminal, lines):
                for line in lines:
                    self._terminal(terminal).type(line.replace("runserver", f"runserver {self._port.strip(':/')}"))
            case page.Printed(terminal, text):
                printed, shown = self._normal(self._terminals[terminal].read(text.count("\n"))), self._normal(text)
                if "...\n" in shown:
                    assert re.fullmatch(with_gaps(shown), printed), printed
                else:
                    assert printed == shown
            case page.Interrupted(terminal):
                self._terminals[terminal].interrupt()
            case page.Edited(file, code, is_new):
                [project] = (found.parent for found in self._folder.glob("*/manage.py"))
                with self._servers_reloaded() if not is_new else contextlib.nullcontext():
                    edit(project / file, code, is_new=is_new)
            case _:
                self._visit(step)

    def _visit(self, step: page.Step) -> None:
        match step:
            case page.Opened(url):
                eventually(self._answers)
                self._visitor.open(url.replace(PAGES_PORT, self._port))
            case page.LoggedIn(user):
                self._visitor.log_in(user, PASSWORD)
            case page.Clicked(name):
                self._visitor.click(name)
            case page.Pictured(path):
                self._picture(path)

    def close(self) -> str:
        """Leave all terminals; return what stands in them."""
        for terminal in self._terminals.values():
            terminal.close()
        return "\n".join(f"--- {name} terminal\n{terminal.text}" for name, terminal in self._terminals.items())

    def _terminal(self, name: str) -> Terminal:
        if name not in self._terminals:
            self._terminals[name] = Terminal(self._folder, self._environment)
        return self._terminals[name]

    @contextlib.contextmanager
    def _servers_reloaded(self) -> Iterator[None]:
        """Let Django's server start again after an edit before the next click."""
        times = {one: one.text.count(SERVES) for one in self._terminals.values()}
        yield
        for one, before in times.items():
            eventually(lambda one=one, before=before: not before or one.text.count(SERVES) > before)

    def _answers(self) -> bool:
        """Whether Django's server does."""
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", int(self._port.strip(":/")))) == 0

    def _normal(self, text: str) -> str:
        text = text.replace(str(self._folder), "/home/ada").replace(f" on {socket.gethostname()}:", " on laptop:")
        for pattern, word in NORMAL:
            text = re.sub(pattern, word, text)
        return text

    def _picture(self, path: Path) -> None:
        if "PICTURES" in os.environ:
            self._visitor.take(path, home=self._folder)
        assert path.is_file(), f"{path.name} is not there. To take it: PICTURES=1 pytest {__file__}"


def with_gaps(text: str) -> str:
    """Return the expression for a text in which a line of three dots stands for any lines."""
    return re.escape(text).replace(re.escape("...\n"), r"(?:.*\n)*?")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a short name: from a long one PostgreSQL's socket has to move, and other things are printed."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="pgqueue-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()
        for file in Path(folder).glob("ada/*/postgres/*/postmaster.pid"):  # its last user was killed
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(file.read_text().split()[0]), signal.SIGQUIT)


@pytest.fixture
def environment(place) -> dict[str, str]:
    """Variables under which the page's own ``pip install`` finds a checkout, and needs nothing from the network.

    What else it asks for is there already: the packages of the tests' environment, but for this one and pip.
    """
    packages, commands = place / "site-packages", place / "bin"
    packages.mkdir()
    (place / "django-pgqueue").symlink_to(ROOT)
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not re.match(r"(pip|_?_?editable|_?django_pgqueue|pytest_django_pgqueue)\b|.*django_pgqueue", path.name):
            (packages / path.name).symlink_to(path)
    commands.mkdir()
    for name in ("python", "python3"):
        (commands / name).symlink_to(Path(sysconfig.get_paths()["scripts"]) / "python")
    (commands / "django-admin").write_text('#!/bin/sh\nexec python -m django "$@"\n')
    (commands / "django-admin").chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if name not in OF_THE_TESTS | {"VIRTUAL_ENV"}}
    return inherited | {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(packages),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


@pytest.fixture
def visitor() -> Iterator[Visitor]:
    if CHROMIUM is None:
        yield ByForms()
        return
    elsewhere = Elsewhere()
    playwright = elsewhere(sync_playwright().start)
    try:
        options = {"executable_path": CHROMIUM, "args": ["--no-sandbox", "--disable-dev-shm-usage"]}
        yield InChromium(elsewhere, elsewhere(playwright.chromium.launch, timeout=PATIENCE, **options))
    finally:
        elsewhere(playwright.stop)
        elsewhere.end()


@pytest.fixture
def reader(place, environment, visitor) -> Iterator[Reader]:
    home = place / "ada"
    home.mkdir()
    reading = Reader(home, environment, visitor)
    yield reading
    print(reading.close())  # noqa: T201 - pytest shows it where the test has failed


def test_tutorial_ends_with_what_it_promises(reader):
    for step in page.steps_of(PAGE):
        reader.do(step)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```sh\npsql\n```", "cannot use a block of 'sh'"),
        ("```python\nimport this\n```", "no file is named"),
        ("1. Think of something.", "nothing to do in: Think"),
        ("<br>", "cannot use html_block"),
        ("Press Ctrl-C.", "in which terminal"),
    ],
)
def test_page_may_say_nothing_that_the_test_passes_over(tmp_path, text, problem):
    (tmp_path / "page.md").write_text(f"# A page\n\n{text}\n")
    with pytest.raises(AssertionError, match=problem):
        page.steps_of(tmp_path / "page.md")
