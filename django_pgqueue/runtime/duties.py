"""Several duties of one thread, one after the other; what a failing one means for the others."""

import logging
from collections.abc import Callable

from django_pgqueue.db import is_transient

logger = logging.getLogger("django_pgqueue.worker")

LONGEST_SLEEP_SECONDS = 1.0


class Duties:
    """Does its duties in turn. One that fails is tried again and does not keep the others from being done.

    Args:
        duties: each does what is due and returns the seconds until there is more, or None where it cannot say.
    """

    def __init__(self, *duties: Callable[[], float | None]) -> None:
        self._duties = duties
        self._complaints: dict[str, str] = {}  # what was last logged of each duty that fails

    def pass_once(self) -> float:
        """Do all of them; return the seconds until the next pass, a second at most.

        Raises:
            Exception: a transient one: where the database is away, all wait together.
        """
        delays = [self._guarded(duty) for duty in self._duties]
        return min(delay for delay in (*delays, LONGEST_SLEEP_SECONDS) if delay is not None)

    def _guarded(self, duty: Callable[[], float | None]) -> float | None:
        name = duty.__name__.strip("_")
        try:
            delay = duty()
        except Exception as error:
            if is_transient(error):
                raise
            if self._complaints.get(name) != str(error):
                logger.exception("The duty %s failed; it is tried again, and this said only once", name)
            self._complaints[name] = str(error)
            return LONGEST_SLEEP_SECONDS
        self._complaints.pop(name, None)
        return delay
