"""How fast a child works, and how much it should fetch ahead. Pure arithmetic."""

import time

LINGER_SECONDS = 0.01
"""While slots are busy, outcomes are collected for this long before they are written."""

TURNS = 4
"""For so many turns of the pump work is fetched ahead,"""

LEAST_SECONDS, MOST_SECONDS = 0.03, 0.2
"""within these bounds, in seconds of work."""

WINDOW_SECONDS, TELLING = 0.02, 32
"""The speed is measured over this time, or over so many jobs where these are finished sooner: after an idle time it has
to be known within a few turns."""


class Speed:
    """How fast this child works and how long a turn takes: what decides how much to fetch ahead."""

    def __init__(self) -> None:
        self.prefetch = 0
        self._turn_seconds = 0.005
        self._per_second = 0.0
        self._since = time.monotonic()
        self._finished = 0

    def measure(self, *, turns: float, finished: int) -> None:
        """Take one turn into account: its duration in seconds, and how many jobs were finished since the last one."""
        self._turn_seconds += (turns - self._turn_seconds) / 4
        self._finished += finished
        elapsed = time.monotonic() - self._since
        if elapsed >= WINDOW_SECONDS or self._finished >= max(self.prefetch, TELLING):
            rate = self._finished / max(elapsed, 0.001)
            self._per_second = rate if rate > 2 * self._per_second else (rate + self._per_second) / 2
            self._since, self._finished = time.monotonic(), 0
            ahead = TURNS * self._turn_seconds + LINGER_SECONDS
            self.prefetch = int(self._per_second * min(max(ahead, LEAST_SECONDS), MOST_SECONDS))

    def forget(self) -> None:
        """Fetch nothing ahead until jobs finish again."""
        self.prefetch, self._per_second = 0, 0.0
