"""Instants that tests give and rows have, which are naive where USE_TZ is off."""

import datetime as dt
from typing import Any

from django.conf import settings
from django.utils import timezone


def aware(instant: dt.datetime) -> dt.datetime:
    """Return an instant as it is, or that which a naive one means."""
    return instant if timezone.is_aware(instant) else timezone.make_aware(instant)


def checked(name: str, given: Any) -> Any:
    """Return a timedelta as it is, and a datetime as an aware one.

    Raises:
        TypeError: it is neither.
        ValueError: it is naive while USE_TZ is on.
    """
    if isinstance(given, dt.timedelta):
        return given
    if not isinstance(given, dt.datetime):
        raise TypeError(f"{name} is a datetime or a timedelta, not {given!r}.")
    if timezone.is_naive(given) and settings.USE_TZ:
        raise ValueError(f"{name} is naive ({given!r}) while USE_TZ is on. Use django.utils.timezone.make_aware().")
    return aware(given)
