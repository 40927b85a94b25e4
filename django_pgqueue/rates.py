"""Rates: a number of jobs in a period, written as ``60/m``."""

import re
from typing import Any, NamedTuple

from django_pgqueue.exceptions import InvalidLimit
from django_pgqueue.states import LONGEST_PERIOD_SECONDS

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

MOST = 1_000_000  # jobs in a period

SHAPE = re.compile(r"(\d{1,7})/(\d{1,8}(?:\.\d{1,20})?)?([smhdw])", re.ASCII)


class Rate(NamedTuple):
    """A number of jobs in a period, 1 to 1,000,000 in up to a year."""

    number: int
    period_seconds: float


def rate_of(value: Any) -> Rate:
    """Return a rate: of a whole number, that many a second; of a text, as in ``100/s``, ``60/m`` or ``5/10s``.

    Raises:
        InvalidLimit: it is neither, or the number is not 1 to 1,000,000, or the period not above 0 and up to a year.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        rate = Rate(value, 1.0)
    elif isinstance(value, str) and (match := SHAPE.fullmatch(value)):
        rate = Rate(int(match[1]), float(match[2] or 1) * UNITS[match[3]])
    else:
        raise InvalidLimit(
            f"A rate is a whole number, of jobs a second, or a text as in 100/s, 60/m or 5/10s, not {value!r}."
        )
    if not 1 <= rate.number <= MOST or not 0 < rate.period_seconds <= LONGEST_PERIOD_SECONDS:
        raise InvalidLimit(f"A rate is 1 to {MOST:,} jobs in a period above 0 and of a year at most, not {value!r}.")
    return rate
