"""Journal of the faults: their time and target. Written to a file too, so that it can be read when all is over."""

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.chaos.marks import now


@dataclass(slots=True)
class Fault:
    """One thing that went wrong."""

    kind: str
    pids: list[int]  # the worker processes that it hit
    at: int
    until: int = 0  # 0: not over yet


class Journal:
    """May be written by any thread."""

    def __init__(self, path: Path) -> None:
        self.faults: list[Fault] = []
        self.troubles: list[str] = []  # what must not happen in a soak, whatever is injected
        self._path = path
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def fault(self, kind: str, pids: Iterable[int] = ()) -> Iterator[Fault]:
        """Write down a fault that lasts as long as the block. One that could not be injected wholly is not counted."""
        fault = Fault(kind, list(pids), now())
        self.faults.append(fault)
        yield fault
        fault.until = now()
        self._write(asdict(fault))

    def trouble(self, what: str) -> None:
        """Write down what no fault excuses."""
        self.troubles.append(what)
        self._write({"trouble": what, "at": now()})

    def counts(self) -> Counter[str]:
        return Counter(fault.kind for fault in list(self.faults) if fault.until)

    def _write(self, entry: dict) -> None:
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
