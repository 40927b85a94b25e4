"""Exceptions after which a job is not tried again. Pure."""

import functools
import inspect
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django_pgqueue.base.exceptions import InvalidJob

Kind = type[Exception] | str
DiscardOn = Kind | Iterable[Kind]
"""A class of exceptions, its dotted path, or several of them."""


@dataclass(frozen=True)
class Discards:
    """The classes that a task, or the settings, name; a dotted path is imported when it is first needed."""

    kinds: tuple[Kind, ...] = ()

    @classmethod
    def of(cls, given: Any) -> "Discards":
        """Make them of what ``discard_on`` says.

        Raises:
            InvalidJob: it is no class of exceptions, no dotted path, nor several of these.
        """
        try:
            kinds = (given,) if isinstance(given, str) or inspect.isclass(given) else tuple(given)
        except TypeError:
            kinds = (given,)
        if not all(_is_kind(kind) for kind in kinds):
            raise InvalidJob(
                f"discard_on is a class of exceptions, its dotted path, or a tuple of them, not {given!r}."
            )
        return cls(kinds)

    def has(self, error: BaseException) -> bool:
        """Return whether an exception is of one of the classes.

        Raises:
            InvalidJob: a dotted path leads to none.
        """
        return bool(self.kinds) and isinstance(error, self.classes)

    @functools.cached_property
    def classes(self) -> tuple[type[Exception], ...]:
        """The classes themselves. Raises InvalidJob where a dotted path leads to none."""
        return tuple(_imported(kind) if isinstance(kind, str) else kind for kind in self.kinds)


def _is_kind(kind: Any) -> bool:
    return "." in kind if isinstance(kind, str) else inspect.isclass(kind) and issubclass(kind, Exception)


def _imported(path: str) -> type[Exception]:
    try:
        kind = pkgutil.resolve_name(path)
    except (Exception, SystemExit) as error:  # a module may raise anything, and leave
        raise InvalidJob(f"discard_on names {path!r}, which cannot be imported: {error}") from error
    if not inspect.isclass(kind) or not issubclass(kind, Exception):
        raise InvalidJob(f"discard_on names {path!r}, which is no class of exceptions.")
    return kind
