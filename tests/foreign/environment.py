"""Where packages of others run: an environment for each, which is kept, with the wheel of this package before it."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

from tests.support.waiting import LONG_PATIENCE_SECONDS
from tests.wheel import OF_THE_TESTS, ROOT, run

HERE = Path(__file__).parent
KEPT = ROOT / ".foreign"
INSIDE = HERE / "inside"
"""Modules that only Python of such an environment imports."""

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]


class Foreign:
    """An environment with the packages that a file of requirements names, all of them with their versions.

    Args:
        name: of the file.
        wheel: of this package; unpacked into ``folder``.
        folder: for what this run makes.
        server: variables by which libpq finds a database of the test's own.
    """

    def __init__(self, name: str, *, wheel: Path, folder: Path, server: dict[str, str]) -> None:
        requirements = HERE / "requirements" / f"{name}.txt"
        digest = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
        self._folder = KEPT / f"{name}-{digest}"
        self.python = self._folder / "bin" / "python"
        if not (self._folder / "complete").exists():
            venv.create(self._folder, clear=True, symlinks=True)
            # All are listed: nothing is resolved, so nothing comes in another version on another day.
            run([*PIP, "--python", str(self.python), "install", "--no-deps", "-r", str(requirements)], cwd=HERE)
            (self._folder / "complete").touch()
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
        """Start ``python``, with its output in a file; whoever starts it ends it."""
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


def source(project: str, version: str, *parts: str, into: Path) -> Path:
    """Unpack parts of the source of a project, as PyPI has it; return its folder. The archive is kept."""
    archives = KEPT / "sources" / f"{project}-{version}"
    if not list(archives.glob("*.tar.gz")):
        wanted = ["--no-deps", "--no-binary", ":all:", f"{project}=={version}"]
        run([*PIP, "download", "-d", str(archives), *wanted], cwd=HERE)
    [archive] = archives.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        top = packed.getnames()[0].partition("/")[0]
        members = [one for one in packed.getmembers() if one.name.startswith(tuple(f"{top}/{part}" for part in parts))]
        packed.extractall(into, members=members, filter="data")
    return into / top


def failed(outcomes: dict[str, str]) -> dict[str, str]:
    return {test: how for test, how in outcomes.items() if how and not how.startswith("skipped")}


def check(found: dict[str, str], expected: dict[str, str]) -> None:
    """Compare the tests that have failed with those that may: for each of them its reason.

    Each list is exact: a test that has stopped to fail goes from it.
    """
    others = {test: how for test, how in found.items() if test not in expected}
    assert not others, "\n".join(f"{test}: {how}" for test, how in others.items())
    assert not set(expected) - set(found), f"pass now: {sorted(set(expected) - set(found))}"
