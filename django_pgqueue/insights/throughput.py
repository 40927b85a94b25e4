"""Rates and run times from the counts per minute.

It is read from ``pgqueue_stats``, to which workers add every ten seconds: the latest figures are that old. Nothing here
opens a transaction or sets a time limit; the caller does. ``now`` is for tests; None: the database's clock.
"""

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs.stats import percentile
from django_pgqueue.models import Job
from django_pgqueue.states import Status
from django_pgqueue.stored_values import in_utc

HOUR, DAY = 60, 1440  # minutes
QUARTER = 15
RECENT_MINUTES = 5  # the last ones, from which the pace of a queue is computed

MOST_COUNTED = 10_000
MOST_TASKS = 1_000

FAILING_SHARE = 0.5
LATE = 0.95
SHARES = (0.5, LATE, 0.99)  # the percentiles that are shown


class StatsCounts(NamedTuple):
    """Sums over some time; the columns of ``throughput.sql``."""

    succeeded: int = 0  # attempts
    failed: int = 0  # attempts, for good or not
    retried: int = 0  # of these: the job runs again
    died: int = 0  # jobs that went to the dead jobs
    lost: int = 0  # attempts whose worker died
    stale: int = 0  # results that were dropped, because the lease was lost
    wait_seconds: float = 0.0  # from run_at to the claim
    run_seconds: float = 0.0

    @property
    def ended(self) -> int:
        """Attempts that ran to an end of their own, good or bad."""
        return self.succeeded + self.failed

    @property
    def left(self) -> int:
        """Jobs that are done with, one way or the other."""
        return self.succeeded + self.died

    @property
    def attempts(self) -> int:
        return self.ended + self.lost

    @property
    def failure_rate(self) -> float | None:
        """The share of attempts that failed or were lost, 0 to 1; None where there were none."""
        return (self.failed + self.lost) / self.attempts if self.attempts else None

    @property
    def is_failing(self) -> bool:
        """Whether most attempts failed or were lost."""
        return (self.failure_rate or 0.0) >= FAILING_SHARE

    @property
    def mean_wait_seconds(self) -> float | None:
        """Mean seconds from when jobs were due until they started; None where none has ended."""
        return self.wait_seconds / self.ended if self.ended else None

    @property
    def mean_run_seconds(self) -> float | None:
        return self.run_seconds / self.ended if self.ended else None


class Interval(NamedTuple):
    """The work of one stretch of time; the last one of a series is not over."""

    begins_at: dt.datetime  # in UTC
    counts: StatsCounts


class Totals(NamedTuple):
    series: list[Interval]  # the oldest first
    by_queue: dict[str, StatsCounts]  # of all stretches; queues without anything are left out


def per_minute(alias: str, *, queue: str | None = None, now: dt.datetime | None = None) -> list[Interval]:
    """Return the work done in each minute of the last hour, the oldest first; of one queue, or of all."""
    return _read(alias, minutes=1, number=HOUR, queue=queue, now=now).series


def of_day(alias: str, *, now: dt.datetime | None = None) -> Totals:
    """Return the work done in the last day, by quarters of an hour and by queue: a day's counts are read only once."""
    return _read(alias, minutes=QUARTER, number=DAY // QUARTER, by_queue=True, now=now)


def total(series: Iterable[Interval]) -> StatsCounts:
    return _sum(stretch.counts for stretch in series)


def backlog(alias: str, queue: str) -> int:
    """Return how many jobs are queued: counted up to 10,000, beyond that as the planner estimates."""
    queued = Job.objects.using(alias).filter(queue=queue, status=Status.QUEUED)
    counted = queued[: MOST_COUNTED + 1].count()
    if counted <= MOST_COUNTED:
        return counted
    [plan] = json.loads(queued.explain(format="json"))
    return max(int(plan["Plan"]["Plan Rows"]), counted)


def empty_in_seconds_of(waiting: int, recent: StatsCounts, *, seconds: float = RECENT_MINUTES * 60) -> float | None:
    """Predict the seconds until a queue is empty, at the pace of ``recent`` (in ``seconds``), if nothing more comes.

    Jobs that come back after a failure are not progress. None: nothing was done meanwhile, and nothing can be said.
    """
    if not waiting:
        return 0.0
    return waiting * seconds / recent.left if recent.left else None


def _sum(counts: Iterable[StatsCounts]) -> StatsCounts:
    return StatsCounts(*map(sum, zip(*counts, strict=True)))


def _read(
    alias: str, *, minutes: int, number: int, queue: str | None = None, by_queue: bool = False, now: dt.datetime | None
) -> Totals:
    """Read the last ``number`` stretches of ``minutes`` each."""
    parameters = {"minutes": minutes, "number": number, "queue": queue, "by_queue": by_queue, "now": now}
    stretches: dict[dt.datetime, list[StatsCounts]] = defaultdict(list)
    queues: dict[str, list[StatsCounts]] = defaultdict(list)
    for begins_at, name, *sums in CallerConnection(alias).rows(statement("throughput"), parameters):
        counts = StatsCounts(*sums)
        stretches[in_utc(begins_at)].append(counts)
        if name is not None:
            queues[name].append(counts)
    series = [Interval(begins_at, _sum(stretches[begins_at])) for begins_at in sorted(stretches)]
    return Totals(series, {name: _sum(counts) for name, counts in queues.items()})


# The last minutes
#
# Other than the series above, they include the minute that is not over, but for the pace of a queue: a page about now
# shows what began now. And of waiting and running times they have percentiles, not the mean alone.


class RecentWork(NamedTuple):
    counts: StatsCounts = StatsCounts()
    wait_buckets: Sequence[int] = ()  # how many jobs waited, in the buckets of ``jobs.stats``
    run_buckets: Sequence[int] = ()  # the same of how long they ran

    def wait_seconds(self, share: float) -> float | None:
        """Return how long a share of the jobs has waited for a worker at most, about; None where there were none."""
        return percentile(self.wait_buckets, share)

    def run_seconds(self, share: float) -> float | None:
        return percentile(self.run_buckets, share)


def recent_by_queue(alias: str, *, minutes: int, now: dt.datetime | None = None) -> dict[str, RecentWork]:
    """Return the work done in each queue in the last minutes and this one; queues without anything are left out."""
    return {queue: done for (queue, _task), done in _recent(alias, minutes=minutes, now=now).items()}


def by_queue(alias: str, *, minutes: int = RECENT_MINUTES, now: dt.datetime | None = None) -> dict[str, StatsCounts]:
    """Return the work done in each queue in the last full minutes; queues without anything are left out."""
    found = _recent(alias, minutes=minutes, only_full_minutes=True, now=now)
    return {queue: done.counts for (queue, _task), done in found.items()}


def by_task(
    alias: str, *, minutes: int, limit: int = MOST_TASKS, now: dt.datetime | None = None
) -> dict[tuple[str, str], RecentWork]:
    """Return the work done in the last minutes and this one by queue and task; those that took most time first."""
    return _recent(alias, minutes=minutes, by_task=True, limit=limit, now=now)


def _recent(
    alias: str,
    *,
    minutes: int,
    by_task: bool = False,
    only_full_minutes: bool = False,
    limit: int | None = None,
    now: dt.datetime | None,
) -> dict[tuple[str, str], RecentWork]:
    parameters = {
        "minutes": minutes,
        "by_task": by_task,
        "only_full_minutes": only_full_minutes,
        "limit": limit,
        "now": now,
    }
    rows = CallerConnection(alias).rows(statement("throughput_recent"), parameters)
    return {(queue, task): RecentWork(StatsCounts(*sums), waited, ran) for queue, task, *sums, waited, ran in rows}
