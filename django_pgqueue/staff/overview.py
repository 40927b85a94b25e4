"""What staff see first: how many jobs each queue has, how long they wait, who serves them. Everything is bounded."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from django.db.models import QuerySet
from django.db.models.functions import Now

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.jobs.queue_selector import Served
from django_pgqueue.models import Queue, Worker
from django_pgqueue.staff import flow, recent
from django_pgqueue.staff.figures import whole
from django_pgqueue.staff.queues import PAUSED
from django_pgqueue.staff.recent import Recent

MOST_QUEUES = 1000
CAPS = (10_000, 1_000, 100)
MOST_COUNTED = 100_000
"""Index entries that counting may read: the more queues, the earlier it stops at each."""

MOST_ESTIMATED = 20
"""Queues whose backlog is longer than what is counted, and for which the planner is asked."""

MOST_LOOKED_AT = 2_000
"""Scheduled jobs that are looked at, over all queues; as many waiting ones, and as many running ones.

Their indexes do not know the queue, so each costs a page of the table, which may have to come from the disk.
"""


class Number(NamedTuple):
    """How many jobs there are, at least; a question mark where none was looked at."""

    value: int
    is_short: bool = False  # counting stopped here: there may be more

    def __str__(self) -> str:
        if self.is_short:
            return f"{whole(self.value)}+" if self.value else "?"
        return whole(self.value)

    @property
    def may_be_some(self) -> bool:
        """Whether there are jobs, or may be."""
        return self.is_short or self.value > 0


@dataclass(frozen=True, kw_only=True)
class QueueLine:
    """One queue as it stands.

    Attributes:
        row: what has been said of it; one that is not stored where nobody has noted the queue yet.
        is_paused: whether it is now.
        oldest_seconds: for which the job has waited that could have run for longest; None where none waits.
        workers: how many living worker processes serve it.
    """

    row: Queue
    is_paused: bool
    queued: Number
    scheduled: Number
    waiting: Number
    running: Number
    dead: Number
    oldest_seconds: float | None
    workers: int

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def is_known(self) -> bool:
        """Whether somebody has noted it, or it has jobs."""
        numbers = (self.queued, self.scheduled, self.waiting, self.running, self.dead)
        return not self.row._state.adding or any(number.value for number in numbers)  # noqa: SLF001 - Django's way

    @property
    def has_work(self) -> bool:
        """Whether jobs are there that want to run now."""
        return bool(self.queued.value or self.waiting.value)


@dataclass(frozen=True)
class Pace:
    """How a queue gets on.

    Attributes:
        drain_seconds: until nothing is queued, at the pace of the last minutes; None where nothing can be said.
    """

    hour: Recent
    day: flow.Counts
    drain_seconds: float | None


def lines(alias: str, living: Collection[Worker] | None = None) -> list[QueueLine]:
    """Return all queues in alphabetical order, up to 1,000.

    Args:
        living: the workers that are alive, where they are known already.
    """
    return lines_of(names(alias), alias, living)


def lines_of(names: Collection[str], alias: str, living: Collection[Worker] | None = None) -> list[QueueLine]:
    """Return how these queues stand."""
    workers = list(living_workers(alias)) if living is None else living
    rows = {row.name: row for row in Queue.objects.using(alias).annotate(is_paused=PAUSED).filter(name__in=names)}
    numbers, ages, serving = numbers_of(names, alias), oldest(alias), served_by(workers, names)
    return [
        QueueLine(
            row=rows.get(name) or Queue(name=name),
            is_paused=bool(getattr(rows.get(name), "is_paused", False)),
            **numbers[name],
            oldest_seconds=ages.get(name),
            workers=serving[name],
        )
        for name in names
    ]


def names(alias: str) -> list[str]:
    """Return the names of all queues that are noted or have jobs queued or dead, sorted, up to 1,000."""
    return [name for (name,) in CallerConnection(alias).rows(statement("all_queues"), {"limit": MOST_QUEUES})]


def numbers_of(names: Collection[str], alias: str) -> dict[str, dict[str, Number]]:
    """Count the jobs of queues, by name and status."""
    cap = next((cap for cap in CAPS if cap * len(names) <= MOST_COUNTED), CAPS[-1])
    parameters = {"names": list(names), "limit": cap + 1, "most": MOST_LOOKED_AT}
    return {
        name: {
            "queued": _capped(queued, cap),
            "scheduled": Number(scheduled, short[0]),
            "waiting": Number(waiting, short[1]),
            "running": Number(running, short[2]),
            "dead": _capped(dead, cap),
        }
        for name, queued, scheduled, waiting, running, dead, *short in CallerConnection(alias).rows(
            statement("queue_numbers"), parameters
        )
    }


def oldest(alias: str) -> dict[str, float]:
    """Return for how many seconds the oldest runnable job of each queue has waited."""
    return dict(CallerConnection(alias).rows(statement("oldest_of_queues"), {"most": MOST_LOOKED_AT}))


def living_workers(alias: str) -> QuerySet[Worker]:
    """Return the worker processes whose lease has not ended, by the database's clock."""
    return Worker.objects.using(alias).filter(lease_until__gt=Now()).order_by("host", "pid", "id")


def served_by(workers: Iterable[Worker], names: Collection[str]) -> Mapping[str, int]:
    """Return how many of the workers serve each queue."""
    serving = dict.fromkeys(names, 0)
    for worker in workers:
        for name in Served.of(worker.queues).among(names):
            serving[name] += 1
    return serving


def total(numbers: Iterable[Number]) -> Number:
    """Return a sum that is short where one of its parts is."""
    numbers = list(numbers)
    return Number(sum(number.value for number in numbers), any(number.is_short for number in numbers))


def paces(lines: Iterable[QueueLine], alias: str, *, day: Mapping[str, flow.Counts] | None = None) -> dict[str, Pace]:
    """Return how the queues get on, by their names.

    Args:
        day: what was done in the last day, for those who show it: to read it takes longer than all the rest.
    """
    moving, hour = flow.by_queue(alias), recent.by_queue(alias, minutes=flow.HOUR)
    lines, none = list(lines), flow.Counts()
    backlogs = waiting(lines, {name for name, done in moving.items() if done.left}, alias)
    return {
        line.name: Pace(
            hour.get(line.name, Recent()),
            (day or {}).get(line.name, none),
            flow.drain_seconds_of(backlogs[line.name], moving.get(line.name, none)),
        )
        for line in lines
    }


def waiting(lines: Iterable[QueueLine], moving: Collection[str], alias: str) -> dict[str, int]:
    """Return how many jobs are queued, by queue: the planner's estimate where counting stopped, of the first that move.

    Args:
        moving: queues that jobs have left; of the others nobody will ask how long it takes.
    """
    found, estimated = {}, 0
    for line in lines:
        found[line.name] = line.queued.value
        if line.queued.is_short and line.name in moving and estimated < MOST_ESTIMATED:
            found[line.name], estimated = flow.backlog(alias, line.name).number, estimated + 1
    return found


def _capped(counted: int, cap: int) -> Number:
    return Number(min(counted, cap), counted > cap)
