"""Names of Django's Tasks framework, by either spelling: ``django.tasks``, or the backport ``django-tasks``.

Import it late, and only where the framework is in use: projects that have neither use their own tasks all the same.
"""

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from django.dispatch import Signal

from django_pgqueue import backport
from django_pgqueue.exceptions import ConfigurationError

if TYPE_CHECKING or find_spec("django.tasks"):
    from django.tasks import TaskContext, TaskResult, TaskResultStatus, signals, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist, TaskResultMismatch
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

    NAME = "django.tasks"
elif find_spec("django_tasks"):
    from django_tasks import TaskContext, TaskResult, TaskResultStatus, signals, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

    NAME = "django_tasks"
else:
    raise ConfigurationError(
        "Django has its Tasks framework from 6.0 on. Before, install the backport: pip install django-tasks "
        "and add 'django_tasks' to INSTALLED_APPS. The @task of django_pgqueue itself needs neither."
    )

if TYPE_CHECKING:
    AnyTask = Task[..., Any]
    AnyTaskResult = TaskResult[..., Any]
else:
    AnyTask, AnyTaskResult = Task, TaskResult

logger: Final = logging.getLogger(NAME)

NAMES: Final = {getattr(signals, name): name for name in backport.SIGNALS}
HAS_BACKPORT_BESIDE: Final = NAME != backport.PACKAGE


def has_receivers(signal: Signal) -> bool:
    """Whether one of its signals, or that of the backport, has receivers outside the framework."""
    return backport.has_receivers(signals, NAMES[signal]) or _beside(signal) is not None


def has_receiver(signal: Signal, level: int) -> bool:
    """Whether anything comes of one of its signals, which it logs at this level."""
    return logger.isEnabledFor(level) or has_receivers(signal) or _beside(signal, level) is not None


def send(signal: Signal, sender: type, result: AnyTaskResult, *, level: int) -> None:
    """Send one of its signals, which it logs at this level, and that of the backport, if it has receivers."""
    signal.send_robust(sender, task_result=result)
    if other := _beside(signal, level):
        other.send_robust(sender, task_result=result)


async def asend(signal: Signal, sender: type, result: AnyTaskResult, *, level: int) -> None:
    """Do what ``send`` does from async code."""
    await signal.asend_robust(sender, task_result=result)
    if other := _beside(signal, level):
        await other.asend_robust(sender, task_result=result)


def _beside(signal: Signal, level: int | None = None) -> Signal | None:
    return backport.signal_in_use(NAMES[signal], level) if HAS_BACKPORT_BESIDE else None


__all__ = [
    "AnyTask",
    "AnyTaskResult",
    "BaseTaskBackend",
    "InvalidTask",
    "InvalidTaskBackend",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultMismatch",
    "TaskResultStatus",
    "asend",
    "has_receiver",
    "has_receivers",
    "normalize_json",
    "send",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
