"""SIGTERM and Ctrl-C, while somebody handles them."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_signals(handle: Callable[[int], None]) -> Iterator[None]:
    """Call ``handle`` with the number of each SIGTERM and SIGINT that comes inside; afterwards all is as it was before.

    For the main thread only. What handles them may come between any two instructions of it, and must not log.
    """

    def called(number: int, _frame: Any) -> None:
        handle(number)

    previous = {number: signal.signal(number, called) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
