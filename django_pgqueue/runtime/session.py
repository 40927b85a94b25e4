"""Which commands live, as far as the sessions of the server tell.

Each command has one session that everybody can see: as long as it is there, the command may live. It is the listener's,
because that one is known to be direct: behind a pooler no notification would arrive, and sessions would come and go
with other people's. When a process is killed, its machine closes the connection, and the server ends the session.
"""

import math
import time
from collections.abc import Callable, Iterable

BEAT_SECONDS = 4.0
"""A command that has a session sends its heartbeats no further apart, however long its lease is."""

SILENT_SECONDS = 5.0
"""One that lives has sent a heartbeat since."""

GONE_SECONDS = 2.0
"""A command that is silent, and whose session is not there, for so long is gone."""

RECONNECTED_SECONDS = 15.0
"""So long after an outage everybody who lives is connected again; until then nobody is judged by his session."""

SIGN_OF_LIFE_SECONDS = 1.0
"""A command that has lost its session sends its heartbeats so often until it has another."""


class Session:
    """That of this command. Set by the listener's thread, read by the heart's.

    Args:
        changed: called when it has begun or ended.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self.pid = 0  # of the server's process; 0: there is none
        self._changed = changed
        self._was_there = False

    def begin(self, pid: int) -> None:
        self.pid, self._was_there = pid, True
        self._changed()

    def end(self) -> None:
        self.pid = 0
        self._changed()

    def forgo(self) -> None:
        """Have none, and want none: behind a pooler there is nothing for others to look for."""
        self.pid, self._was_there = 0, False
        self._changed()

    @property
    def beat_seconds(self) -> float:
        """How far apart heartbeats may be, by what others can see of this command."""
        if self.is_lost:
            return SIGN_OF_LIFE_SECONDS
        return BEAT_SECONDS if self.pid else math.inf

    @property
    def is_lost(self) -> bool:
        """Whether there was one, and others may believe that this command is gone with it."""
        return self._was_there and not self.pid


class Absences:
    """For how long others have been seen neither by their session nor by a heartbeat."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}  # by the id of a worker process; monotonic

    def gone(self, look: Callable[[], Iterable[int]]) -> list[int]:
        """Return who has been absent at each look for as long as it takes to be gone.

        Args:
            look: returns who is absent now; if it fails, nothing that was seen before counts.
        """
        now, since, self._since = time.monotonic(), self._since, {}
        self._since = {worker_id: since.get(worker_id, now) for worker_id in look()}
        return [worker_id for worker_id, first in self._since.items() if now - first >= GONE_SECONDS]

    def forget(self) -> None:
        self._since.clear()
