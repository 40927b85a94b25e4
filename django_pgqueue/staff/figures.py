"""Numbers as people write them: 1,234.5 in English, 1.234,5 in German."""

from decimal import Decimal

from django.utils.formats import number_format


def whole(number: int) -> str:
    """Return a number with its thousands apart."""
    return str(number_format(number, force_grouping=True))


def at_most(number: int, cap: int) -> str:
    """Return a number that was counted up to a cap; behind that stands a plus."""
    return f"{whole(cap)}+" if number > cap else whole(number)


def short(number: float, digits: int = 3) -> str:
    """Return a number by its first digits."""
    return str(number_format(Decimal(f"{number:.{digits}g}")))
