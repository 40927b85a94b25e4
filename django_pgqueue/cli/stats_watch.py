"""``pgqueue_stats --watch``: a screen that repaints itself."""

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Self

from django.db import DatabaseError, InterfaceError, connections
from django.utils import timezone

from django_pgqueue.cli.stats import (
    COLUMNS,
    Line,
    Piece,
    StatsSnapshot,
    Style,
    WorkerNumbers,
    clipped,
    in_height,
    painted,
    rows_of,
    table,
)
from django_pgqueue.db.connections import KEEPALIVE
from django_pgqueue.db.errors import one_line
from django_pgqueue.doctor import Finding, Level
from django_pgqueue.insights.bounded import TookTooLong
from django_pgqueue.insights.formatting import local, plain

MOST_FINDINGS = 0.4  # of the height of the terminal

STYLES = {Level.ERROR: Style.BAD, Level.WARNING: Style.WARNING}

PATIENCE_SECONDS = 3.0  # delay of an answer, beyond the usual, from which on it is shown

ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # the other screen, no cursor, no wrapping of what is too wide after all
LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"
BEGIN: Final = "\x1b[?2026h\x1b[H"  # show nothing before END; from the top
END: Final = "\x1b[?2026l"
ERASE_LINE: Final = "\x1b[K"  # from the cursor on, as the next one
ERASE_REST: Final = "\x1b[J"

CHARACTERS: Final = 6  # where in the modes of a terminal they stand

REDRAW_SECONDS = 1.0  # where there is nothing new: the age of the last answer is shown


class TerminalSize(NamedTuple):
    """Columns and lines of a terminal."""

    wide: int
    high: int


def view(glance: StatsSnapshot, *, wide: int | None = None) -> list[Line]:
    """Return all of it, however long: findings and queues, none left out."""
    findings = [_finding(finding) for finding in glance.findings]
    rows = list(rows_of(glance))
    if not rows:
        return [_headline(glance), *findings, [], [Piece("There are no queues yet.")]]
    return [_headline(glance), *findings, [], *table(rows, COLUMNS, head="queue", wide=wide)]


def view_in(room: TerminalSize, glance: StatsSnapshot) -> list[Line]:
    """Return what has room."""
    findings = _some(glance.findings, int(room.high * MOST_FINDINGS))
    rows = list(rows_of(glance))
    heads, more = 4, 1  # the headline, a free line, the two heads of the table; what is said of queues not shown
    left = room.high - len(findings) - heads
    shown = rows if sum(map(len, rows)) <= left else in_height(rows, max(left - more, 0))
    lines: list[Line] = [_headline(glance), *findings, []]
    lines += table(shown, COLUMNS, head="queue", wide=room.wide) if rows else [[Piece("There are no queues yet.")]]
    if len(shown) < len(rows):
        lines.append([Piece(f"… and {len(rows) - len(shown):,} more queues", Style.QUIET)])
    return [clipped(line, room.wide) for line in lines][: room.high]


def _headline(glance: StatsSnapshot) -> Line:
    return [
        Piece(f"{local(glance.at):%H:%M:%S}", Style.BOLD),
        Piece(f"  {_who(glance.workers)} "),
        _verdict(glance.findings),
    ]


def _who(workers: WorkerNumbers) -> str:
    if not workers.processes:
        return "No worker is alive."
    return (
        f"{_number(workers.commands, 'worker')} alive, {_number(workers.processes, 'process', 'es')}, "
        f"{workers.busy:,} of {_number(workers.slots, 'slot')} busy."
    )


def _verdict(findings: Sequence[Finding]) -> Piece:
    if not findings:
        return Piece("All is well.", Style.GOOD)
    return Piece(f"{_number(len(findings), 'finding')}:", STYLES[findings[0].level])


def _some(findings: Sequence[Finding], most: int) -> list[Line]:
    if len(findings) <= most:
        return [_finding(finding) for finding in findings]
    shown = [_finding(finding) for finding in findings[: max(most - 1, 0)]]
    return [*shown, [Piece(f"… and {_number(len(findings) - len(shown), 'more finding')}", Style.QUIET)]]


def _finding(finding: Finding) -> Line:
    words = plain(" ".join(finding.what.split()))
    return [Piece(f"{finding.level:<8}", STYLES[finding.level]), Piece(f"{finding.name}: {words}")]


def _number(number: int, word: str, plural: str = "s") -> str:
    return f"{number:,} {word}{'' if number == 1 else plural}"


# Reading in a thread


class Poller:
    """The latest figures, and the error of the last attempt to read them.

    Attributes:
        failure: what has ended it for good, as no trouble with the database does.

    Args:
        look: reads from the database ``alias``.
        seconds: from the end of one look to the beginning of the next.
        saw: is called whenever there is something new, by the thread.
    """

    def __init__(
        self, look: Callable[[], StatsSnapshot], *, alias: str, seconds: float, saw: Callable[[], None]
    ) -> None:
        self.glance: StatsSnapshot | None = None
        self.failure: Exception | None = None
        self._look = look
        self._alias = alias
        self._seconds = seconds
        self._saw = saw
        self._error = ""
        self._answered_at = self._began_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="pgqueue eye", daemon=True)
        self._thread.start()

    def trouble(self) -> str:
        silence = time.monotonic() - self._answered_at
        if self._error:
            return f"No answer for {silence:.0f} s: {self._error}"
        if silence > self._seconds + PATIENCE_SECONDS:
            return f"No answer for {silence:.0f} s."
        return ""

    def _run(self) -> None:
        try:
            self._go_on()
        except Exception as error:  # noqa: BLE001 - raised by the thread that shows the result
            self.failure = error
            self._saw()

    def _go_on(self) -> None:
        options = connections[self._alias].settings_dict["OPTIONS"]
        for option, value in KEEPALIVE.items():  # or a connection that is cut off would be waited for for hours
            options.setdefault(option, value)
        while True:
            try:
                self.glance, self._error = self._look(), ""
                self._answered_at = time.monotonic()
            except TookTooLong:
                self._error = "reading took too long and was stopped"
            except (DatabaseError, InterfaceError) as error:
                self._error = one_line(error)
                with contextlib.suppress(DatabaseError, InterfaceError):
                    connections[self._alias].close()
            self._saw()
            time.sleep(self._seconds)


# The terminal
#
# Source: https://invisible-island.net/xterm/ctlseqs/ctlseqs.html


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

    def room(self) -> TerminalSize:
        try:
            wide, high = os.get_terminal_size(self._out.fileno())
        except OSError:
            wide, high = 0, 0
        return TerminalSize(wide or 80, high or 24)

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
        """Wait until something has happened, or until the timeout; return whether the user wants to quit."""
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
        if number in STOPPING:
            self.ended_by = number
            return True
        if number == signal.SIGTSTP:
            self._sleep()
        return False

    def _sleep(self) -> None:
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


# The loop


def watch(
    look: Callable[[], StatsSnapshot], *, alias: str, seconds: float, title: str, has_colours: bool
) -> int | None:
    """Show the terminal's other screen until q, Ctrl-C or a signal; return that signal, if it was one."""
    with Screen() as screen:
        eye = Poller(look, alias=alias, seconds=seconds, saw=screen.wake)
        while eye.failure is None:
            lines = drawn(screen.room(), eye.glance, trouble=eye.trouble(), title=title)
            screen.show([painted(line, has_colours=has_colours) for line in lines])
            if screen.wait(REDRAW_SECONDS):
                return screen.ended_by
    raise eye.failure


def drawn(room: TerminalSize, glance: StatsSnapshot | None, *, trouble: str, title: str) -> list[Line]:
    """Return what to show: the title, or what is wrong with the database; and below it what was seen last."""
    top = _title(title, trouble)
    below = view_in(TerminalSize(room.wide, room.high - 1), glance) if glance else []
    return [clipped(line, room.wide) for line in [top, *below]][: room.high]


def _title(title: str, trouble: str) -> Line:
    if not trouble:
        return [Piece(title, Style.QUIET)]
    return [Piece(f"{local(timezone.now()):%H:%M:%S} {plain(trouble)}", Style.LOUD)]


def repeat(
    look: Callable[[], StatsSnapshot], show: Callable[[StatsSnapshot], None], *, alias: str, seconds: float
) -> None:
    """Show one look after the other, where there is no terminal, until Ctrl-C; tell what goes wrong, and go on."""
    while True:
        try:
            show(look())
        except TookTooLong:
            _tell("Reading took too long and was stopped.")
        except (DatabaseError, InterfaceError) as error:
            _tell(one_line(error))
            connections[alias].close()
        time.sleep(seconds)


def _tell(words: str) -> None:
    print(plain(words), file=sys.stderr, flush=True)  # noqa: T201 - a command
