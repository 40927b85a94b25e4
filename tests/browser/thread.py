"""Playwright on a thread of its own.

Its synchronous API keeps an event loop running in the thread that started it, where Django then refuses the ORM and
no other code can run a loop. So that thread does nothing else, and tests hold handles: what is called on one is called
there, and what comes back is a handle again.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Elsewhere:
    """One thread that runs what it is given, one thing after the other."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "browser")

    def __call__(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return self._thread.submit(function, *args, **kwargs).result()

    def handle(self, value: Any) -> Any:
        """Return the value itself where it is plain, else a handle of it."""
        if isinstance(value, list):
            return [self.handle(one) for one in value]
        if callable(value) or type(value).__module__.startswith("playwright."):
            return Handle(self, value)
        return value

    def end(self) -> None:
        self._thread.shutdown()


class Handle:
    """Stands for an object that lives on the other thread."""

    def __init__(self, elsewhere: Elsewhere, target: Any) -> None:
        self._elsewhere = elsewhere
        self._target = target

    def __getattr__(self, name: str) -> Any:
        return self._elsewhere.handle(self._elsewhere(getattr, self._target, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        plain = {name: bare(value) for name, value in kwargs.items()}
        return self._elsewhere.handle(self._elsewhere(self._target, *map(bare, args), **plain))

    def __repr__(self) -> str:
        return f"<{self._target!r}, on a thread of its own>"


def bare(value: Any) -> Any:
    """Return what a handle stands for; anything else as it is."""
    return value._target if isinstance(value, Handle) else value
