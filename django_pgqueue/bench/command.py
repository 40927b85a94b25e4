"""The worker command that is measured: started, watched, stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from django.conf import settings
from django.db import connections

from django_pgqueue.bench import worker
from django_pgqueue.bench.load import QUEUE, BenchFailed, Load
from django_pgqueue.bench.tasks import BOARD

LAST_LINES = 20
PATIENCE_SECONDS = 10.0


class WorkerCommand:
    """``pgqueue_worker`` on the bench's queue, apart from the terminal; it ends with this process, however that ends.

    Args:
        board: the board's file.
        log: where to write what the command says.
    """

    def __init__(self, load: Load, *, board: Path, log: Path) -> None:
        self._log = log
        self._shutdown_timeout_seconds = 1.0 + load.sleep_ms[1] / 1000
        environment = {
            "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            BOARD: str(board),
        }
        with log.open("wb") as file:
            self._process = subprocess.Popen(  # noqa: S603 - nothing here comes from outside
                [sys.executable, "-m", worker.__name__],
                env=os.environ | environment,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._brief(load)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raise BenchFailed if the command has ended."""
        code = self._process.poll()
        if code is not None:
            raise BenchFailed(f"The worker ended with exit code {code}. Its last lines:\n{self.last_lines()}")

    def last_lines(self) -> str:
        """Return the end of what the command has said."""
        lines = self._log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join(lines) or "(none)"

    def stop(self) -> None:
        """Stop it gracefully; kill it if that takes too long."""
        self._process.terminate()
        try:
            self._process.wait(self._shutdown_timeout_seconds + PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()

    def _brief(self, load: Load) -> None:
        """Tell it what to do. Its stdin stays open: when that ends, the bench is gone, and so it ends too."""
        options = {
            "queues": QUEUE,
            "processes": load.processes,
            "concurrency": load.concurrency,
            "shutdown_timeout": self._shutdown_timeout_seconds,
            "name": QUEUE,
            "verbosity": 0,
        }
        databases = {alias: connections[alias].settings_dict["NAME"] for alias in connections}
        if self._process.stdin:
            self._process.stdin.write(json.dumps({"options": options, "databases": databases}).encode() + b"\n")
            self._process.stdin.flush()
