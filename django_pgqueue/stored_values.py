"""Read JSON out of a row that SQL may have written: any JSON that ``jsonb`` accepts, which is more than Python does.

Values that this code has encoded are never deeper than ``DEEPEST`` and never have such numbers. Where a value must be
exact, which it must for the run of a job, ``json.loads`` is used, and its exception is an error of the job.
"""

import datetime as dt
import json
import math
from typing import Any

from django.utils import timezone

DEEPEST = 100  # maximum nesting of arguments, metadata, progress and results; and of values that are shown of a row

MOST_DIGITS = 300  # of a whole number that is read as one: it can be a float too


class Unreadable(str):
    """A text in place of a value that Python cannot hold, or that is too deep to be read."""

    __slots__ = ()


TOO_DEEP = Unreadable("[nested too deeply to be shown]")
NO_JSON = Unreadable("[cannot be shown]")


def read(text: str) -> Any:
    """Return JSON as Python has it; never raises.

    A number that Python refuses is the text of its digits. A value nested deeper than ``DEEPEST`` is ``TOO_DEEP``.
    """
    try:
        value = json.loads(text, parse_int=_whole, parse_float=_fraction)
    except RecursionError:
        return TOO_DEEP
    except ValueError:
        return NO_JSON
    return value if may_not_be_deep(text) else _pruned(value)


def read_exactly(text: str) -> Any:
    """Return JSON as ``json.loads`` does, for programs; as ``read`` does where that raises, or would nest too deeply.

    Later Pythons read what no recursive function can walk.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return read(text)
    return value if may_not_be_deep(text) else _pruned(value)


def read_object(text: str | None) -> dict[str, Any]:
    """Return the same where it is an object; else an empty one."""
    value = read(text) if text else None
    return value if isinstance(value, dict) else {}


def is_whole(value: Any) -> bool:
    """Whether a value that was read has no replacement of another value in it."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, Unreadable):
            return False
        if isinstance(one, dict | list):
            pending += one.values() if isinstance(one, dict) else one
    return True


def may_not_be_deep(text: str) -> bool:
    """Whether JSON has too few brackets to be nested deeper than ``DEEPEST``: a look that costs next to nothing."""
    return text.count("[") + text.count("{") <= DEEPEST


def _whole(digits: str) -> int | str:
    return int(digits) if len(digits) <= MOST_DIGITS else Unreadable(digits)


def _fraction(digits: str) -> float | str:
    value = float(digits)
    return value if math.isfinite(value) else Unreadable(digits)


def _pruned(value: Any) -> Any:
    pending = [(value, 1)] if isinstance(value, dict | list) else []
    while pending:
        one, depth = pending.pop()
        for key, item in list(one.items() if isinstance(one, dict) else enumerate(one)):
            if isinstance(item, dict | list):
                if depth == DEEPEST:
                    one[key] = TOO_DEEP
                else:
                    pending.append((item, depth + 1))
    return value


def aware(instant: dt.datetime) -> dt.datetime:
    """Return an instant with its zone: where ``USE_TZ`` is off, Django reads it without, in that of the settings."""
    return instant if timezone.is_aware(instant) else timezone.make_aware(instant)


def seconds_between(begin: dt.datetime, end: dt.datetime) -> float:
    """Return the time from one instant to another. Clocks may be put between them, which those without a zone show."""
    return (aware(end).astimezone(dt.UTC) - aware(begin).astimezone(dt.UTC)).total_seconds()


def in_utc(instant: dt.datetime) -> dt.datetime:
    """Return an instant that was read AT TIME ZONE 'UTC', with its zone: it is the same where ``USE_TZ`` is off."""
    return instant.replace(tzinfo=dt.UTC)


def only_texts(array: Any) -> list[str] | None:
    """Return an array of texts without NULL and arrays in it, which only SQL inserts."""
    return None if array is None else [one for one in array if isinstance(one, str)]
