"""Many jobs at once."""

from collections.abc import Iterable, Mapping
from typing import Any

from django_pgqueue import Task


def enqueued_ids(task: Task[..., Any], calls: Iterable[tuple[Any, ...] | Mapping[str, Any]]) -> list[int]:
    """Enqueue many jobs of a task by one statement; return their ids."""
    return [handle.id for handle in task.enqueue_many(calls)]
