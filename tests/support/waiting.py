"""Waiting in tests: for a condition, never for a time, and with one deadline.

A deadline does not say how long something takes, only when to give up. One that is reached by chance, because the
machine had other things to do, is worse than one that lets a test which fails anyhow take longer.
"""

import contextlib
import inspect
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from django_pgqueue.db.connections import QueueConnection

PATIENCE_SECONDS = float(os.environ.get("PATIENCE", "180"))
"""Timeout of every wait for what usually takes a moment.

Far above any pause of a machine that is busy with all the other tests and more, and short enough that a test which
waits in vain says so before the whole run is given up. The author of a test sets a shorter one in the
environment, as ``PATIENCE``, in seconds.
"""

LONG_PATIENCE_SECONDS = 4 * PATIENCE_SECONDS
"""Timeout of what usually takes many moments: a demo, a build, processes that start one after the other."""

LONGEST_WORDING = 6  # lines of a condition, in the message of a wait in vain


def eventually(condition: Callable[[], Any], *, seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait until ``condition`` is true and return its value; fail after ``seconds``, with what it was and returned.

    What takes long is looked at less often: asking takes the time of those who are waited for.
    """
    begun = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - begun
        assert waited < seconds, f"not within {seconds} s, but {value!r}: {wording(condition)}"
        time.sleep(min(max(waited / 8, 0.01), 0.05))
    return value


def wording(function: Callable[[], Any]) -> str:
    """Return the docstring of a function of the tests, else the beginning of its code; of anything else its repr."""
    if inspect.isfunction(function):
        with contextlib.suppress(OSError, SyntaxError):  # its file is not there, or begins in the middle of a line
            lines = (function.__doc__ or inspect.getsource(function)).strip().splitlines()
            return " ".join(line.strip() for line in lines[:LONGEST_WORDING])
    return repr(function)


@contextlib.contextmanager
def beside(target: Callable[[], Any], *, seconds: float = PATIENCE_SECONDS) -> Iterator[threading.Thread]:
    """Run ``target`` in a thread of its own; leaving waits for its end, and fails after ``seconds``."""
    running = threading.Thread(target=target)
    running.start()
    try:
        yield running
    finally:
        running.join(seconds)
    assert not running.is_alive(), f"not within {seconds} s, the end of: {wording(target)}"


def until_gone(queue: QueueConnection, session: int) -> None:
    """Wait for the end of a session whose client has closed it: until the server has read that, it keeps its locks."""
    eventually(lambda: not queue.rows("SELECT FROM pg_stat_activity WHERE pid = %(pid)s", {"pid": session}))
