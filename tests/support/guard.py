"""Compare after each test module what tests may not leave behind, and name the test that did.

Facts are flat: (kind, name) and a value. After each test all are read, and what differs from the baseline is kept. At a
module's end, with its fixtures gone, what still differs was left by the first test from whose end on it stood so.
What fixtures of the session set up belongs to the baseline; so does a leftover, once it has been told.
"""

import datetime as dt
import gc
import itertools
import multiprocessing.resource_tracker
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.logging import caplog_records_key
from asgiref.sync import SyncToAsync

from tests.support import facts as facts_of
from tests.support import prestarted
from tests.support.facts import Facts
from tests.support.waiting import PATIENCE_SECONDS

Key = tuple[str, str]
Change = tuple[str | None, str | None]
Changes = dict[Key, Change]

LONGEST_VALUE = 300
FEWEST_LOOKS = 10
"""Minimum number of looks for what ends by itself, even if the first has taken all the time."""

OF_A_DAY = re.compile(r"pgqueue_succeeded_jobs_\d{8}")

PASSING = {"session", "listener", "open transaction", "advisory lock", "process", "thread", "temporary file", "file"}
"""Kinds that may end by themselves a moment later. It is no leftover that one of the baseline is gone."""

REMEDIES = {
    "rows": "delete them, or let the test use transactional_db",
    "session": "close the connection in the thread that has opened it",
    "listener": "close the connection in the thread that has opened it",
    "open transaction": "roll it back",
    "process": "end it, and wait for its end",
    "thread": "let it end, and join it",
    "environment": "use monkeypatch.setenv",
    "setting": "use the fixture settings",
    "task": "use the fixture registry_of",
    "alias of a task": "use the fixture registry_of",
    "receiver": "disconnect it",
    "LISTEN": "UNLISTEN, or close the connection",
    "session setting": "RESET it, or use SET LOCAL",
    "folder": "use monkeypatch.chdir",
    "sys.path": "use monkeypatch.syspath_prepend",
    "file": "write to tmp_path",
    "temporary file": "remove it",
    "role": "drop it",
    "database": "drop it",
    "line of postgresql.auto.conf": "ALTER SYSTEM RESET, in a fixture",
    "language": "use translation.override",
    "timezone": "use timezone.override",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A leftover.

    Attributes:
        test: the node id of the test that has left it.
        change: the value before and now; None: it was not there, or is gone.
    """

    test: str
    key: Key
    change: Change

    def __str__(self) -> str:
        kind, name = self.key
        before, now = shown(*self.change)
        remedy = REMEDIES.get(kind, "restore what was there before, in a fixture")
        if self.change[0] is None:
            return f"{self.test}\n    left {kind} {name}{f' = {now}' if now else ''}: {remedy}"
        if self.change[1] is None:
            return f"{self.test}\n    removed {kind} {name}{f', which was {before}' if before else ''}: {remedy}"
        return f"{self.test}\n    changed {kind} {name} from {before} to {now}: {remedy}"


def shown(*values: str | None) -> list[str]:
    """Shorten long values to what follows from a little before the first letter in which they differ."""
    texts = [value or "" for value in values]
    start = max(0, len(os.path.commonprefix(texts)) - LONGEST_VALUE // 4)  # noqa: RUF071 - by letters is meant
    end = start + LONGEST_VALUE
    return [f"{'…' if start else ''}{text[start:end]}{'…' if text[end:] else ''}" for text in texts]


def differences(before: Facts, now: Facts) -> Changes:
    """Return what has changed."""
    if before == now:  # much sooner known than how they differ
        return {}
    changed = dict(now.items() - before.items())
    new = {key: (before.get(key), value) for key, value in changed.items()}
    gone = {key: (before[key], None) for key in before.keys() - now.keys() if key[0] not in PASSING}
    return new | gone


def without_the_calendar(changes: Changes, begun: dt.date, today: dt.date) -> Changes:
    """Return the changes but those of partitions of days, where a day has begun: workers make one, and drop another."""
    if begun == today:
        return changes
    return {key: change for key, change in changes.items() if not OF_A_DAY.search(key[1])}


def findings(history: Iterable[tuple[str, Changes]], left: Changes) -> list[Finding]:
    """Name for each change that is left the first test from whose end on it stood until the end of the module."""
    tests = list(history)
    found = [Finding(test=first_of(tests, key, change), key=key, change=change) for key, change in left.items()]
    order = [test for test, _ in tests]
    return sorted(found, key=lambda one: (order.index(one.test), one.key))


def first_of(tests: list[tuple[str, Changes]], key: Key, change: Change) -> str:
    """Return the first of the last tests in a row that have this change; else the last one, or its module."""
    row = list(itertools.takewhile(lambda one: one[1].get(key) == change, reversed(tests)))
    return (row or tests)[-1][0]


def without_repairs(left: Changes, found: Changes) -> Changes:
    """Return the changes but those that undo what was found before."""
    return {key: change for key, change in left.items() if key not in found or found[key][0] != change[1]}


def today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()


def told(found: list[Finding]) -> str:
    return "\n".join(["Left behind by tests of this module:", *map(str, found)])


def after(facts: Facts, changes: Changes) -> Facts:
    """Return the facts with the changes."""
    kept = {key: value for key, value in facts.items() if key not in changes}
    return kept | {key: now for key, (_, now) in changes.items() if now is not None}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the guard: on with GUARD=1 in the environment too."""
    is_on = os.environ.get("GUARD", "0") not in {"", "0", "no", "false"}
    parser.addoption("--guard", action="store_true", default=is_on, help="Fail tests that leave anything behind.")
    wait = "Seconds that --guard waits for what ends by itself."
    parser.addoption("--guard-patience", type=float, default=PATIENCE_SECONDS, help=wait)


def set_up(config: pytest.Config) -> None:
    """Set the guard, where that is asked for."""
    if config.getoption("guard"):
        config.pluginmanager.register(Guard(config, config.getoption("guard_patience")), "guard")


def forget(item: pytest.Item) -> None:
    """Drop what pytest keeps of a test until its teardown has ended: log records, written already, and fixture values.

    The traceback of an exception in one of them refers to all that its frames held, as to the executor of a thread.
    """
    for records in item.stash.get(caplog_records_key, {}).values():
        records.clear()
    getattr(item, "funcargs", {}).clear()


class Guard:
    """The plugin. It begins with the first test, in the process that runs it.

    Args:
        patience: seconds for what ends by itself.
    """

    def __init__(self, config: pytest.Config, patience: float) -> None:
        self._config = config
        self._patience = patience
        self._baseline: Facts | None = None
        self._history: list[tuple[str, Changes]] = []
        self._found: Changes = {}
        self._folder: Path | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        if self._baseline is None:
            self._begin()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Add to the baseline what a fixture of the session sets up."""
        if fixturedef.scope != "session" or self._baseline is None:
            return (yield)
        before = self._read()
        try:
            return (yield)
        finally:
            self._baseline = after(self._baseline, differences(before, self._read()))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
        """Look behind each test; behind the last one before the fixtures of the session are gone."""
        error = None
        try:
            if nextitem is None:
                item.session._setupstate.teardown_exact(item.session)
            else:
                yield
        except BaseException as raised:
            error = raised
        text = self._text_after(item, nextitem)
        if nextitem is None:
            yield
        if error is not None:
            if text:
                error.add_note(text)
            raise error
        if text:
            pytest.fail(text, pytrace=False)

    def pytest_unconfigure(self) -> None:
        if self._folder is not None:
            os.environ["TMPDIR"] = tempfile.tempdir = str(self._folder.parent)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _begin(self) -> None:
        """Give this process and those that it starts a mark, and a folder for temporary files that others may enter."""
        from tests.support.database import Databases

        self._config._tmp_path_factory.getbasetemp()  # where it is without this
        multiprocessing.resource_tracker.ensure_running()  # for as long as this process
        SyncToAsync.single_thread_executor.submit(int).result()  # the same
        os.environ[facts_of.MARK] = mark = secrets.token_hex(8)
        self._folder = Path(tempfile.mkdtemp(prefix="g-"))
        self._folder.chmod(0o711)
        (self._folder / f"runtime-{os.getuid()}").mkdir(mode=0o700)  # where there is no XDG_RUNTIME_DIR
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(self._folder.parent))  # of those that tests start
        os.environ["TMPDIR"] = tempfile.tempdir = str(self._folder)
        prestarted.begin()  # for as long as this process too
        self._databases, self._files, self._processes = Databases(), facts_of.Files(), facts_of.Processes(mark)
        self._baseline, self._day = self._read(), today()

    def _read(self) -> Facts:
        from pytest_django.plugin import blocking_manager_key

        with self._config.stash[blocking_manager_key].unblock():
            databases = self._databases.read()
        here = facts_of.of_process() | facts_of.of_django() | facts_of.of_threads()
        return databases | here | self._processes.read() | self._files.read()

    def _text_after(self, item: pytest.Item, nextitem: pytest.Item | None) -> str:
        """Remember what has changed until this test; return what is left at the end of a module."""
        self._history.append((item.nodeid, self._changes()))
        if nextitem is not None and nextitem.path == item.path:
            return ""
        forget(item)
        left = self._settled()
        found = findings(self._history, without_repairs(left, self._found))
        self._found |= {one.key: one.change for one in found}
        self._history.clear()
        return told(found) if found else ""

    def _changes(self) -> Changes:
        return without_the_calendar(differences(self._baseline, self._read()), self._day, today())

    def _settled(self) -> Changes:
        """Return what is left once all has ended that ends by itself; it belongs to the baseline from now on."""
        self._files.forget()
        deadline = time.monotonic() + self._patience
        left, looks = self._changes(), 1
        while any(kind in PASSING for kind, _ in left) and (looks < FEWEST_LOOKS or time.monotonic() < deadline):
            gc.collect()
            time.sleep(0.05)
            left, looks = self._changes(), looks + 1
        self._baseline = after(self._baseline, left)
        return left
