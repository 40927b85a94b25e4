"""The terminal while it is ours: its other screen, without cursor and echo; and all that may happen meanwhile.

Source: https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
"""

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

from django_pgqueue.staff.glance.view import Room

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # the other screen, no cursor, no wrapping of what is too wide after all
LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
BEGIN: Final = "\x1b[?2026h\x1b[H"  # show nothing before END; from the top
END: Final = "\x1b[?2026l"
ERASE_LINE: Final = "\x1b[K"  # from the cursor on, as the next one
ERASE_REST: Final = "\x1b[J"

CHARACTERS: Final = 6  # where in the modes of a terminal they stand
STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALS: Final = (*STOPPING, signal.SIGTSTP, signal.SIGWINCH)
QUITTING: Final = set(b"qQ\x03")


class Screen:
    """Used by the main thread, in a ``with``; the terminal is as before afterwards, whatever has happened inside.

    Attributes:
        ended_by: the signal that asked for the end, if one did.
    """

    def __init__(self) -> None:
        self.ended_by: int | None = None
        self._out = sys.stdout
        self._keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._modes: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._reading, self._writing = -1, -1

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        os.set_blocking(self._reading, False)
        self._handlers = {number: signal.signal(number, _nothing) for number in SIGNALS}
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._take()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError, termios.error):  # the terminal may be gone, and was the reason to end
            self._give_back()
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def room(self) -> Room:
        """Return how large it is now."""
        try:
            wide, high = os.get_terminal_size(self._out.fileno())
        except OSError:
            wide, high = 0, 0
        return Room(wide or 80, high or 24)

    def show(self, lines: Sequence[str]) -> None:
        """Put lines over what is there, at once; there are no more than it has room for.

        Each place is erased before it is written: after a line as wide as the terminal the cursor stands on its last
        character, which would go too.
        """
        *upper, last = lines
        text = "".join(f"{ERASE_LINE}{line}\n" for line in upper)
        self._write(f"{BEGIN}{text}{ERASE_REST}{last}{END}")

    def wake(self) -> None:
        """End the wait; may be called by any thread."""
        with contextlib.suppress(OSError):
            os.write(self._writing, b"\0")

    def wait(self, seconds: float) -> bool:
        """Wait until something has happened, or for so long; return whether somebody has seen enough."""
        sources = [self._reading] if self._keys is None else [self._reading, self._keys]
        ready, _, _ = select.select(sources, [], [], seconds)
        if self._keys in ready and self._quits():
            return True
        return any(list(map(self._heard, self._signals()))) if self._reading in ready else False

    def _quits(self) -> bool:
        typed = os.read(self._keys, 64) if self._keys is not None else b""
        if not typed and self._is_gone():
            self._keys = None
        return not QUITTING.isdisjoint(typed)

    def _is_gone(self) -> bool:
        """Whether the terminal is; else what was typed has been thrown away, as Ctrl-C does, before it was read."""
        poller = select.poll()
        poller.register(self._keys or 0, 0)
        return bool(poller.poll(0))

    def _signals(self) -> Iterator[int]:
        with contextlib.suppress(BlockingIOError):
            while numbers := os.read(self._reading, 64):
                yield from numbers

    def _heard(self, number: int) -> bool:
        """Do what a signal wants; return whether that is the end."""
        if number in STOPPING:
            self.ended_by = number
            return True
        if number == signal.SIGTSTP:
            self._sleep()
        return False

    def _sleep(self) -> None:
        """Stop as Ctrl-Z wants, and take the terminal again once it is over."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, _nothing)
        self._take()

    def _take(self) -> None:
        if self._keys is not None:
            self._modes = termios.tcgetattr(self._keys)
            tty.setcbreak(self._keys, termios.TCSANOW)
            modes = termios.tcgetattr(self._keys)
            modes[CHARACTERS][termios.VMIN] = 0  # reading waits for nothing; it is known when there is something
            termios.tcsetattr(self._keys, termios.TCSANOW, modes)
        self._write(ENTER)

    def _give_back(self) -> None:
        try:
            self._write(LEAVE)
        finally:
            if self._keys is not None:
                termios.tcsetattr(self._keys, termios.TCSADRAIN, self._modes)

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _nothing(_number: int, _frame: object) -> None:
    """Let the signal be; ``set_wakeup_fd`` has told of it."""
