"""Scheduled retries of failed attempts: backoff, and the exceptions that are not retried."""

import datetime as dt
import functools
import inspect
import math
import pkgutil
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from inspect import Parameter
from typing import Any, overload

from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.states import LONGEST_DELAY
from django_pgqueue.validation import seconds_of

OfAttempt = Callable[[int], float]  # number of the attempt that failed (from 1) -> seconds to wait (0 or more)
OfError = Callable[[int, Any], float]  # that number, and the exception -> seconds
Backoff = OfAttempt | OfError | float | dt.timedelta  # what ``@task`` takes

JITTER = 0.1
HIGHEST_BASE = 1000
LONGEST_WAIT_SECONDS = 10 * 365 * 24 * 3600.0


def with_jitter(seconds: float, jitter: float = JITTER) -> float:
    """Spread ``seconds`` by a share of them either way, so that jobs which failed together do not return together.

    Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    return seconds * random.uniform(1 - jitter, 1 + jitter)  # noqa: S311 - spreading load, not secrets


@dataclass(frozen=True, slots=True)
class Exponential:
    """A wait that grows by a factor with each attempt; calling it gives it without jitter. See ``exponential()``."""

    base: float
    longest: float
    jitter: float

    def __call__(self, attempt: int) -> float:
        try:
            return min(float(self.base) ** attempt, self.longest)
        except OverflowError:
            return self.longest


def exponential(base: float = 2, longest: float | dt.timedelta = 3600, jitter: float = JITTER) -> Exponential:
    """Return a ``backoff`` that waits ``min(base ** attempt, longest)`` seconds after each failed attempt.

    Without arguments it is the default of tasks: 2, 4, 8 … seconds, up to an hour.

    Args:
        base: 1 to 1000; the first wait in seconds, and the factor by which each is longer than the one before.
        longest: seconds above 0, or a timedelta, of ten years at most.
        jitter: 0 to 1; the share of the wait by which it is shortened or lengthened at random.

    Raises:
        InvalidOption: a value is out of range or of the wrong type.
    """
    seconds = seconds_of(longest)
    if not _is_number(base) or not 1 <= base <= HIGHEST_BASE:
        raise InvalidOption(f"base of exponential() is a number from 1 to {HIGHEST_BASE}, not {base!r}.")
    if not _is_number(seconds) or not 0 < seconds <= LONGEST_WAIT_SECONDS:
        raise InvalidOption(
            f"longest of exponential() is a number of seconds above 0, or a timedelta, of ten years at most, not "
            f"{longest!r}."
        )
    if not _is_number(jitter) or not 0 <= jitter <= 1:
        raise InvalidOption(f"jitter of exponential() is a number from 0 to 1, not {jitter!r}.")
    return Exponential(base, float(seconds), jitter)


@dataclass(frozen=True, slots=True)
class BackoffRule:
    """The ``backoff`` of a task, as ``@task`` was given it, in one form."""

    function: OfError
    jitter: float = JITTER

    @classmethod
    def of(cls, given: Any) -> "BackoffRule":
        """Make that of a function, a number of seconds or a timedelta; raise InvalidOption where it is none of them."""
        if isinstance(given, cls):
            return given
        if callable(given):
            return cls(_with_error(given), given.jitter if isinstance(given, Exponential) else JITTER)
        seconds = seconds_of(given)
        if not _is_number(seconds) or not 0 <= seconds < math.inf:
            raise InvalidOption(f"backoff is a function, 0 or more seconds, or a timedelta, not {given!r}.")
        return cls(lambda _attempt, _error: seconds)

    def seconds(self, attempt: int, error: BaseException) -> float:
        """Return the wait after a failed attempt, ten years at most; raise what the function does.

        Raises:
            ValueError: it returns infinity or NaN.
        """
        seconds = float(self.function(attempt, error))
        if not math.isfinite(seconds):
            raise ValueError(f"backoff returned {seconds}")
        return with_jitter(min(max(seconds, 0.0), LONGEST_WAIT_SECONDS), self.jitter)


def _with_error(given: Callable[..., float]) -> OfError:
    """Return a function of attempt and error, of which the given one takes both or the first."""
    return given if _takes_error(given) else lambda attempt, _error: given(attempt)


def _takes_error(given: Callable[..., float]) -> bool:
    try:
        parameters = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):  # some that are written in C have none
        return False
    positional = [one for one in parameters if one.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    needed = sum(one.default is Parameter.empty for one in positional)
    is_open = any(one.kind is Parameter.VAR_POSITIONAL for one in parameters)
    is_named = any(one.kind is Parameter.KEYWORD_ONLY and one.default is Parameter.empty for one in parameters)
    if needed > len(("attempt", "error")) or is_named or not (positional or is_open):
        raise InvalidOption(f"backoff is a function of (attempt) or of (attempt, error), not {given!r}.")
    second = positional[1:2]
    return any(one.default is Parameter.empty or one.name == "error" for one in second)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


DEFAULT_BACKOFF = exponential()
DEFAULT_RULE = BackoffRule.of(DEFAULT_BACKOFF)


def reconnect_delay(failures: int) -> float:
    """Return how long to wait, in seconds, before trying the database again after ``failures`` in a row (from 1)."""
    return with_jitter(min(0.1 * 2.0 ** min(failures - 1, 8), 2.0))


# The delay that another system asks for


@overload
def retry_after(value: str | None, default: float) -> float: ...
@overload
def retry_after(value: str | None, default: None = None) -> float | None: ...
def retry_after(value: str | None, default: float | None = None) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for, as the delay of ``Retry`` or ``Snooze``.

    Args:
        value: of the header: seconds, or a date as HTTP has it; None: there is no such header.
        default: seconds for a header that is missing or cannot be read. None, with ``Retry``: the ``backoff`` of the
            task.

    Returns:
        0 or more seconds, 100 years at most; 0 for a date in the past. Or the default.
    """
    try:
        seconds = float(value or "")
    except ValueError:
        seconds = _seconds_until(value or "")
    return min(max(seconds, 0.0), LONGEST_DELAY.total_seconds()) if math.isfinite(seconds) else default


def _seconds_until(date: str) -> float:
    try:
        when = parsedate_to_datetime(date)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return (when if when.tzinfo else when.replace(tzinfo=dt.UTC)).timestamp() - time.time()


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
            raise InvalidOption(
                f"discard_on is a class of exceptions, its dotted path, or a tuple of them, not {given!r}."
            )
        return cls(kinds)

    def has(self, error: BaseException) -> bool:
        return bool(self.kinds) and isinstance(error, self.classes)

    @functools.cached_property
    def classes(self) -> tuple[type[Exception], ...]:
        """The classes themselves. Raises InvalidOption where a dotted path leads to none."""
        return tuple(_imported(kind) if isinstance(kind, str) else kind for kind in self.kinds)


def _is_kind(kind: Any) -> bool:
    return "." in kind if isinstance(kind, str) else inspect.isclass(kind) and issubclass(kind, Exception)


def _imported(path: str) -> type[Exception]:
    try:
        kind = pkgutil.resolve_name(path)
    except (Exception, SystemExit) as error:  # a module may raise anything, and leave
        raise InvalidOption(f"discard_on names {path!r}, which cannot be imported: {error}") from error
    if not inspect.isclass(kind) or not issubclass(kind, Exception):
        raise InvalidOption(f"discard_on names {path!r}, which is no class of exceptions.")
    return kind
