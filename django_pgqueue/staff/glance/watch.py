"""Shows what the eye sees, until somebody has seen enough."""

import sys
import time
from collections.abc import Callable

from django.db import DatabaseError, InterfaceError, connections
from django.utils import timezone

from django_pgqueue.db.errors import one_line
from django_pgqueue.staff.bounded import TookTooLong
from django_pgqueue.staff.glance.eye import Eye
from django_pgqueue.staff.glance.look import Glance
from django_pgqueue.staff.glance.paint import Line, Piece, Style, clipped, painted
from django_pgqueue.staff.glance.screen import Screen
from django_pgqueue.staff.glance.view import Room, view_in
from django_pgqueue.staff.terminal import plain

REDRAW_SECONDS = 1.0
"""So often it is drawn again where there is nothing new: how long the database has been silent is told."""


def watch(look: Callable[[], Glance], *, alias: str, seconds: float, title: str, has_colours: bool) -> int | None:
    """Show the terminal's other screen until q, Ctrl-C or a signal; return that signal, if it was one."""
    with Screen() as screen:
        eye = Eye(look, alias=alias, seconds=seconds, saw=screen.wake)
        while eye.failure is None:
            lines = drawn(screen.room(), eye.glance, trouble=eye.trouble(), title=title)
            screen.show([painted(line, has_colours=has_colours) for line in lines])
            if screen.wait(REDRAW_SECONDS):
                return screen.ended_by
    raise eye.failure


def drawn(room: Room, glance: Glance | None, *, trouble: str, title: str) -> list[Line]:
    """Return what to show: the title, or what is wrong with the database; and below it what was seen last."""
    top = _title(title, trouble)
    below = view_in(Room(room.wide, room.high - 1), glance) if glance else []
    return [clipped(line, room.wide) for line in [top, *below]][: room.high]


def _title(title: str, trouble: str) -> Line:
    if not trouble:
        return [Piece(title, Style.QUIET)]
    now = timezone.localtime() if timezone.is_aware(timezone.now()) else timezone.now()
    return [Piece(f"{now:%H:%M:%S} {plain(trouble)}", Style.LOUD)]


def repeat(look: Callable[[], Glance], show: Callable[[Glance], None], *, alias: str, seconds: float) -> None:
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
