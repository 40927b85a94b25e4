"""A pseudo-terminal with a command in it, as a user has it."""

import contextlib
import fcntl
import os
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Sequence
from typing import Any

from django_pgqueue.cli.stats_watch import BEGIN, END, ENTER, LEAVE
from tests.support.waiting import PATIENCE_SECONDS

CTRL_C, CTRL_Z = b"\x03", b"\x1a"
ERASE = r"\x1b\[[JK]"


class Terminal:
    """Its own session, so that what is typed arrives as at a real one: Ctrl-C as SIGINT.

    Attributes:
        before: the modes of the terminal before the command began.
    """

    def __init__(self, words: Sequence[str], *, environment: dict[str, str], wide: int = 120, high: int = 30) -> None:
        self.master, self._slave = os.openpty()
        self.resize(wide, high)
        self.before = self.modes()
        self._written = b""
        self.process = subprocess.Popen(
            words,
            env={**os.environ, "TERM": "xterm-256color", **environment},
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

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def text(self) -> str:
        return self._written.decode(errors="replace")

    def pictures(self) -> list[list[str]]:
        """Return what stood on the other screen, one after the other, as lines."""
        found = re.findall(f"{re.escape(BEGIN)}(.*?){re.escape(END)}", self.text(), flags=re.DOTALL)
        return [re.sub(ERASE, "", picture).split("\r\n") for picture in found]

    def picture(self) -> str:
        """Return what stands there now."""
        return "\n".join(self.pictures()[-1]) if self.pictures() else ""

    def is_as_before(self) -> bool:
        """Whether the command has given it back: screen, cursor, wrapping and modes."""
        return self.text().count(ENTER) == self.text().count(LEAVE) > 0 and self.modes() == self.before

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
