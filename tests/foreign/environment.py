"""Environments for packages of others: one for each, which is kept, with the wheel of this package before it."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.waiting import LONG_PATIENCE_SECONDS
from tests.support.wheel import OF_THE_TESTS, ROOT, run

HERE = Path(__file__).parent
KEPT = ROOT / ".foreign"
REQUIREMENTS = HERE / "requirements"
INSIDE = HERE / "inside"
"""Modules that only Python of such an environment imports."""

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]

DOWNLOADS = 8
"""Number of pip processes that download at the same time: one waits for the index more than a second per package."""

SOURCES = ("django", "django-tasks-db")
"""Projects whose tests are in their source archive, and not in their wheel; in the version that tasks_db.txt names."""


class Foreign:
    """An environment with the packages that a file of requirements names, all of them with their versions.

    Args:
        name: of the file.
        wheel: of this package; unpacked into ``folder``.
        folder: for what this run makes.
        server: variables by which libpq finds a database of the test's own.
    """

    def __init__(self, name: str, *, wheel: Path, folder: Path, server: dict[str, str]) -> None:
        requirements = REQUIREMENTS / f"{name}.txt"
        packages = downloaded()
        environment = KEPT / f"{name}-{digest(requirements)}"
        self.python = environment / "bin" / "python"
        with made_once(environment) as wanted:
            if wanted:
                venv.create(environment, symlinks=True)
                offline = ["--no-index", "--find-links", str(packages), "--no-deps", "--no-compile"]
                run([*PIP, "--python", str(self.python), "install", *offline, "-r", str(requirements)], cwd=HERE)
        self.folder = folder
        self._server = server
        unpacked = folder / "django-pgqueue"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
        self.path = [str(folder), str(unpacked), str(INSIDE)]

    def variables(self, **environment: str) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in OF_THE_TESTS}
        return {**inherited, **self._server, "PYTHONPATH": os.pathsep.join(self.path), **environment}

    def run(self, *arguments: str, cwd: Path | None = None, **environment: str) -> str:
        """Run ``python`` with these arguments; return what it printed. It fails as an assertion that shows that."""
        return run([str(self.python), *arguments], cwd=cwd or self.folder, env=self.variables(**environment))

    def start(self, *arguments: str, cwd: Path, log: Path, **environment: str) -> subprocess.Popen[bytes]:
        """Start ``python``, with its output in a file; the caller ends it."""
        with log.open("wb") as file:
            return subprocess.Popen(
                [self.python, *arguments],
                cwd=cwd,
                env=self.variables(**environment),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def begin_suite(self, *labels: str, name: str, settings: str, **environment: str) -> "Suite":
        """Start Django's test command for these labels, with a test database of its own."""
        return Suite(self, labels, name=name, settings=settings, environment=environment)

    def suite(self, *labels: str, name: str, settings: str, **environment: str) -> dict[str, str]:
        """Run tests by Django's test command; return what has become of each."""
        return self.begin_suite(*labels, name=name, settings=settings, **environment).outcomes()


class Suite:
    """Tests of others that are being run, by a command of their own."""

    def __init__(
        self, foreign: Foreign, labels: tuple[str, ...], *, name: str, settings: str, environment: dict
    ) -> None:
        self._log = foreign.folder / f"{name}.log"
        self._written = foreign.folder / f"{name}.json"
        arguments = ["-m", "django", "test", "--noinput", "--settings", settings, "--testrunner", "outcomes.Runner"]
        variables = {"OUTCOMES": str(self._written), "SUITE": name.replace("-", "_"), **environment}
        self._process = foreign.start(*arguments, *labels, cwd=foreign.folder, log=self._log, **variables)

    def outcomes(self) -> dict[str, str]:
        """Wait for the end; return for each test an empty text, or how it ended."""
        try:
            self._process.wait(LONG_PATIENCE_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
        assert self._written.exists(), self._log.read_text(errors="replace")[-5000:]
        outcomes: dict[str, str] = json.loads(self._written.read_text())
        assert outcomes, "no tests were found"
        return outcomes


def downloaded() -> Path:
    """Return the folder with the wheels of all requirements, and the archives of ``SOURCES``; download them once.

    All are listed: nothing is resolved, so nothing comes in another version on another day.
    """
    files = sorted(REQUIREMENTS.glob("*.txt"))
    packages = KEPT / f"packages-{digest(*files, more=repr(SOURCES))}"
    wheels = sorted({line for file in files for line in file.read_text().splitlines()})
    commands = [
        ["wheel", "-w", str(packages), "--no-deps", *wheels[first::DOWNLOADS]]  # two versions of one: to two commands
        for first in range(DOWNLOADS)
    ] + [
        ["download", "-d", str(packages), "--no-deps", "--no-binary", ":all:", f"{project}=={version(project)}"]
        for project in SOURCES
    ]
    with made_once(packages) as wanted:
        if wanted:
            with ThreadPoolExecutor(len(commands)) as pool:
                list(pool.map(lambda command: run([*PIP, *command], cwd=HERE), commands))
    return packages


def source(project: str, *parts: str, into: Path) -> Path:
    """Unpack parts of the source of one of ``SOURCES``; return its folder."""
    [archive] = downloaded().glob(f"{project.replace('-', '_')}-{version(project)}.tar.gz")
    with tarfile.open(archive) as packed:
        top = packed.getnames()[0].partition("/")[0]
        members = [one for one in packed.getmembers() if one.name.startswith(tuple(f"{top}/{part}" for part in parts))]
        packed.extractall(into, members=members, filter="data")
    return into / top


def version(project: str) -> str:
    """Return the version of one of ``SOURCES``."""
    lines = (REQUIREMENTS / "tasks_db.txt").read_text().lower().splitlines()
    return dict(line.split("==") for line in lines)[project]


def digest(*files: Path, more: str = "") -> str:
    contents = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(contents + more.encode() + sys.version.encode()).hexdigest()[:12]


@contextlib.contextmanager
def made_once(folder: Path) -> Iterator[bool]:
    """Give whether the folder is still to be made by the block; then it is empty. Other processes wait meanwhile.

    What an earlier process began and did not complete is removed first.
    """
    folder.parent.mkdir(exist_ok=True)
    complete = folder / "complete"
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the file is closed, by the end of the process if need be
        wanted = not complete.exists()
        if wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        yield wanted
        complete.touch()


def failed(outcomes: dict[str, str]) -> dict[str, str]:
    return {test: how for test, how in outcomes.items() if how and not how.startswith("skipped")}


def check(found: dict[str, str], expected: dict[str, str]) -> None:
    """Compare the tests that have failed with those that may: for each of them its reason.

    Each list is exact: a test that has stopped to fail goes from it.
    """
    others = {test: how for test, how in found.items() if test not in expected}
    assert not others, "\n".join(f"{test}: {how}" for test, how in others.items())
    assert not set(expected) - set(found), f"pass now: {sorted(set(expected) - set(found))}"
