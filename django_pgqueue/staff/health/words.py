"""Names in a sentence."""

from collections.abc import Sequence

from django.utils.translation import gettext as _

from django_pgqueue.staff.terminal import cut

MOST_NAMED = 5
WIDEST = 200
"""Names and problems are cut to so many columns: one may be as large as a job."""


def named(names: Sequence[str]) -> str:
    """Return the first few names, the middle of long ones left out, and how many more there are."""
    more = len(names) - MOST_NAMED
    text = ", ".join(cut(name, WIDEST) for name in names[:MOST_NAMED])
    return _("%(names)s and %(number)s more") % {"names": text, "number": more} if more > 0 else text
