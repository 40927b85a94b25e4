"""The names of Django's Tasks framework, by either spelling: ``django.tasks``, or the backport ``django-tasks``.

Import it late, and only where the framework is in use: projects that have neither use their own tasks all the same.
"""

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from django.dispatch import Signal

from django_pgqueue.base.exceptions import ConfigurationError

if TYPE_CHECKING or find_spec("django.tasks"):
    from django.tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
    from django.tasks.signals import (
        log_task_enqueued,
        log_task_finished,
        log_task_started,
        task_enqueued,
        task_finished,
        task_started,
    )
    from django.utils.json import normalize_json

    NAME = "django.tasks"
elif find_spec("django_tasks"):
    from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import (
        log_task_enqueued,
        log_task_finished,
        log_task_started,
        task_enqueued,
        task_finished,
        task_started,
    )
    from django_tasks.utils import normalize_json

    NAME = "django_tasks"
else:
    raise ConfigurationError(
        "Django has its Tasks framework from 6.0 on. Before, install the backport: pip install 'django-pgqueue[tasks]' "
        "and add 'django_tasks' to INSTALLED_APPS. The @task of django_pgqueue itself needs neither."
    )

if TYPE_CHECKING:
    AnyTask = Task[..., Any]
    AnyTaskResult = TaskResult[..., Any]
else:
    AnyTask, AnyTaskResult = Task, TaskResult

logger: Final = logging.getLogger(NAME)

OWN_RECEIVERS: Final = {
    task_enqueued: log_task_enqueued,
    task_started: log_task_started,
    task_finished: log_task_finished,
}
"""What the framework itself does with its signals: it writes them to its log."""


def has_receivers(signal: Signal) -> bool:
    """Whether anybody but the framework itself listens to one of its signals."""
    own = id(OWN_RECEIVERS[signal])
    return any(receiver[0][0] != own for receiver in signal.receivers)


def is_heard(signal: Signal, level: int) -> bool:
    """Whether anything comes of one of its signals, which it logs at this level."""
    return logger.isEnabledFor(level) or has_receivers(signal)


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
    "TaskResultStatus",
    "has_receivers",
    "is_heard",
    "normalize_json",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
