"""The user who acts on jobs, queues, schedules or workers: ``by`` of all actions."""

from typing import Any, Protocol

from django_pgqueue.exceptions import InvalidOption
from django_pgqueue.validation import is_text

UNNAMED = "a user"  # in the log, of one who is not named


class HasUsername(Protocol):
    """A user, as Django's are."""

    def get_username(self) -> str:
        """Return the name that identifies the user."""


By = str | HasUsername
"""A name, or a user, whose username it is; "" where it is not known."""


def name_of(by: Any) -> str:
    """Return the name of the user; raise InvalidOption unless it is a text that PostgreSQL can store."""
    name = by if isinstance(by, str) else getattr(by, "get_username", lambda: by)()
    if not isinstance(name, str) or not is_text(name):
        raise InvalidOption(f"by is a text without NUL or a user, not {by!r}.")
    return name
