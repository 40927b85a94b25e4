"""What goes on at the moment, by queue and by task: how much was done in the last minutes, and how long it took.

Other than in ``flow``, the minute that is not over belongs to them: who looks now wants to see what began now. And of
how long jobs waited and ran there is more to tell than the mean.
"""

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs.stats import percentile
from django_pgqueue.staff.flow import Counts

LATE = 0.95
SHARES = (0.5, LATE, 0.99)
"""The percentiles that are shown."""

MOST_TASKS = 1_000


class Recent(NamedTuple):
    """What was done.

    Attributes:
        wait_buckets: how many jobs waited for so and so long, as ``base.buckets`` counts them.
        run_buckets: the same of how long they ran.
    """

    counts: Counts = Counts()
    wait_buckets: Sequence[int] = ()
    run_buckets: Sequence[int] = ()

    def wait_seconds(self, share: float) -> float | None:
        """Return how long a share of the jobs has waited for a worker at most, about; None where there were none."""
        return percentile(self.wait_buckets, share)

    def run_seconds(self, share: float) -> float | None:
        """Return the same of how long they have run."""
        return percentile(self.run_buckets, share)


def by_queue(alias: str, *, minutes: int, now: dt.datetime | None = None) -> dict[str, Recent]:
    """Return what was done in each queue in the last minutes and this one; queues without anything are left out."""
    rows = CallerConnection(alias).rows(statement("recent_by_queue"), {"minutes": minutes, "now": now})
    return {queue: _recent(row) for queue, *row in rows}


def by_task(
    alias: str, *, minutes: int, limit: int = MOST_TASKS, now: dt.datetime | None = None
) -> dict[tuple[str, str], Recent]:
    """Return the same by queue and task; those that took most time, and these first."""
    parameters = {"minutes": minutes, "limit": limit, "now": now}
    rows = CallerConnection(alias).rows(statement("recent_by_task"), parameters)
    return {(queue, task): _recent(row) for queue, task, *row in rows}


def _recent(row: Sequence[object]) -> Recent:
    *sums, waited, ran = row
    return Recent(Counts(*sums), waited, ran)  # type: ignore[arg-type]
