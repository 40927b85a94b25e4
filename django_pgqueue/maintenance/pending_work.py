"""Find the work that is pending: for all passes in one query, the age of the oldest runnable job, drained or not."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from django_pgqueue.db.connections import Database
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs.queue_selector import QueueSelector


def is_drained(database: Database, *, served: QueueSelector, worker_ids: Sequence[int]) -> bool:
    """Whether nothing is claimable or due in these queues, but for paused ones, nor running in these processes."""
    parameters = served.parameters() | {"worker_ids": list(worker_ids)}
    [(unfinished,)] = database.rows(statement("is_drained"), parameters)
    return not unfinished


class PendingWork(NamedTuple):
    """The columns of ``pending_work.sql`` in their order."""

    due_seconds: float | None = None  # until the next scheduled job is due, 0 or less: now; None: none within two
    has_reserved: bool = False  # some whose time is over
    has_expired: bool = False  # jobs that were not started in time
    has_started: bool = False  # jobs that came back without their unique key
    has_limited: bool = False  # jobs that are not admitted yet
    has_running: bool = False
    has_queued: bool | None = None  # jobs to claim, those of paused queues too; None: not asked
    tick_seconds: float | None = None  # until the next tick of any schedule, 0 or less: now; None: there is none
    bulk_action_seconds: float | None = None  # until the next slice of any bulk action, the same
    has_stages: bool = False  # open ones
    has_moves: bool = False  # stages whose members are still to be opened, or removed
    has_late_workflows: bool = False  # open ones whose deadline has passed

    def next_seconds(self) -> float:
        ahead = (self.due_seconds, self.tick_seconds, self.bulk_action_seconds)
        return min((seconds for seconds in ahead if seconds is not None and seconds > 0), default=math.inf)


def is_over(seconds: float | None) -> bool:
    """Whether there is something that is due, by the seconds until then."""
    return seconds is not None and seconds <= 0


def pending_work(database: Database, *, is_idle: bool = False) -> PendingWork:
    """Ask for the pending work; for queued jobs too if the caller's own processes are idle."""
    [row] = database.rows(statement("pending_work"), {"is_idle": is_idle})
    return PendingWork._make(row)


def oldest_runnable(database: Database, served: QueueSelector) -> float:
    """Return the seconds that the oldest runnable job has waited; 0 if none waits.

    Paused and limited queues are left out: they hold jobs back on purpose, and no worker is unready because of that.
    """
    # most = 0: a due job that is not promoted counts for people, but makes no worker unready.
    rows = database.rows(statement("oldest_runnable"), {"most": 0})
    waited = [seconds for queue, seconds, holds_back in rows if not holds_back and served.place(queue) is not None]
    return max(waited, default=0.0)
