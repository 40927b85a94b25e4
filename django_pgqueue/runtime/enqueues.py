"""Tells which jobs this process enqueues, once they are committed."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import connections

from django_pgqueue.signals import job_enqueued


def tell_of_enqueued(note: Callable[[str, str, int], None]) -> None:
    """Call ``note`` from here on with queue, task and number, in the thread that has enqueued and committed."""

    def tell(*, ids: Sequence[int], queue: str, task: str, database: str, **_: Any) -> None:
        told, connection = partial(note, queue, task, len(ids)), connections[database]
        if connection.in_atomic_block:
            connection.on_commit(told, robust=True)
        else:  # committed, or autocommit is switched off and nobody tells of a commit; to ask which would connect
            told()

    job_enqueued.connect(tell, weak=False)
