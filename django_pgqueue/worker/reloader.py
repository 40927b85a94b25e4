"""Restart a worker command when its code has changed; for development.

As with Django's runserver, the worker watches the files, since it knows its modules, and ends with exit code 3
when one has changed; the reloader, its parent, starts it again. The worker has a session of its own, so that Ctrl-C in
a terminal reaches it once: from the reloader.
"""

import contextlib
import json
import logging
import os
import site
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, ModuleType

from django.utils.autoreload import StatReloader, autoreload_started, iter_all_python_module_files

from django_pgqueue.worker.group import SupervisorGroup
from django_pgqueue.worker.processes import blocked
from django_pgqueue.worker.supervisor import QUIET_SIGNAL, RESUME_SIGNAL, Supervisor, stop_signals

logger = logging.getLogger("django_pgqueue.worker")

STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
INSTALLED = {"site-packages", "dist-packages", Path(site.getusersitepackages()).name}

CHANGED = 3  # exit code of a worker that is to start again; Django's

LOOK_SECONDS = StatReloader.SLEEP_TIME  # between looks at the files

SETTLE_SECONDS = 0.2
"""Minimum time without a change before the worker stops: editors and git write one file after the other."""

PATIENCE_SECONDS = 3.0
"""Maximum time for running jobs to go on in code that has changed. Then they go back, and run in the new code."""


class Sources(StatReloader):
    """Files that this process is made of: its modules, and files that it may import or read later.

    That is every Python file in packages of the project, and what receivers of Django's ``autoreload_started`` add:
    templates, translations, the project's own.

    Args:
        before: known files, with their times before this process could read them; others count from now on.
    """

    def __init__(self, packages: set[Path], before: Mapping[Path, float] = MappingProxyType({})) -> None:
        super().__init__()
        self.extra_files.update(iter_all_python_module_files())
        for folder in packages:
            self.watch_dir(folder, "**/*.py")
        autoreload_started.send_robust(sender=self)
        self.known = {file: before.get(file, changed_at) for file, changed_at in self.snapshot().items()}

    def watched_files(self, include_globs: bool = True) -> Iterator[Path]:  # noqa: ARG002, FBT001, FBT002 - Django's
        """Leave out modules that were imported meanwhile: they are not new."""
        yield from self.extra_files
        for folder, patterns in self.directory_globs.items():
            for pattern in patterns:
                yield from folder.glob(pattern)

    def snapshot(self) -> dict[Path, float]:
        while True:
            try:
                return dict(self.snapshot_files())
            except (FileNotFoundError, NotADirectoryError):  # a folder went while it was read
                continue

    def wait_for_change(self, is_over: Callable[[], bool] = lambda: False) -> list[Path]:
        """Return the files that are new, gone or changed, once that has settled; none if ``is_over()`` comes first."""
        latest = self.known
        while not is_over():
            before, latest = latest, self.snapshot()
            if self.known != latest == before:
                return sorted({file for file, _ in latest.items() ^ self.known.items()})
            time.sleep(LOOK_SECONDS if latest == self.known else SETTLE_SECONDS)
        return []


def project_packages(*, with_new: bool = False) -> set[Path]:
    """Return the folders of all imported packages under development: those that were not installed.

    Args:
        with_new: also of their sibling folders, which may be apps that are newer than this process.
    """
    roots = [module for name, module in sys.modules.items() if "." not in name and isinstance(module, ModuleType)]
    folders = {Path(folder) for module in roots for folder in vars(module).get("__path__") or ()}
    found = {
        folder for folder in folders if not INSTALLED & {*folder.parts} and not folder.is_relative_to(STANDARD_LIBRARY)
    }
    return found | {file.parent for folder in found for file in folder.parent.glob("*/__init__.py") if with_new}


class Reloader:
    """Runs a worker command, one process after the other.

    Until a file has changed the first time it is as if the worker had been started directly: how it ends is how this
    ends. Later a worker that ends with an error may well have code that does not work yet: the next change starts it.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._worker: subprocess.Popen[bytes] | None = None
        self._early_signals: list[int] = []  # came while the worker was being started, and are for it
        self._is_told_to_stop = False

    def run(self) -> int:
        """Work until the worker has ended for good; return its exit code, as a shell would give it."""
        has_reloaded = False
        while True:
            sources = Sources(project_packages(with_new=True))
            code = self._run_worker(sources.known)
            if self._is_told_to_stop and code == CHANGED:
                return 0
            if self._is_told_to_stop or code == 0 or not (has_reloaded or code == CHANGED):
                return code if code >= 0 else 128 - code
            if code != CHANGED:
                logger.error("The worker has ended with exit code %d: it starts again after the next change", code)
                sources.wait_for_change()
            has_reloaded = True

    def _run_worker(self, known: Mapping[Path, float]) -> int:
        """Run one process to its end; SIGTERM and SIGINT are passed on. It reads from stdin which files are known."""
        with (
            tempfile.TemporaryFile("w+") as stdin,
            stop_signals(self._stop_on),
            stop_signals(self._pass_on, (QUIET_SIGNAL, RESUME_SIGNAL)),
        ):
            json.dump({str(file): changed_at for file, changed_at in known.items()}, stdin)
            stdin.seek(0)
            with blocked((QUIET_SIGNAL, RESUME_SIGNAL)):  # in the new Python, until it handles them
                self._worker = subprocess.Popen(  # noqa: S603 - what the user has called
                    [*self._command, f"--reloader={os.getpid()}"], stdin=stdin, start_new_session=True
                )
            while self._early_signals:
                self._worker.send_signal(self._early_signals.pop(0))
            code = _end_of(self._worker)
            self._worker = None
            return code

    def _stop_on(self, number: int) -> None:
        self._is_told_to_stop = True
        self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        if self._worker is None:
            self._early_signals.append(number)
        else:
            self._worker.send_signal(number)


def _end_of(worker: subprocess.Popen[bytes]) -> int:
    """Wait for the end of a process and return its exit code, with a look at signals in between.

    A wait without an end would go on where the system gives a signal to another thread, or gives it right before the
    wait: Python then calls the handler when the wait is over.
    """
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return worker.wait(timeout=LOOK_SECONDS)


def watch(supervisor: Supervisor | SupervisorGroup, *, reloader: int) -> None:
    """Stop the worker when a file has changed since it was started, or when its reloader has ended."""
    sources = Sources(project_packages(), {Path(file): changed_at for file, changed_at in json.load(sys.stdin).items()})
    logger.info("Watching %d files: the worker starts again when one changes", len(sources.known))

    def wait() -> None:
        changed = sources.wait_for_change(lambda: supervisor.is_stopping or os.getppid() != reloader)
        if supervisor.is_stopping:
            return
        if changed:
            others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            logger.info("%s changed: the worker starts again", f"{short(changed[0])}{others}")
            supervisor.stop_once(within=PATIENCE_SECONDS, exit_code=CHANGED)
        else:
            logger.warning("Stopping, as the reloader has ended")
            supervisor.stop_once()

    threading.Thread(target=wait, name="pgqueue-reload", daemon=True).start()


def short(file: Path) -> str:
    """Return the path as the user would type it."""
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)
