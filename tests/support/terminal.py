"""A pseudo-terminal with a command in it, as a user has it."""

import contextlib
import fcntl
import os
import struct
import subprocess
import termios
import threading
from collections.abc import Sequence

from django_pgqueue.management.commands.pgqueue_stats import CLEAR
from tests.support.waiting import PATIENCE_SECONDS

CTRL_C = b"\x03"
SIZES = ("COLUMNS", "LINES")
"""Outdo a terminal's own size; a process with GNU readline, as pytest, hands them to what it starts."""


class Terminal:
    """Its own session, so that what is typed arrives as at a real one: Ctrl-C as SIGINT."""

    def __init__(self, words: Sequence[str], *, environment: dict[str, str], wide: int = 120, high: int = 30) -> None:
        self.master, self._slave = os.openpty()
        self.resize(wide, high)
        self._written = b""
        inherited = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            words,
            env={name: value for name, value in inherited.items() if name not in SIZES} | environment,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one system call
        )
        threading.Thread(target=self._read, name="terminal", daemon=True).start()

    def resize(self, wide: int, high: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", high, wide, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def text(self) -> str:
        return self._written.decode(errors="replace")

    def pictures(self) -> list[list[str]]:
        """Return what stood there, as lines: each time it was cleared another picture begins."""
        return [picture.removesuffix("\r\n").split("\r\n") for picture in self.text().split(CLEAR)[1:]]

    def picture(self) -> str:
        """Return what stands there now."""
        return "\n".join(self.pictures()[-1]) if self.pictures() else ""

    def wait(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._slave)  # the reader's end comes with it

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self.master, 65536):
                self._written += data
        os.close(self.master)
