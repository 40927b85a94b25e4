"""Injects faults: one wind for each command and each group, round after round of all their kinds in random order."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from tests.chaos import faults
from tests.chaos.command import Command
from tests.chaos.faults import CONNECTION_TROUBLES, Scene
from tests.chaos.journal import Journal
from tests.chaos.marks import size
from tests.support.waiting import LONG_PATIENCE_SECONDS

Fault = Callable[[Random], None]

LOOK_SECONDS = 0.1
LULL_AFTER = 6
EARLY = 0.2
"""How many of the faults may hit a command before it has run a job."""

STARVED_SECONDS = 1.0
"""A thread that wants to run ten times a second and gets no turn for so long is on a machine that stands still."""


class Storm:
    """Blows for its time, and until each kind of fault has been injected.

    Args:
        seed: of all that is random here.
    """

    def __init__(self, scene: Scene, *, seed: str) -> None:
        self._scene = scene
        self._seed = seed
        self._until = 0.0  # monotonic
        self._seen: dict[faults.SharedFault, int] = {}  # how many marks there were when each was last injected
        self._is_broken_off = threading.Event()
        self._winds = [
            *(self._on_command(number, command) for number, command in enumerate(scene.commands)),
            self._on_all("server", faults.ON_SERVER, Pauses(0.5, 2.5, lull=15.0)),
            self._on_all("sessions", faults.ON_SESSIONS, Pauses(2.0, 6.0)),
            self._on_all("network", faults.ON_NETWORK, Pauses(0.2, 1.2)),
        ]

    def blow(self, seconds: float) -> None:
        """Inject faults for so long, in threads; return when they are over."""
        self._until = time.monotonic() + seconds
        for wind in self._winds:
            wind.start()
        try:
            for wind in self._winds:
                wind.join()
        finally:
            self._is_broken_off.set()
            for wind in self._winds:
                wind.join()

    def _on_command(self, number: int, command: Command) -> threading.Thread:
        """Begin each command's first round elsewhere, so that together they soon have had all kinds."""
        turn = number * 2 % len(faults.ON_COMMANDS)
        first = faults.ON_COMMANDS[turn:] + faults.ON_COMMANDS[:turn]
        bound = {fault.__name__: partial(self._on_one, fault, command) for fault in first}
        return self._wind(f"command {command.number}", bound, Pauses(0.2, 1.2))

    def _on_all(self, name: str, group: Sequence[faults.SharedFault], pauses: "Pauses") -> threading.Thread:
        return self._wind(name, {fault.__name__: partial(self._on_several, fault) for fault in group}, pauses)

    def _wind(self, name: str, group: Mapping[str, Fault], pauses: "Pauses") -> threading.Thread:
        return threading.Thread(target=self._inject, args=(name, group, pauses), name=f"wind {name}")

    def _inject(self, name: str, group: Mapping[str, Fault], pauses: "Pauses") -> None:
        """Inject the faults of a group with pauses between them."""
        draw = Random(f"{self._seed}/{name}")
        for number, fault in enumerate(_rounds(list(group.values()), draw), 1):
            if self._is_broken_off.wait(pauses.draw(draw, number)) or self._is_enough(group):
                return
            try:
                fault(draw)
            except CONNECTION_TROUBLES:
                continue  # another fault was in its way
            except Exception as error:  # a wind that dies must not pass for calm
                self._scene.journal.trouble(f"the storm itself failed at {name}: {error!r}")
                raise

    def _is_enough(self, group: Iterable[str]) -> bool:
        """Whether the time is up, and all of a group have been had; some time later it must be enough."""
        late, counts = self._overtime(), self._scene.journal.counts()
        if late > LONG_PATIENCE_SECONDS:
            self._scene.journal.trouble(f"not each of {', '.join(group)} could be injected: {dict(counts)}")
            return True
        return late > 0 and all(counts[kind] for kind in group)

    def _overtime(self) -> float:
        return time.monotonic() - self._until

    def _on_one(self, fault: faults.CommandFault, command: Command, draw: Random) -> None:
        """Hit a command that runs jobs; sometimes one that only begins to."""
        is_early = draw.random() < EARLY
        if self._wait(lambda: command.is_at_work() and (is_early or size(self._scene.marks, command.children()) > 0)):
            fault(self._scene, command, draw)

    def _on_several(self, fault: faults.SharedFault, draw: Random) -> None:
        """Hit when jobs have been run since the last time: on a slow machine else none ever would be."""
        seen = self._seen.get(fault, 0)
        if self._wait(lambda: size(self._scene.marks) > seen):
            fault(self._scene, draw)
            self._seen[fault] = size(self._scene.marks)

    def _wait(self, condition: Callable[[], bool]) -> bool:
        while not condition():
            if self._is_broken_off.wait(LOOK_SECONDS) or self._overtime() > LONG_PATIENCE_SECONDS:
                return False
        return True


@contextlib.contextmanager
def watched(journal: Journal) -> Iterator[None]:
    """Write down, in this block, when no process could do anything in time, for want of a processor or of the disk."""
    is_over = threading.Event()
    watch = threading.Thread(target=_watch_the_machine, args=(journal, is_over), name="watch")
    watch.start()
    try:
        yield
    finally:
        is_over.set()
        watch.join()


@dataclass(frozen=True)
class Pauses:
    """How long a group rests after a fault, in seconds; each sixth time longer by a lull.

    A worker judges others only when it has been in touch for a full lease; without a lull of the server none would.
    """

    shortest: float
    longest: float
    lull: float = 0.0

    def draw(self, draw: Random, number: int) -> float:
        return draw.uniform(self.shortest, self.longest) + self.lull * (number % LULL_AFTER == 0)


def kinds() -> list[str]:
    """Return the names of all kinds of faults."""
    groups = (faults.ON_COMMANDS, faults.ON_SERVER, faults.ON_SESSIONS, faults.ON_NETWORK)
    return [fault.__name__ for group in groups for fault in group]


def _watch_the_machine(journal: Journal, is_over: threading.Event) -> None:
    began = time.monotonic()
    while not is_over.wait(LOOK_SECONDS):
        if time.monotonic() - began > STARVED_SECONDS:
            with journal.fault("starve"):
                pass
        began = time.monotonic()


def _rounds(group: Sequence[Fault], draw: Random) -> Iterator[Fault]:
    """Yield all of a group as they stand, then in another order, for ever."""
    yield from group
    while True:
        yield from draw.sample(group, len(group))
