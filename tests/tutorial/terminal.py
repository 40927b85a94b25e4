"""A terminal with a shell in it, into which is typed what the page says."""

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.support.waiting import PATIENCE_SECONDS, eventually

PASSWORD = "the good morning of Ada"
LASTING = ("pgqueue_worker", "runserver")
"""Commands that go on until they are ended."""

PROMPT = re.compile(r"(?:\(venv\) )?\x1e(\d+)\x1f$")
QUESTION = re.compile(r"Password(?: \(again\))?: ")
SHELL = ["bash", "--noprofile", "--norc", "--noediting", "-i"]
WITH_ITS_TERMINAL = f"import fcntl, os, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp('bash', {SHELL})"


MAYBE = re.compile(r"^.*has not stopped in time and is ended\n", re.MULTILINE)
"""What is printed only where the worker could not stop in the three seconds that a reloader gives it."""


class Terminal:
    """What it has printed is read once: by the block of the page that shows it, or dropped with the next command."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 1000, 0, 0))
        mode = termios.tcgetattr(theirs)
        mode[1] &= ~termios.OPOST
        mode[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, mode)
        self._shell = subprocess.Popen(
            [sys.executable, "-c", WITH_ITS_TERMINAL],
            cwd=folder,
            env={**environment, "PS1": "\x1e$?\x1f", "PS2": "", "TERM": "dumb", "DJANGO_COLORS": "nocolor"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""
        self._typed_at = self._read_up_to = 0
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._wait_for_the_prompt()

    def type(self, line: str) -> None:
        """Type a command; wait for its end, unless it is one that lasts, and fail unless it succeeded."""
        assert self._is_idle(), f"{line!r} is typed while another command runs:\n{self.text}"
        self._typed_at = self._read_up_to = len(self.text)
        self._write(f"{line}\n")
        if not any(command in line for command in LASTING):
            self._wait_for_the_prompt()

    def interrupt(self) -> None:
        """Press Ctrl-C; wait for the end of the command."""
        self._typed_at = len(self.text)
        self._write("\x03")
        self._wait_for_the_prompt()

    def read(self, lines: int) -> str:
        """Return what was printed since the last time: all of it by a command that has ended, else ``lines``."""
        eventually(lambda: self._is_idle() or self.text.count("\n", self._read_up_to) >= lines)
        unread = self.text[self._read_up_to :]
        if not PROMPT.search(unread):
            unread = "".join(unread.splitlines(keepends=True)[:lines])
        self._read_up_to += len(unread)
        return PROMPT.sub("", unread)

    def close(self) -> None:
        """Hang up, and end whatever of it does not listen."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGHUP)
        self._shell.wait(PATIENCE_SECONDS)
        for pid in filter(self._is_of_this_session, psutil.pids()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._reader.join(PATIENCE_SECONDS)
        os.close(self._ours)

    def _is_of_this_session(self, pid: int) -> bool:
        try:
            return os.getsid(pid) == self._shell.pid
        except (ProcessLookupError, PermissionError):
            return False

    def _is_idle(self) -> bool:
        return PROMPT.search(self.text, self._typed_at) is not None

    def _wait_for_the_prompt(self) -> None:
        answered = 0

        def has_ended() -> bool:
            nonlocal answered
            if len(QUESTION.findall(self.text, self._typed_at)) > answered:
                answered += 1
                self._write(f"{PASSWORD}\n")
            return self._is_idle()

        eventually(has_ended)
        code = PROMPT.search(self.text)[1]
        assert code == "0", f"exit code {code}:\n{self.text}"

    def _write(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the end
            while read := os.read(self._ours, 65536):
                self.text = MAYBE.sub("", self.text + read.decode(errors="replace"))
