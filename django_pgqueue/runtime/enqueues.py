"""Tells which jobs this process enqueues, once they are committed."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import transaction
from django.db.transaction import TransactionManagementError

from django_pgqueue.base.signals import job_enqueued


def tell_of_enqueued(note: Callable[[str, str, int], None]) -> None:
    """Call ``note`` from here on with queue, task and number, in the thread that has enqueued and committed."""

    def tell(*, ids: Sequence[int], queue: str, task: str, database: str, **_: Any) -> None:
        told = partial(note, queue, task, len(ids))
        try:
            transaction.on_commit(told, using=database, robust=True)
        except TransactionManagementError:  # autocommit is switched off: nobody tells of a commit
            told()

    job_enqueued.connect(tell, weak=False)
