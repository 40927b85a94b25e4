"""The one periodic loop of the supervisor's threads: run a pass, sleep, survive the database being away."""

import logging
import math
import threading
import time
from collections.abc import Callable

from django_pgqueue.base.backoff import reconnect_delay
from django_pgqueue.base.database_errors import is_transient, one_line

logger = logging.getLogger("django_pgqueue.worker")


class Loop(threading.Thread):
    """Calls ``pass_once`` again and again.

    Args:
        duty: what the thread is for, for its name and the log.
        pass_once: one bounded pass; returns the seconds until the next one.
        longest_pause: between a pass that has failed and the next, in seconds.
        stop: called when the loop is to end, from another thread, so that the pass under way ends soon.

    Attributes:
        failures: how many passes in a row have failed.
        done_at: when the last pass ended well, monotonic; None: none has.
    """

    def __init__(
        self,
        duty: str,
        pass_once: Callable[[], float],
        *,
        longest_pause: float = math.inf,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name=f"pgqueue-{duty}", daemon=True)
        self.duty = duty
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
        except Exception as error:  # noqa: BLE001 - a duty must outlive whatever a pass meets
            self.failures += 1
            self._complain(error)
            return min(reconnect_delay(self.failures), self._longest_pause)
        if self.failures:
            logger.warning("The %s works again after %d failures", self.duty, self.failures)
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
                self.duty,
                self.failures,
                reason,
                exc_info=unexpected,
            )
        self._reason = reason
