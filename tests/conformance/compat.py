"""The framework by one set of names: ``django.tasks`` since Django 6.0, and the backport ``django-tasks`` before."""

import inspect

import django

if django.VERSION >= (6, 0):
    from django.tasks import default_task_backend, task, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist, TaskResultMismatch
    from django.tasks.signals import task_enqueued, task_finished, task_started

    FRAMEWORK = "django.tasks"
else:
    from django_tasks import default_task_backend, task, task_backends
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
    from django_tasks.exceptions import InvalidTaskError as InvalidTask
    from django_tasks.exceptions import TaskResultDoesNotExist, TaskResultMismatch
    from django_tasks.signals import task_enqueued, task_finished, task_started

    FRAMEWORK = "django_tasks"  # also the name of its logger

SIGNALS = {"task_enqueued": task_enqueued, "task_started": task_started, "task_finished": task_finished}
FORWARDS_OPTIONS = any(
    parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in inspect.signature(task).parameters.values()
)
"""Whether ``@task`` hands further keywords on to the backend's task class; Django 6.0 does not."""

PICKLES = django.VERSION >= (6, 1)

__all__ = [
    "FORWARDS_OPTIONS",
    "FRAMEWORK",
    "PICKLES",
    "SIGNALS",
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
    "default_task_backend",
    "task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]
