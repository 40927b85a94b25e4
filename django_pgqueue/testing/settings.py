"""Override settings under ``PGQUEUE`` in tests, and keep those that are not named."""

import difflib
from typing import Any, Literal, TypeVar, Unpack

from django.conf import settings
from django.test.utils import TestContextDecorator, override_settings

from django_pgqueue.conf import SETTINGS, PgQueueSettings

T = TypeVar("T")


class override_pgqueue(TestContextDecorator):  # noqa: N801 - as override_settings
    """Override keys of ``PGQUEUE``: a context manager, and a decorator of functions and of Django's test cases.

    Unlike ``override_settings(PGQUEUE={…})``, which replaces the whole dict, it leaves the other keys as they are. Of a
    class these are the settings at the time when the class is defined.

    Args:
        changes: keys of ``PGQUEUE`` and their values.

    Raises:
        TypeError: there is no such setting.
    """

    def __init__(self, **changes: Unpack[PgQueueSettings]) -> None:
        super().__init__()
        for key in changes.keys() - SETTINGS.keys():
            near = difflib.get_close_matches(key, SETTINGS, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(SETTINGS)}."
            raise TypeError(f"PGQUEUE has no setting {key}. {hint}")
        self._changes = changes
        self._entered: list[override_settings] = []  # the last one last: it may be entered again inside itself

    def enable(self) -> None:
        override = self._override(getattr(settings, "PGQUEUE", {}))
        override.enable()
        self._entered.append(override)

    def disable(self) -> None:
        self._entered.pop().disable()

    def decorate_class(self, cls: type[T]) -> type[T]:
        given = getattr(cls, "_overridden_settings", None) or {}
        decorated: type[T] = self._override(given.get("PGQUEUE", getattr(settings, "PGQUEUE", {})))(cls)
        return decorated

    def _override(self, before: dict[str, Any]) -> override_settings:
        return override_settings(PGQUEUE={**before, **self._changes})


def immediate(*, errors: Literal["raise", "log"] = "raise") -> override_pgqueue:
    """Let jobs run in the process that enqueues them, when their transaction has committed.

    A context manager, and a decorator of functions and of Django's test cases; see ``PGQUEUE["IMMEDIATE"]``.

    Args:
        errors: ``"raise"`` the error of a job where the transaction commits, or only ``"log"`` it.
    """
    return override_pgqueue(IMMEDIATE=True, IMMEDIATE_ERRORS=errors)
