"""Background services: bounded passes that a thread repeats, each with its interval, and one rule for errors."""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator

from django.db import Error

from django_pgqueue.db.errors import is_too_much, is_too_slow, is_transient, one_line
from django_pgqueue.retry_policy import reconnect_delay

logger = logging.getLogger("django_pgqueue.worker")

LONGEST_SLEEP_SECONDS = 1.0

SPELL_SECONDS = 0.25
"""Maximum time that one service takes of a pass, but for the slice under way: the other services wait meanwhile."""

LARGEST_SLICE = 1000

LOOK_SHARE = 20
"""Minimum interval between looks, as a multiple of their own duration, where an old snapshot makes them slow."""


def next_look(begun: float, pause: float) -> float:
    """Return when to look again after a look that has just ended, monotonic.

    Args:
        begun: when it began, monotonic.
        pause: in seconds, the shortest.
    """
    now = time.monotonic()
    return now + max(pause, LOOK_SHARE * (now - begun))


def spell() -> Iterator[None]:
    """Go round once for each slice that a service may do in this pass: at least once, and until its time is over.

    A service that has more to do then returns 0, and goes on in the next pass, after all others.
    """
    until = time.monotonic() + SPELL_SECONDS
    yield
    while time.monotonic() < until:
        yield


class AdaptiveBatch:
    """The rows that a pass takes at once: half as many after one that took too long, more again after it did not."""

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


class Services:
    """Runs services in turn, in one thread. One that fails is tried again and does not keep the others from running.

    Args:
        services: each does what is due, for a spell at most, and returns the seconds until there is more, or None where
            it cannot say.

    Attributes:
        done_at: when each was last done without an error, monotonic.
        doing: the name of the one that is under way, or was the last.
    """

    def __init__(self, *services: Callable[[], float | None]) -> None:
        self.done_at: dict[str, float] = {}
        self._services = services
        self.doing = ""
        self._begun_at = math.inf  # the one that is under way, monotonic
        self._complaints: dict[str, str] = {}  # what was last logged of each service that fails
        self._is_stopping = False

    def stop(self) -> None:
        """End the pass after the service that is under way, and do none in any other; may be called from any thread."""
        self._is_stopping = True

    def pass_once(self) -> float:
        """Do all of them; return the seconds until the next pass, a second at most.

        Raises:
            Exception: a transient one: where the database is away, all wait together. A statement that was cancelled
                because it took too long is the trouble of that service alone.
        """
        try:
            delays = [self._guarded(service) for service in self._services if not self._is_stopping]
        finally:
            self._begun_at = math.inf
        return min(delay for delay in (*delays, LONGEST_SLEEP_SECONDS) if delay is not None)

    def doing_seconds(self) -> float:
        """Return for how long the service that is under way has been so; 0 between passes. From any thread."""
        return max(time.monotonic() - self._begun_at, 0.0)

    def _guarded(self, service: Callable[[], float | None]) -> float | None:
        name = self.doing = service.__name__.strip("_")
        self._begun_at = time.monotonic()
        try:
            delay = service()
        except Exception as error:
            if is_transient(error) and not is_too_slow(error):
                raise
            is_new = self._complaints.get(name) != str(error)
            if is_new and is_too_slow(error):  # as behind a lock: no error of this package
                logger.warning(
                    "The service %s took too long; will retry, repeats are not logged: %s",
                    name,
                    one_line(error),
                )
            elif is_new:
                logger.exception("The service %s failed; will retry, repeats are not logged", name)
            self._complaints[name] = str(error)
            return LONGEST_SLEEP_SECONDS
        self._complaints.pop(name, None)
        self.done_at[name] = time.monotonic()
        return delay


# The thread


class ServiceRunner(threading.Thread):
    """Calls ``pass_once`` again and again.

    Args:
        service: what the thread is for, for its name and the log.
        pass_once: one bounded pass; returns the seconds until the next one.
        longest_pause: between a pass that has failed and the next, in seconds.
        stop: called when the loop is to end, from another thread, so that the pass under way ends soon.

    Attributes:
        failures: how many passes in a row have failed.
        done_at: when the last pass ended well, monotonic; None: none has.
    """

    def __init__(
        self,
        service: str,
        pass_once: Callable[[], float],
        *,
        longest_pause: float = math.inf,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name=f"pgqueue-{service}", daemon=True)
        self.service = service
        self._pass_once = pass_once
        self._longest_pause = longest_pause
        self._stop_pass = stop
        self.failures = 0
        self.done_at: float | None = None
        self._reason = ""  # of the last failure
        self._due_at = time.monotonic()  # the next pass, or the one that is under way
        self._woken = threading.Event()
        self._stopping = False

    def run(self) -> None:
        while not self._stopping:
            delay = self._guarded_pass()
            self._due_at = time.monotonic() + delay
            self._woken.wait(delay)
            self._woken.clear()

    def wake(self) -> None:
        """Run the next pass now."""
        self._woken.set()

    def stop(self) -> None:
        """End with the pass that is under way."""
        self._stopping = True
        self._woken.set()
        self._stop_pass()

    def pass_seconds(self) -> float:
        """Return for how long a pass has been under way, or should have been; 0 while the loop sleeps."""
        return max(time.monotonic() - self._due_at, 0.0)

    def _guarded_pass(self) -> float:
        try:
            delay = self._pass_once()
        except Exception as error:  # noqa: BLE001 - a service must outlive whatever a pass meets
            self.failures += 1
            self._complain(error)
            return min(reconnect_delay(self.failures), self._longest_pause)
        if self.failures:
            logger.warning("The %s works again after %d failures", self.service, self.failures)
            self.failures = 0
        self.done_at = time.monotonic()
        return delay

    def _complain(self, error: Exception) -> None:
        """Log the first failure in a row, every other reason, and every tenth: few lines, however long it lasts."""
        reason = one_line(error)
        if self.failures % 10 == 1 or reason != self._reason:
            unexpected = None if is_transient(error) else error
            logger.warning(
                "The %s failed and is tried again (failure %d): %s",
                self.service,
                self.failures,
                reason,
                exc_info=unexpected,
            )
        self._reason = reason
