"""Checks of single values: names, choices, whole numbers, durations, the user of an action, a snapshot."""

import datetime as dt
from collections.abc import Iterable
from numbers import Integral
from typing import Any, Protocol

from django_pgqueue.exceptions import InvalidOption, InvalidWorkflow

LONGEST_TIMEOUT_SECONDS = 365 * 24 * 3600

UNNAMED = "a user"  # name in the log of a user who is not known


def check_name(option: str, value: Any, longest: int) -> None:
    """Raise InvalidOption unless ``value`` is a text of 1 to ``longest`` characters that PostgreSQL can store."""
    if not isinstance(value, str) or not 1 <= len(value) <= longest or "\0" in value:
        raise InvalidOption(f"{option} is a name of 1 to {longest} characters, not {value!r}.")
    if not is_text(value):
        raise InvalidOption(f"{option} contains a lone surrogate, which is not text: {value!r}.")


def is_text(value: str) -> bool:
    """Whether PostgreSQL can store a text: it has neither NUL nor a lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def check_word(option: str, value: Any, words: tuple[str, ...]) -> None:
    """Raise InvalidOption unless ``value`` is one of these words."""
    if value not in words:
        raise InvalidOption(f"{option} is one of {', '.join(map(repr, map(str, words)))}, not {value!r}.")


def check_flag(option: str, value: Any) -> None:
    """Raise InvalidOption unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise InvalidOption(f"{option} is True or False, not {value!r}.")


def check_whole(option: str, value: Any, lowest: int, highest: int) -> None:
    """Raise InvalidOption unless ``value`` is a whole number within these bounds, both included."""
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise InvalidOption(f"{option} is a whole number from {lowest} to {highest}, not {value!r}.")


def number_of(given: Any) -> int | None:
    """Return the whole number that was given, as such or as a text; None: it is none."""
    if isinstance(given, bool) or not isinstance(given, Integral | str):
        return None
    try:
        return int(given)
    except ValueError:
        return None


def check_seconds(option: str, value: Any) -> None:
    """Raise InvalidOption unless ``value`` is a duration above 0, of a year at most: seconds or a timedelta."""
    seconds = seconds_of(value)
    if isinstance(value, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST_TIMEOUT_SECONDS:
        raise InvalidOption(
            f"{option} is a number of seconds above 0, or a timedelta, of a year at most, not {value!r}."
        )


def seconds_of(value: Any) -> Any:
    """Return a timedelta as seconds, and anything else as it is, to be checked."""
    return value.total_seconds() if isinstance(value, dt.timedelta) else value


class HasUsername(Protocol):
    """A user, as Django's are."""

    def get_username(self) -> str:
        """Return the name that identifies the user."""


By = str | HasUsername
"""The user who acts on jobs, queues, schedules or workers: a name, or a user of Django; "" if it is not known."""


def name_of(by: Any) -> str:
    """Return the name of the user; raise InvalidOption unless it is a text that PostgreSQL can store."""
    name = by if isinstance(by, str) else getattr(by, "get_username", lambda: by)()
    if not isinstance(name, str) or not is_text(name):
        raise InvalidOption(f"by is a text without NUL or a user, not {by!r}.")
    return name


def check_snapshot(locks: Iterable[tuple[Any, ...]]) -> None:
    """Raise InvalidWorkflow unless the transaction sees commits of the time in which it waited for these locks.

    Args:
        locks: rows of a statement that locks workflows; the last column is the isolation level of the transaction.
    """
    levels = {level for *_, level in locks}
    if levels - {"read committed", "read uncommitted"}:
        raise InvalidWorkflow(
            f"The stages of a workflow cannot be changed at {', '.join(levels).upper()}: the transaction does not see "
            "which of them have opened or ended meanwhile. Do it in one at READ COMMITTED."
        )
