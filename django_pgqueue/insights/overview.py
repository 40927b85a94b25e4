"""Queues in numbers: counts, ages, rates, and how each is limited."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.flow.backlog import max_backlog
from django_pgqueue.flow.declared_queues import DeclaredQueue, start_within
from django_pgqueue.insights import formatting, throughput
from django_pgqueue.insights.formatting import columns, grouped, when
from django_pgqueue.insights.throughput import RecentWork
from django_pgqueue.jobs.queue_selector import QueueSelector
from django_pgqueue.models import Queue, Worker

MOST_QUEUES = 1000
OLD_SECONDS = 15 * 60  # from then on a job that could run has waited too long, unless its queue says otherwise

NUMBERS = ("queued", "running", "limited")
HEAD = ("queue", *NUMBERS, "limits", "paused")

PAUSED = Q(paused_at__isnull=False) & (Q(resume_at=None) | Q(resume_at__gt=Now()))

NO_LIMIT = gettext_lazy("no limit")

CAPS = (10_000, 1_000, 100)
MOST_COUNTED = 100_000  # index entries that counting may read: the more queues, the earlier it stops at each
MOST_ESTIMATED = 20  # queues with a longer backlog than is counted, for which the planner is asked

MOST_AGES, MOST_AGES_OF_QUEUE, FEWEST_AGES = 10_000, 1_000, 100  # rows read for ages: of all queues, of one

MOST_LOOKED_AT = 2_000
"""Scheduled jobs that are looked at, over all queues; as many limited ones, and as many running ones.

Their indexes do not know the queue, so each costs a page of the table, which may have to come from the disk.
"""


def limits_of(row: Queue) -> str:
    """Say in words how a queue is limited; empty where it is not."""
    parts = []
    if row.max_running is not None:
        parts.append(_("%(number)s at once") % {"number": grouped(row.max_running)})
    if row.rate_limit is not None:
        rate = formatting.rate(row.rate_limit, row.rate_period_seconds or 1.0)
        parts.append(_("%(rate)s, burst %(burst)s") % {"rate": rate, "burst": grouped(row.rate_burst or 0)})
    return "; ".join(parts)


def limits_source(row: Queue) -> str:
    """Say in words where the limits of a queue are from; empty where it has none, or that is not known."""
    if row.limited_at is not None:
        return _("by %(name)s since %(time)s") % {"name": row.limited_by or _("a user"), "time": when(row.limited_at)}
    return _("from the code") if row.name in conf.queues and limits_of(row) else ""


def limits_of_code(name: str) -> str:
    """Say in words how the code limits a queue that it declares; empty where it does not."""
    max_running, rate, period_seconds, burst = DeclaredQueue.of(name, conf.queues[name]).limits
    return limits_of(
        Queue(max_running=max_running, rate_limit=rate, rate_period_seconds=period_seconds, rate_burst=burst)
    )


def is_restorable(row: Queue) -> bool:
    """Whether the limits of a queue were set by hand, in place of those that the code declares."""
    return row.limited_at is not None and row.name in conf.queues


def patience_seconds(name: str) -> float:
    """Return the time after which a job of a queue that could run has waited too long."""
    return start_within(name) or OLD_SECONDS


def pause_of(row: Queue) -> str:
    """Say in words who has paused a queue, since when, until when, and why."""
    words = _("by %(name)s since %(time)s")
    if row.resume_at is not None:
        words = _("by %(name)s since %(time)s until %(end)s")
    words %= {"name": row.paused_by or _("a user"), "time": when(row.paused_at), "end": when(row.resume_at)}
    return f"{words}: {row.pause_reason}" if row.pause_reason else words


class BoundedCount(NamedTuple):
    """A number of jobs, or a lower bound of it; a question mark where none was counted."""

    value: int
    is_short: bool = False  # counting stopped here: there may be more

    def __str__(self) -> str:
        if self.is_short:
            return f"{grouped(self.value)}+" if self.value else "?"
        return grouped(self.value)

    @property
    def may_be_some(self) -> bool:
        return self.is_short or self.value > 0


@dataclass(frozen=True, kw_only=True)
class QueueLine:
    row: Queue  # its limits; unsaved where the queue is not registered yet
    is_paused: bool
    queued: BoundedCount
    scheduled: BoundedCount
    limited: BoundedCount
    running: BoundedCount
    dead: BoundedCount
    oldest_seconds: float | None  # for which the job has waited that could have run for longest; None: none waits
    p99_seconds: float | None  # for which 99 of 100 of the first queued jobs have waited at most; None: none waits
    workers: int  # living worker processes that serve it

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def is_limited(self) -> bool:
        """Whether the queue has a limit, so that its jobs may have to wait though slots are free."""
        return self.row.max_running is not None or self.row.rate_limit is not None

    @property
    def max_backlog(self) -> int | None:
        """How many jobs may be queued before ``enqueue()`` is refused; None: any number."""
        return max_backlog(self.name)

    @property
    def is_full(self) -> bool:
        """Whether as many jobs as may be are queued, as far as they were counted."""
        return self.max_backlog is not None and self.queued.value >= self.max_backlog

    @property
    def queued_of_most(self) -> str:
        """The number of queued jobs, behind it how many there may be."""
        return f"{self.queued} / {grouped(self.max_backlog)}" if self.max_backlog else str(self.queued)

    @property
    def is_known(self) -> bool:
        """Whether it has a row, or jobs."""
        numbers = (self.queued, self.scheduled, self.limited, self.running, self.dead)
        return not self.row._state.adding or any(number.value for number in numbers)  # noqa: SLF001 - Django's way

    @property
    def has_work(self) -> bool:
        """Whether jobs are there that want to run now."""
        return bool(self.queued.value or self.limited.value)

    @property
    def is_unserved(self) -> bool:
        """Whether jobs wait there and no worker serves it."""
        return self.has_work and not self.is_paused and not self.workers


class OutboxLine(NamedTuple):
    """The calls in an outbox for one database of the queue."""

    outbox: str  # the alias of the database that has it
    waiting: BoundedCount
    oldest_seconds: float | None  # for which a call has waited for longest; None: none waits


@dataclass(frozen=True)
class QueuePace:
    hour: RecentWork
    day: throughput.StatsCounts
    empty_in_seconds: float | None  # until nothing is queued, at the pace of the last minutes; None: it cannot be said


def lines(alias: str, living: Collection[Worker] | None = None) -> list[QueueLine]:
    """Return all queues in alphabetical order, up to 1,000; ``living``: the living workers, where they are known."""
    return lines_of(names(alias), alias, living)


def lines_of(names: Collection[str], alias: str, living: Collection[Worker] | None = None) -> list[QueueLine]:
    workers = list(living_workers(alias)) if living is None else living
    rows = {row.name: row for row in Queue.objects.using(alias).annotate(is_paused=PAUSED).filter(name__in=names)}
    oldest = CallerConnection(alias).rows(statement("oldest_runnable"), {"most": MOST_LOOKED_AT})
    ages: dict[str, float] = {queue: seconds for queue, seconds, _holds_back in oldest}
    serving = Counter(name for worker in workers for name in QueueSelector.of(worker.queues).among(names))
    numbers = numbers_of(names, alias)
    late = waiting_ages([name for name in names if numbers[name]["queued"].value], alias)
    return [
        QueueLine(
            row=rows.get(name) or Queue(name=name),
            is_paused=bool(getattr(rows.get(name), "is_paused", False)),
            **numbers[name],
            oldest_seconds=ages.get(name),
            p99_seconds=late.get(name),
            workers=serving[name],
        )
        for name in names
    ]


def outbox_line(outbox: str, alias: str) -> OutboxLine:
    """Count the calls that wait in an outbox for the queue on ``alias``, up to 10,000."""
    parameters = {"number": conf.number_of(alias), "limit": CAPS[0] + 1}
    [(waiting, seconds)] = CallerConnection(outbox).rows(statement("outbox_overview"), parameters)
    return OutboxLine(outbox, _capped(waiting, CAPS[0]), seconds)


def names(alias: str) -> list[str]:
    """Return the names of all queues that are noted or have jobs queued or dead, sorted, up to 1,000."""
    return [name for (name,) in CallerConnection(alias).rows(statement("all_queues"), {"limit": MOST_QUEUES})]


def numbers_of(names: Collection[str], alias: str) -> dict[str, dict[str, BoundedCount]]:
    """Count the jobs of queues, by name and status."""
    cap = next((cap for cap in CAPS if cap * len(names) <= MOST_COUNTED), CAPS[-1])
    parameters = {"names": list(names), "limit": cap + 1, "most": MOST_LOOKED_AT}
    return {
        name: {
            "queued": _capped(queued, cap),
            "scheduled": BoundedCount(scheduled, short[0]),
            "limited": BoundedCount(limited, short[1]),
            "running": BoundedCount(running, short[2]),
            "dead": _capped(dead, cap),
        }
        for name, queued, scheduled, limited, running, dead, *short in CallerConnection(alias).rows(
            statement("queue_overview"), parameters
        )
    }


def waiting_ages(names: Collection[str], alias: str) -> dict[str, float]:
    """Return for how many seconds 99 of 100 of the queued jobs of queues have waited at most, where any wait.

    Up to 1,000 jobs of each queue are read, those that are claimed next; fewer, where there are many queues.
    """
    if not names:
        return {}
    parameters = {"names": list(names), "most": min(max(MOST_AGES // len(names), FEWEST_AGES), MOST_AGES_OF_QUEUE)}
    found = CallerConnection(alias).rows(statement("waiting_ages"), parameters)
    return {name: seconds for name, seconds in found if seconds is not None}


def living_workers(alias: str) -> QuerySet[Worker]:
    """Return the worker processes whose lease has not ended, by the database's clock."""
    return Worker.objects.using(alias).filter(lease_until__gt=Now()).order_by("host", "pid", "id")


def table(found: Iterable[QueueLine]) -> str:
    return columns(HEAD, map(_cells, found))


def as_json(line: QueueLine) -> dict[str, Any]:
    """Return the state and the limits of a queue; ``at_least`` names the numbers that may be higher."""
    row, numbers = line.row, {name: getattr(line, name) for name in NUMBERS}
    return {
        "name": row.name,
        **{name: number.value for name, number in numbers.items()},
        "at_least": [name for name, number in numbers.items() if number.is_short],
        **_row_as_json(row, is_paused=line.is_paused),
    }


def limits_as_json(names: Iterable[str], alias: str) -> list[dict[str, Any]]:
    """Return how queues are paused and limited, as ``as_json`` does; their jobs are not counted."""
    known = {row.name: row for row in Queue.objects.using(alias).annotate(is_paused=PAUSED).filter(name__in=names)}
    rows = [known.get(name) or Queue(name=name) for name in names]
    return [{"name": row.name, **_row_as_json(row, is_paused=getattr(row, "is_paused", False))} for row in rows]


def _row_as_json(row: Queue, *, is_paused: bool) -> dict[str, Any]:
    return {
        "is_paused": is_paused,
        "paused_at": row.paused_at if is_paused else None,
        "paused_by": row.paused_by if is_paused else None,
        "pause_reason": row.pause_reason if is_paused else None,
        "resume_at": row.resume_at if is_paused else None,
        "max_backlog": max_backlog(row.name),
        "max_running": row.max_running,
        "rate_limit": row.rate_limit,
        "rate_period_seconds": row.rate_period_seconds,
        "rate_burst": row.rate_burst,
        "limited_at": row.limited_at,
        "limited_by": row.limited_by if row.limited_at else None,
    }


def _cells(line: QueueLine) -> tuple[str, ...]:
    others = (str(getattr(line, name)) for name in NUMBERS[1:])
    pause = pause_of(line.row) if line.is_paused else "-"
    return (line.name, line.queued_of_most, *others, _limits_cell(line.row), pause)


def _limits_cell(row: Queue) -> str:
    limits, source = limits_of(row), limits_source(row)
    if not source:
        return limits or "-"
    return f"{limits or NO_LIMIT}, {source}"


def total(numbers: Iterable[BoundedCount]) -> BoundedCount:
    """Return a sum that is short where one of its parts is."""
    numbers = list(numbers)
    return BoundedCount(sum(number.value for number in numbers), any(number.is_short for number in numbers))


def paces(
    lines: Iterable[QueueLine], alias: str, *, day: Mapping[str, throughput.StatsCounts] | None = None
) -> dict[str, QueuePace]:
    """Return the pace of each queue, by name.

    Args:
        day: the work of the last day, by queue; it takes longest to read, so it is left out where it is not shown.
    """
    moving = throughput.by_queue(alias)
    hour = throughput.recent_by_queue(alias, minutes=throughput.HOUR)
    lines, none = list(lines), throughput.StatsCounts()
    backlogs = waiting(lines, {name for name, done in moving.items() if done.left}, alias)
    return {
        line.name: QueuePace(
            hour.get(line.name, RecentWork()),
            (day or {}).get(line.name, none),
            throughput.empty_in_seconds_of(backlogs[line.name], moving.get(line.name, none)),
        )
        for line in lines
    }


def waiting(lines: Iterable[QueueLine], moving: Collection[str], alias: str) -> dict[str, int]:
    """Return how many jobs are queued, by queue; an estimate where counting has stopped at its limit.

    Args:
        moving: queues that jobs have left in the last minutes; of these the first ``MOST_ESTIMATED`` are estimated.
    """
    found, estimated = {}, 0
    for line in lines:
        found[line.name] = line.queued.value
        if line.queued.is_short and line.name in moving and estimated < MOST_ESTIMATED:
            found[line.name], estimated = throughput.backlog(alias, line.name), estimated + 1
    return found


def _capped(counted: int, cap: int) -> BoundedCount:
    return BoundedCount(min(counted, cap), counted > cap)
