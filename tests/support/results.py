"""Jobs that end, and callers that ask for their results."""

from collections.abc import Callable

import pytest
from asgiref.sync import async_to_sync

from django_pgqueue.db.notify import notify_waiters
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.records import Fate, Outcome
from tests.support.waiting import PATIENCE_SECONDS, eventually

SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()"


def end(queue, fate=Fate.SUCCEEDED, *, tells=True, **values) -> list[int]:
    """Claim all jobs, and end them as a consumer does."""
    jobs = claim(queue, "default", limit=1000, worker_id=1)
    receipt = ack.write(queue, [Outcome(one, fate, **values) for one in jobs])
    if tells:
        notify_waiters(queue, receipt.awaited)
    return [one.id for one in jobs]


def end_soon(queue, **values) -> list[int]:
    """End jobs that a waiter may just be noting, in rows that a claim steps over then; return those that ended."""
    return eventually(lambda: end(queue, **values))


def ways(handle) -> list:
    """Return all ways to ask for the result of a job that will not end any more."""
    return [
        handle.result,
        lambda: handle.result(timeout=PATIENCE_SECONDS),
        async_to_sync(handle.aresult),
        lambda: async_to_sync(handle.aresult)(PATIENCE_SECONDS),
    ]


def said_too_late(wait: Callable[[], object]) -> str:
    """Return what a short wait says when it is over: that may be before the first look at the job."""
    with pytest.raises(TimeoutError) as told:
        wait()
    return str(told.value)
