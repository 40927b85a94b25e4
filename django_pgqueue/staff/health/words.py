"""Names in a sentence."""

from collections.abc import Sequence

from django.utils.translation import gettext as _

MOST_NAMED = 5


def named(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - MOST_NAMED
    text = ", ".join(names[:MOST_NAMED])
    return _("%(names)s and %(number)s more") % {"names": text, "number": more} if more > 0 else text
