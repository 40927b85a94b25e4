"""Numbers as people write them: 1,234.5 in English, 1.234,5 in German; and rates as the command line takes them."""

from decimal import Decimal

from django.utils.formats import number_format

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def whole(number: int) -> str:
    """Return a number with its thousands apart."""
    return str(number_format(number, force_grouping=True))


def at_most(number: int, cap: int) -> str:
    """Return a number that was counted up to a cap; behind that stands a plus."""
    return f"{whole(cap)}+" if number > cap else whole(number)


def short(number: float, digits: int = 3) -> str:
    """Return a number by its first digits."""
    return str(number_format(Decimal(f"{number:.{digits}g}")))


def rate(number: int, period_seconds: float) -> str:
    """Return a rate as the command line takes it: ``100/s``, ``60/m`` or ``5/10s``."""
    unit = next((unit for unit in ("w", "d", "h", "m") if period_seconds % UNITS[unit] == 0), "s")
    length = period_seconds / UNITS[unit]
    return f"{number}/{unit}" if length == 1 else f"{number}/{length:.10g}{unit}"
