"""Scheduled retries of failed attempts: backoff, and the exceptions that are not retried."""

import functools
import inspect
import pkgutil
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django_pgqueue.exceptions import InvalidJob

Backoff = Callable[[int], float]  # number of the attempt that failed (from 1) -> seconds to wait (0 or more)

LONGEST_SECONDS = 3600.0
JITTER = 0.1


def exponential(attempt: int) -> float:
    """Wait ``min(2 ** attempt, 3600)`` seconds: 2, 4, 8 … up to an hour. The default."""
    return min(2.0 ** min(attempt, 12), LONGEST_SECONDS)


def with_jitter(seconds: float) -> float:
    """Spread ``seconds`` by up to 10 % either way, so that jobs which failed together do not return together.

    Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreading load, not secrets


def reconnect_delay(failures: int) -> float:
    """Return how long to wait, in seconds, before trying the database again after ``failures`` in a row (from 1)."""
    return with_jitter(min(0.1 * 2.0 ** min(failures - 1, 8), 2.0))


# Exceptions that are not retried

Kind = type[Exception] | str
DiscardOn = Kind | Iterable[Kind]  # a class of exceptions, its dotted path, or several of them


@dataclass(frozen=True)
class Discards:
    """The classes that a task, or the settings, name; a dotted path is imported when it is first needed."""

    kinds: tuple[Kind, ...] = ()

    @classmethod
    def of(cls, given: Any) -> "Discards":
        if isinstance(given, cls):
            return given
        is_one = isinstance(given, str) or inspect.isclass(given) or not isinstance(given, Iterable)
        kinds = (given,) if is_one else tuple(given)
        if not all(_is_kind(kind) for kind in kinds):
            raise InvalidJob(
                f"discard_on is a class of exceptions, its dotted path, or a tuple of them, not {given!r}."
            )
        return cls(kinds)

    def has(self, error: BaseException) -> bool:
        return bool(self.kinds) and isinstance(error, self.classes)

    @functools.cached_property
    def classes(self) -> tuple[type[Exception], ...]:
        """The classes themselves. Raises InvalidJob where a dotted path leads to none."""
        return tuple(_imported(kind) if isinstance(kind, str) else kind for kind in self.kinds)


def _is_kind(kind: Any) -> bool:
    return "." in kind if isinstance(kind, str) else inspect.isclass(kind) and issubclass(kind, Exception)


def _imported(path: str) -> type[Exception]:
    try:
        kind = pkgutil.resolve_name(path)
    except (Exception, SystemExit) as error:  # a module may raise anything, and leave
        raise InvalidJob(f"discard_on names {path!r}, which cannot be imported: {error}") from error
    if not inspect.isclass(kind) or not issubclass(kind, Exception):
        raise InvalidJob(f"discard_on names {path!r}, which is no class of exceptions.")
    return kind
