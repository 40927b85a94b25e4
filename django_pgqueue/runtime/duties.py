"""Several duties of one thread, one after the other; what a failing one means for the others."""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator

from django.db import Error

from django_pgqueue.base.database_errors import is_too_much, is_too_slow, is_transient, one_line

logger = logging.getLogger("django_pgqueue.worker")

LONGEST_SLEEP_SECONDS = 1.0

SPELL_SECONDS = 0.25
"""Maximum time that one duty takes of a pass, but for the slice that is under way: the other duties wait meanwhile."""

LARGEST_SLICE = 1000

LOOK_SHARE = 20
"""While an old snapshot makes it dear to look, looks are no closer than so many times their own duration."""


def next_look(begun: float, pause: float) -> float:
    """Return when to look again after a look that has just ended, monotonic.

    Args:
        begun: when it began, monotonic.
        pause: in seconds, the shortest.
    """
    now = time.monotonic()
    return now + max(pause, LOOK_SHARE * (now - begun))


def spell() -> Iterator[None]:
    """Go round once for each slice that a duty may do in this pass: at least once, and until its time is over.

    A duty that has more to do then returns 0, and goes on in the next pass, after all others.
    """
    until = time.monotonic() + SPELL_SECONDS
    yield
    while time.monotonic() < until:
        yield


class Slice:
    """How many rows a duty takes at once: half as many after that took too long, more again after it did not."""

    def __init__(self) -> None:
        self.size = LARGEST_SLICE

    @contextlib.contextmanager
    def taken(self) -> Iterator[int]:
        """Take a slice of the size that is yielded; learn from how it goes."""
        try:
            yield self.size
        except Error as error:
            if is_too_much(error):
                self.size = max(self.size // 2, 1)
            raise
        self.size = min(self.size * 2, LARGEST_SLICE)


class Duties:
    """Does its duties in turn. One that fails is tried again and does not keep the others from being done.

    Args:
        duties: each does what is due, for a spell at most, and returns the seconds until there is more, or None where
            it cannot say.

    Attributes:
        done_at: when each was last done without an error, monotonic.
        doing: the name of the one that is under way, or was the last.
    """

    def __init__(self, *duties: Callable[[], float | None]) -> None:
        self.done_at: dict[str, float] = {}
        self._duties = duties
        self.doing = ""
        self._begun_at = math.inf  # the one that is under way, monotonic
        self._complaints: dict[str, str] = {}  # what was last logged of each duty that fails
        self._is_stopping = False

    def stop(self) -> None:
        """End the pass after the duty that is under way, and do none in any other; may be called from any thread."""
        self._is_stopping = True

    def pass_once(self) -> float:
        """Do all of them; return the seconds until the next pass, a second at most.

        Raises:
            Exception: a transient one: where the database is away, all wait together. A statement that was cancelled
                because it took too long is the trouble of that duty alone.
        """
        try:
            delays = [self._guarded(duty) for duty in self._duties if not self._is_stopping]
        finally:
            self._begun_at = math.inf
        return min(delay for delay in (*delays, LONGEST_SLEEP_SECONDS) if delay is not None)

    def doing_seconds(self) -> float:
        """Return for how long the duty that is under way has been so; 0 between passes. From any thread."""
        return max(time.monotonic() - self._begun_at, 0.0)

    def _guarded(self, duty: Callable[[], float | None]) -> float | None:
        name = self.doing = duty.__name__.strip("_")
        self._begun_at = time.monotonic()
        try:
            delay = duty()
        except Exception as error:
            if is_transient(error) and not is_too_slow(error):
                raise
            is_new = self._complaints.get(name) != str(error)
            if is_new and is_too_slow(error):  # as behind a lock: no error of this package
                logger.warning(
                    "The duty %s took too long; tried again, and this said only once: %s", name, one_line(error)
                )
            elif is_new:
                logger.exception("The duty %s failed; it is tried again, and this said only once", name)
            self._complaints[name] = str(error)
            return LONGEST_SLEEP_SECONDS
        self._complaints.pop(name, None)
        self.done_at[name] = time.monotonic()
        return delay
