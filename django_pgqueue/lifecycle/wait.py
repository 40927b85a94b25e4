"""Look whether jobs have ended, and see to it that their end is announced. ``runtime.waiting`` waits for it."""

from collections.abc import Mapping
from typing import NamedTuple

from django_pgqueue.base.conf import conf
from django_pgqueue.base.states import Status
from django_pgqueue.db import QueueConnection, number_array
from django_pgqueue.lifecycle.sql import statement
from django_pgqueue.lifecycle.wake import announce_or_warn, of_queue


class Live(NamedTuple):
    """A job that has not ended."""

    status: str
    is_noted: bool  # its end will be announced


def look(database: QueueConnection, wanted: Mapping[int, bool]) -> dict[int, Live]:
    """Return which of some jobs live, in a transaction of its own.

    A claim that comes just when a queued job is noted steps over the row, so workers are woken to look again.

    Args:
        wanted: for each job, whether its end is to be announced.
    """
    parameters = {"ids": number_array(wanted), "wanted": list(wanted.values())}
    rows = database.rows(statement("await_jobs"), parameters)
    missed = {queue for _, status, queue, _, is_new in rows if is_new and status == Status.QUEUED}
    if missed and conf.notify:
        announce_or_warn(database, sorted(map(of_queue, missed)))
    return {job_id: Live(status, is_noted) for job_id, status, _, is_noted, _ in rows}
