"""A job's arguments to be edited by people who may not see what is sensitive in them.

In place of each sensitive value stands a numbered placeholder. Wherever it is left, the value is put back; but only
where that is hidden again, for otherwise it would have been read by moving it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from django_pgqueue.jobs.redaction import REDACTED, shown
from django_pgqueue.registry import TaskDefinition


class Misplaced(ValueError):  # noqa: N818 - reads as what happened
    """A placeholder stands where its value cannot be put back; the message says which and why."""


@dataclass(frozen=True)
class Masked:
    """Arguments without what is sensitive.

    Attributes:
        kept: the sensitive values by their placeholders.
    """

    args: Any
    kwargs: Any
    kept: Mapping[str, Any]


def masked(task: TaskDefinition, args: Any, kwargs: Any) -> Masked:
    """Return arguments with placeholders. The same arguments get the same ones every time."""
    seen = shown(task, args, kwargs)
    masking = _Masking(json.dumps(seen, ensure_ascii=False))
    return Masked(masking.mask(seen[0], args), masking.mask(seen[1], kwargs), masking.kept)


def unmasked(task: TaskDefinition, args: Any, kwargs: Any, kept: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return edited arguments with the values put back.

    Raises:
        Misplaced: a placeholder is where its value would be seen, or is part of a longer text.
    """
    restored = _restored(args, kept), _restored(kwargs, kept)
    if isinstance(restored[0], list) and isinstance(restored[1], dict):
        seen = shown(task, *restored)
        for token in (*_in_sight(args, seen[0], kept), *_in_sight(kwargs, seen[1], kept)):
            raise Misplaced(
                _("%(placeholder)s stands where its value would be seen. Leave it where it was, or write a value.")
                % {"placeholder": token}
            )
    return restored


class _Masking:
    """One numbering, which leaves out what the arguments themselves have in them."""

    def __init__(self, text: str) -> None:
        self.kept: dict[str, Any] = {}
        self._text = text
        self._number = 0

    def mask(self, seen: Any, stored: Any) -> Any:
        match seen:
            case str() if seen == REDACTED and stored != REDACTED:
                token = self._next()
                self.kept[token] = stored
                return token
            case dict():
                return {key: self.mask(item, stored[key]) for key, item in seen.items()}
            case list():
                return [self.mask(item, one) for item, one in zip(seen, stored, strict=True)]
            case _:
                return stored

    def _next(self) -> str:
        while True:
            self._number += 1
            token = f"[redacted {self._number}]"
            if token not in self._text:
                return token


def _restored(value: Any, kept: Mapping[str, Any]) -> Any:
    match value:
        case str():
            if value in kept:
                return kept[value]
            if part := next((token for token in kept if token in value), None):
                raise Misplaced(
                    _("%(placeholder)s is part of a longer text, and its value cannot be put in there.")
                    % {"placeholder": part}
                )
            return value
        case dict():
            return {key: _restored(item, kept) for key, item in value.items()}
        case list():
            return [_restored(item, kept) for item in value]
        case _:
            return value


def _in_sight(given: Any, seen: Any, kept: Mapping[str, Any]) -> Iterator[str]:
    """Yield placeholders whose values, once put back, would not be hidden."""
    if isinstance(seen, str) and seen == REDACTED:
        return
    match given:
        case str() if given in kept:
            yield given
        case dict() if isinstance(seen, dict):
            for key, item in given.items():
                yield from _in_sight(item, seen.get(key), kept)
        case list() if isinstance(seen, list):
            for item, one in zip(given, seen, strict=False):
                yield from _in_sight(item, one, kept)
