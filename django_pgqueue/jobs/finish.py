"""End the running job in a transaction of its task: both take effect, or neither.

``atomic=True`` does that around the whole function of a plain task; ``finish_job()`` around a part, also of one that
``async def`` calls by ``sync_to_async``.
"""

import contextlib
import time
from collections.abc import Generator
from typing import Any

from django.db import connections, transaction

from django_pgqueue.exceptions import JobKilled, LeaseLost
from django_pgqueue.jobs.context import CurrentJob, current_job
from django_pgqueue.jobs.executor import success, write_success
from django_pgqueue.records import Fate, Outcome


class JobEnd:
    """The end that ``finish_job()`` writes down.

    Attributes:
        result: of the job, in place of what the function returns.
    """

    result: Any = None


@contextlib.contextmanager
def finish_job() -> Generator[JobEnd]:
    """Commit the writes of a block in one transaction with the end of the running job, which has succeeded then.

    ``with finish_job() as end:`` is ``transaction.atomic()`` on the queue's database, whose last statement removes the
    job. An exception in the block rolls it back, and may be raised to let the job be tried again. After the block the
    job is over: what the task raises then is logged and changes nothing, and its return value is not stored. Nothing
    interrupts the removal and the commit.

    The code of the block is sync: an ``async def`` task calls a function that has it by ``sync_to_async``. In a job
    that is in no table, as in tests, and in ``pgqueue_jobs try`` it is ``transaction.atomic()`` alone.

    Yields:
        The end of the job, to be given a result.

    Raises:
        NoCurrentJob: the calling code runs for no job.
        LeaseLost: another worker has the job, or it has ended; everything is rolled back.
        RuntimeError: a transaction is open on the queue's database, as that of ``atomic=True``.
    """
    current, end = current_job(), JobEnd()
    if not current.lease_token or current.is_trial:
        with transaction.atomic(using=current.database):
            yield end
        return
    if current.ended is not None:
        raise LeaseLost(f"Job {current.id} ({current.task}) has ended: finish_job() ends it once.")
    outcome: Outcome | None = None

    def committed() -> None:
        current.ended = outcome

    try:
        with transaction.atomic(using=current.database, durable=True):
            connections[current.database].on_commit(committed)  # the first hook: one that raises ends the others
            yield end
            outcome = _end(current, end.result)
        committed()  # in a test, whose transaction is never committed
    finally:
        if current.interrupts is not None:
            current.interrupts.go_on(current)


def _end(current: CurrentJob, result: Any) -> Outcome:
    """Write the success, as the last statement of the transaction that is open."""
    if current.interrupts is not None:
        current.interrupts.pause(current)
    if current.is_kill_requested:
        raise JobKilled
    outcome = success(current, result)
    outcome.run_seconds = time.perf_counter() - current.begun_at
    write_success(outcome, current)
    outcome.fate = Fate.RECORDED
    return outcome
