"""The one periodic loop of the supervisor's threads: run a pass, sleep, survive the database being away."""

import logging
import threading
from collections.abc import Callable

from django_pgqueue.base.backoff import reconnect_delay
from django_pgqueue.db import is_transient

logger = logging.getLogger("django_pgqueue.worker")


class Loop(threading.Thread):
    """Calls ``pass_once`` again and again.

    Args:
        duty: what the thread is for, for its name and the log.
        pass_once: one bounded pass; returns the seconds until the next one.
    """

    def __init__(self, duty: str, pass_once: Callable[[], float]) -> None:
        super().__init__(name=f"pgqueue-{duty}", daemon=True)
        self.duty = duty
        self._pass_once = pass_once
        self._failures = 0
        self._woken = threading.Event()
        self._stopping = False

    def run(self) -> None:
        while not self._stopping:
            delay = self._guarded_pass()
            self._woken.wait(delay)
            self._woken.clear()

    def wake(self) -> None:
        """Run the next pass now."""
        self._woken.set()

    def stop(self) -> None:
        """End after the pass that is under way."""
        self._stopping = True
        self._woken.set()

    def _guarded_pass(self) -> float:
        try:
            delay = self._pass_once()
        except Exception as error:  # noqa: BLE001 - a duty must outlive whatever a pass meets
            self._failures += 1
            self._complain(error)
            return reconnect_delay(self._failures)
        if self._failures:
            logger.warning("The %s works again after %d failures", self.duty, self._failures)
            self._failures = 0
        return delay

    def _complain(self, error: Exception) -> None:
        """Log the first failure in a row and then every tenth: few lines, however long the outage lasts."""
        if self._failures % 10 == 1:
            unexpected = None if is_transient(error) else error
            logger.warning(
                "The %s failed and is tried again (failure %d): %s",
                self.duty,
                self._failures,
                error,
                exc_info=unexpected,
            )
