"""Restart a command when its code has changed; for development.

The worker has a session of its own, so that Ctrl-C in a terminal reaches it once: from the reloader. The worker sends
the list of its files through a pipe, as the reloader, with the code of its own start, cannot know them; the end of the
pipe tells the worker that the reloader is gone.
"""

import contextlib
import json
import logging
import math
import os
import signal
import site
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType

from django.utils.autoreload import StatReloader, autoreload_started, iter_all_python_module_files

from django_pgqueue.worker.supervisor import stop_signals

logger = logging.getLogger("django_pgqueue.worker")

STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
INSTALLED = {"site-packages", "dist-packages", Path(site.getusersitepackages()).name}

LOOK_SECONDS = 1.0  # between looks at the files; as Django's runserver

SETTLE_SECONDS = 0.2
"""Minimum time without a change before the worker starts again: editors and git write one file after the other."""

PATIENCE_SECONDS = 3.0
"""Maximum time for running jobs to go on in code that has changed. Then they go back, and run in the new code."""


class Sources(StatReloader):
    """Files and folders to look at, as Django's receivers of ``autoreload_started`` know them; it only ever grows."""

    def snapshot(self) -> dict[Path, float]:
        while True:
            try:
                return dict(self.snapshot_files())
            except (FileNotFoundError, NotADirectoryError):  # a folder went while it was read
                continue

    def told(self) -> bytes:
        """Return what another process needs to look at the same, and to see what changes from here on."""
        files = dict.fromkeys({*self.extra_files, *iter_all_python_module_files()}) | self.snapshot()
        folders = {str(folder): [*globs] for folder, globs in self.directory_globs.items()}
        return json.dumps({"files": {str(file): at for file, at in files.items()}, "folders": folders}).encode()

    def learn(self, told: bytes) -> dict[Path, float]:
        news = json.loads(told)
        files = {Path(file): changed_at for file, changed_at in news["files"].items()}
        self.extra_files.update(files)
        for folder, globs in news["folders"].items():
            self.directory_globs[Path(folder)].update(globs)
        return {file: changed_at for file, changed_at in files.items() if changed_at is not None}


def sources() -> Sources:
    """Return what this process is made of: its modules, and whatever it may import or read later.

    That is every Python file in packages of the project, and what receivers of Django's ``autoreload_started`` add:
    templates, translations, the project's own.
    """
    found = Sources()
    for folder in packages():
        found.watch_dir(folder, "**/*.py")
    autoreload_started.send_robust(sender=found)
    return found


def packages() -> set[Path]:
    """Return the folders of all imported packages under development: those that were not installed."""
    roots = [module for name, module in sys.modules.items() if "." not in name and isinstance(module, ModuleType)]
    folders = {Path(folder) for module in roots for folder in vars(module).get("__path__") or ()}
    return {
        folder for folder in folders if not INSTALLED & {*folder.parts} and not folder.is_relative_to(STANDARD_LIBRARY)
    }


class Reloader:
    """Runs a worker command, one process after the other.

    Until a file has changed the first time it is as if the worker had been started directly: how it ends is how this
    ends. Later a worker that ends with an error may well have code that does not work yet: the next change starts it.

    Args:
        command: starts the worker.
        shutdown_timeout_seconds: how long its running jobs may go on when it stops; less where the code has
            changed.
    """

    def __init__(self, command: Sequence[str], *, shutdown_timeout_seconds: float) -> None:
        self._command = command
        self._patience = min(shutdown_timeout_seconds, PATIENCE_SECONDS)
        self._sources = sources()
        self._known = self._latest = self._sources.snapshot()  # when the worker started; when looked at last
        self._has_reloaded = False
        self._signals_seen: list[int] = []
        self._ring_read, self._ring = os.pipe()

    def run(self) -> int:
        """Work until the worker has ended for good; return its exit code, as a shell would give it.

        SIGTERM and SIGINT are passed on.
        """
        logger.info("Watching %d files: the worker starts again when one changes", len(self._known))
        with stop_signals(self._note):
            self._worker = ReloadedWorker(self._command)
            while (code := self._turn()) is None:
                pass
        return code if code >= 0 else 128 - code

    def _note(self, number: int) -> None:
        self._signals_seen.append(number)
        os.write(self._ring, b"!")

    def _turn(self) -> int | None:
        self._wait()
        changed = self._changed()
        code = self._worker.process.poll()
        if self._signals_seen:
            self._worker.pass_on(self._signals_seen)
            return code
        if code is not None and (changed or self._worker.is_stopping):
            self._start_again()
        elif code is not None:
            return self._judge(code)
        elif changed or self._worker.is_stopping:
            self._press(changed)
        return None

    def _wait(self) -> None:
        is_impatient = self._worker.is_stopping or self._latest != self._known
        tether = [] if self._worker.tether.closed else [self._worker.tether]
        for ready in wait([self._ring_read, *tether], timeout=SETTLE_SECONDS if is_impatient else LOOK_SECONDS):
            if ready == self._ring_read:
                os.read(self._ring_read, 1024)
            elif told := self._worker.hear():
                self._learn(told)

    def _learn(self, told: bytes) -> None:
        """Look at what the worker is made of too, as that was when it said so: it may have changed by now."""
        seen = self._sources.snapshot()
        added = {file: changed_at for file, changed_at in self._sources.learn(told).items() if file not in seen}
        self._known = self._known | added
        self._latest = self._latest | added

    def _changed(self) -> list[Path]:
        """Return the files that are new, gone or changed since the start of the worker; none until that has settled."""
        before, self._latest = self._latest, self._sources.snapshot()
        if self._latest != before:
            return []
        return sorted({file for file, _ in self._latest.items() ^ self._known.items()})

    def _press(self, changed: list[Path]) -> None:
        if not self._worker.is_stopping:
            others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            logger.info("%s changed: the worker starts again", f"{short(changed[0])}{others}")
        self._worker.press(self._patience)

    def _start_again(self) -> None:
        self._has_reloaded = True
        self._known = self._latest
        self._worker = ReloadedWorker(self._command)

    def _judge(self, code: int) -> int | None:
        if code == 0 or not self._has_reloaded:
            return code
        if not self._worker.is_mourned:
            self._worker.is_mourned = True
            logger.error("The worker has ended with exit code %d: it starts again after the next change", code)
        return None


class ReloadedWorker:
    """One worker command that was started, to its end."""

    def __init__(self, command: Sequence[str]) -> None:
        self.tether, theirs = Pipe()
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - what the user has called
                [*command, f"--tether={theirs.fileno()}"],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._signals_sent = 0
        self._stop_until = math.inf
        self.is_mourned = False

    @property
    def is_stopping(self) -> bool:
        return self._signals_sent > 0

    def press(self, patience: float) -> None:
        """Have it stop; after ``patience`` seconds, without its running jobs. To be repeated until it has ended."""
        if not self.is_stopping:
            self._stop_until = time.monotonic() + patience
        self.pass_on([signal.SIGTERM] * (2 if time.monotonic() >= self._stop_until else 1))

    def pass_on(self, signals: Sequence[int]) -> None:
        """Send the signals that it has not had; those that it had for another reason count."""
        for number in signals[self._signals_sent :]:
            self.process.send_signal(number)
            self._signals_sent += 1

    def hear(self) -> bytes | None:
        try:
            return self.tether.recv_bytes()
        except (EOFError, OSError):
            self.tether.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(SETTLE_SECONDS)  # its files are closed a moment before
            return None


def short(file: Path) -> str:
    """Return the path as the user would type it."""
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)


# The worker's end of the pipe


def hold(descriptor: int, *, when_gone: Callable[[], None]) -> None:
    """Tell the reloader what this process is made of; call ``when_gone``, on another thread, if it has ended."""
    os.set_inheritable(descriptor, False)
    tether = Connection(descriptor)
    threading.Thread(
        target=_hold, args=(tether, sources().told(), when_gone), name="pgqueue-tether", daemon=True
    ).start()


def _hold(tether: Connection, told: bytes, when_gone: Callable[[], None]) -> None:
    with contextlib.suppress(EOFError, OSError):
        tether.send_bytes(told)
        tether.recv_bytes()  # it never says anything
    logger.warning("Stopping, as the reloader has ended")
    when_gone()
