"""Named points on a job's way from its schedule to its ack at which a test can end or freeze a process of a worker.

Each process of a command passes them all when CRASH_POINTS names a folder. A test arms a point by a file of its name in
there; the one process that comes by takes the file away and does what it says. Those that come later pass.
"""

import functools
import os
import pkgutil
import select
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

DEEDS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "freeze": lambda: os.killpg(os.getpgrp(), signal.SIGSTOP),  # the whole command, as when a machine is suspended
}


@dataclass(frozen=True)
class Point:
    folder: Path
    name: str

    @property
    def is_armed(self) -> bool:
        """Whether no process has come by yet."""
        return (self.folder / self.name).exists()

    def arm(self, deed: str) -> None:
        """Let the next process that comes by do a deed."""
        draft = self.folder / f"{self.name}.draft"
        draft.write_text(deed)
        draft.rename(self.folder / self.name)

    def come_by(self) -> None:
        taken = self.folder / f"{self.name}.taken"
        try:
            (self.folder / self.name).rename(taken)  # for one process only
        except FileNotFoundError:
            return
        DEEDS[taken.read_text()]()


def install(folder: str) -> None:
    """Put all points into the way of this process, which is a supervisor's or a worker's."""
    for name, put in POINTS.items():
        put(Point(Path(folder), name))


def before(place: str, *, given: int | None = None) -> Callable[[Point], None]:
    """Put a point in front of a function.

    Args:
        place: the module or class and the function in it, as ``package.module:Class.function``.
        given: the position of an argument; calls in which it is empty are not meant.
    """
    return functools.partial(_wrap, place, given, is_behind=False)


def behind(place: str, *, given: int | None = None) -> Callable[[Point], None]:
    """Put a point behind a function, which has then done its work."""
    return functools.partial(_wrap, place, given, is_behind=True)


def _wrap(place: str, given: int | None, point: Point, *, is_behind: bool) -> None:
    path, _, name = place.rpartition("." if "." in place.partition(":")[2] else ":")
    owner = pkgutil.resolve_name(path)
    function = getattr(owner, name)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        is_meant = given is None or bool(args[given])
        if is_meant and not is_behind:
            point.come_by()
        value = function(*args, **kwargs)
        if is_meant and is_behind:
            point.come_by()
        return value

    setattr(owner, name, wrapper)


def when_answered(point: Point) -> None:
    """Put a point where the server has committed a transaction with outcomes, and its answer waits in the socket."""
    sent: list[object] = []
    send, leave = pkgutil.resolve_name("django_pgqueue.jobs.ack:send"), psycopg.Pipeline.__exit__

    def note(database: Any, outcomes: Any) -> Any:
        sent.extend(outcomes)
        return send(database, outcomes)

    def wrapper(pipeline: psycopg.Pipeline, *error: Any) -> None:
        if sent and point.is_armed:
            pipeline.pgconn.pipeline_sync()
            while pipeline.pgconn.flush():
                pass
            select.select([pipeline.pgconn.socket], [], [], 30.0)
            point.come_by()
        sent.clear()
        leave(pipeline, *error)

    pkgutil.resolve_name("django_pgqueue.jobs.ack").send = note
    psycopg.Pipeline.__exit__ = wrapper


POINTS: dict[str, Callable[[Point], None]] = {
    "tick inserted": before("django_pgqueue.schedules.enqueuer:_advance"),
    "claim sent": behind("django_pgqueue.jobs.claim:send"),
    "limited claim sent": behind("django_pgqueue.jobs.claim:send_limited"),
    "claim committed": before("django_pgqueue.worker.prefetch:Prefetch.accept", given=1),
    "job held": behind("django_pgqueue.worker.shared_state:SharedState.hold", given=2),
    "start": before("django_pgqueue.worker.slots:Slots.begin"),
    "started": behind("django_pgqueue.worker.slots:Slots.begin"),
    "row removed": behind("django_pgqueue.jobs.ack:finish_alone"),
    "ended": before("django_pgqueue.worker.slots:Slots.end"),
    "ack sent": behind("django_pgqueue.jobs.ack:send", given=1),
    "ack committed": when_answered,
    "ack received": before("django_pgqueue.jobs.ack:receipt", given=1),
    "ack settled": behind("django_pgqueue.worker.consumer:Consumer._settle", given=1),
}
