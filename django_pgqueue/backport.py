"""The backport ``django-tasks`` next to ``django.tasks``: some packages import it though Django has the framework.

Their tasks run as all others. They catch classes and connect to signals of the backport, so errors are of both
frameworks, and the signals of both are sent. The backport is never imported here: as long as no other module has
imported it, it has neither handlers of errors nor receivers. Of a release that lacks a name, as those before 0.9, the
rest is served.
"""

import functools
import logging
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

from django.dispatch import Signal

PACKAGE: Final = "django_tasks"
OF_BOTH: Final = frozenset({PACKAGE, "django_pgqueue"})
logger: Final = logging.getLogger(PACKAGE)

SPELLINGS: Final = {  # the backport's names for classes of Django's framework
    "InvalidTask": "InvalidTaskError",
    "InvalidTaskBackend": "InvalidTaskBackendError",
    "TaskResultDoesNotExist": "TaskResultDoesNotExist",
    "TaskResultMismatch": "TaskResultMismatch",
}

SIGNALS: Final = ("task_enqueued", "task_started", "task_finished")
BACKENDS: Final = ("default_task_backend", "task_backends")


def of_both(error: Exception) -> Exception:
    """Return an error of Django's framework as one of the backport as well, where that is in use; else as it is."""
    backport = sys.modules.get(f"{PACKAGE}.exceptions")
    kind: Any = type(error)  # mypy takes no class of exceptions for hashable
    if backport is None or not kind.__module__.startswith("django.tasks"):
        return error
    other = getattr(backport, SPELLINGS.get(kind.__name__, ""), None)
    if other is None:  # of a later release than that one
        return error
    joined: Exception = _joined(kind, other)(*error.args)
    return joined


@functools.cache
def _joined(kind: type[Exception], other: type[Exception]) -> type[Exception]:
    """Return the class of both; pickle finds the first by its name."""
    names = {name: getattr(kind, name) for name in ("__module__", "__doc__")}
    return type(kind.__name__, (kind, other), names | {"__reduce__": lambda self: (kind, self.args)})


def has_receivers(signals: ModuleType, name: str) -> bool:
    """Whether a signal of a framework has a receiver in addition to the framework's own, which writes the log."""
    own = id(getattr(signals, f"log_{name}", None))
    return any(receiver[0][0] != own for receiver in getattr(signals, name).receivers)


def signal_in_use(name: str, level: int | None = None) -> Signal | None:
    """Return the backport's signal of this name, if it has receivers; else None.

    Args:
        level: of the line that the backport's own receiver writes, which counts where ``LOGGING`` configures the
            logger ``django_tasks``; Django's has the same line. None: that receiver does not count.
    """
    signals = sys.modules.get(f"{PACKAGE}.signals")
    signal: Signal | None = getattr(signals, name, None)
    if signals is None or signal is None:
        return None
    is_logged = level is not None and (logger.level or logger.handlers) and logger.isEnabledFor(level)
    return signal if is_logged or has_receivers(signals, name) else None


def users() -> list[str]:
    """Return the names of the top-level packages that have imported anything from the backport, sorted."""
    if PACKAGE not in sys.modules:
        return []
    objects = {id(one) for one in _objects()}
    return sorted(
        {
            package
            for name, module in list(sys.modules.items())
            if (package := name.partition(".")[0]) not in OF_BOTH and isinstance(module, ModuleType)
            # Past a module that loads itself, or others, when it is asked for an attribute.
            for held in [ModuleType.__getattribute__(module, "__dict__")]
            if any(id(value) in objects or _is_of_backport(value) for value in list(held.values()))
        }
    )


def _objects() -> Iterator[Any]:
    """Yield the objects of the backport whose classes are not."""
    known = [(sys.modules[PACKAGE], BACKENDS), (sys.modules.get(f"{PACKAGE}.signals"), SIGNALS)]
    for module, names in known:
        for name in names:
            if (one := getattr(module, name, None)) is not None:  # releases differ in their names
                yield one


def _is_of_backport(value: Any) -> bool:
    """Return whether a value is a class, function or module of the backport, without asking lazy objects anything."""
    kind = type(value)
    if kind is ModuleType:
        name = value.__name__
    elif kind is FunctionType or issubclass(kind, type):
        name = value.__module__
    else:
        return False
    return isinstance(name, str) and name.partition(".")[0] == PACKAGE
