"""Read all that is shown at a glance, once and boundedly."""

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from django.utils.translation import override

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.staff import overview, recent, workers
from django_pgqueue.staff.bounded import bounded
from django_pgqueue.staff.flow import drain_seconds_of
from django_pgqueue.staff.health import Finding, findings
from django_pgqueue.staff.overview import QueueLine
from django_pgqueue.staff.recent import Recent
from django_pgqueue.staff.workers import WorkerState

MINUTES = 5


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Who works.

    Attributes:
        commands: ``pgqueue_worker`` commands that are alive; and their processes.
        busy: slots in use.
    """

    commands: int
    processes: int
    slots: int
    busy: int


@dataclass(frozen=True, kw_only=True)
class TaskGlance:
    """One task in one queue."""

    name: str
    done: Recent


@dataclass(frozen=True, kw_only=True)
class QueueGlance:
    """One queue.

    Attributes:
        line: how it stands.
        done: what was done in the time that is looked back at.
        drain_seconds: until nothing is queued, at this pace; None where nothing can be said.
        tasks: those that took most time first; empty where nobody asked for them.
    """

    line: QueueLine
    done: Recent
    drain_seconds: float | None
    tasks: Sequence[TaskGlance] = ()


@dataclass(frozen=True, kw_only=True)
class Glance:
    """The queue as it stands, at one moment.

    Attributes:
        at: when that was, by the database's clock.
        seconds: so far back go the counts of what was done.
        findings: what is wrong, the worst first.
    """

    at: dt.datetime
    seconds: float
    workers: Workers
    findings: Sequence[Finding]
    queues: Sequence[QueueGlance]


def look(
    alias: str | None = None, *, queues: Collection[str] = (), minutes: int = MINUTES, with_tasks: bool = False
) -> Glance:
    """Read it all, each statement within the time limit of the admin's pages.

    Args:
        queues: names of those to look at; none: all, up to 1,000.
        minutes: so many that are over are looked back at, besides the one that is not; 1 to 1,440.

    Raises:
        TookTooLong: a statement was stopped.
        django.db.Error: there is trouble with the database.
    """
    alias = alias or conf.database
    with bounded(alias), override("en"):  # a command shows it; this may be a thread of its own
        [(at, into_minute)] = CallerConnection(alias).rows(statement("clock"), {})
        seconds = minutes * 60 + into_minute
        alive = workers.states_of(workers.with_clock(overview.living_workers(alias)), alias)
        lines = overview.lines_of(sorted(set(queues)) or overview.names(alias), alias, [state.row for state in alive])
        return Glance(
            at=at,
            seconds=seconds,
            workers=_workers(alive),
            findings=findings(alias, queues=lines),
            queues=_queues(lines, alias, minutes=minutes, seconds=seconds, with_tasks=with_tasks),
        )


def _workers(alive: Sequence[WorkerState]) -> Workers:
    return Workers(
        commands=len({state.row.supervisor_id for state in alive}),
        processes=len(alive),
        slots=sum(state.row.concurrency for state in alive),
        busy=sum(state.busy for state in alive),
    )


def _queues(
    lines: Sequence[QueueLine], alias: str, *, minutes: int, seconds: float, with_tasks: bool
) -> list[QueueGlance]:
    done = defaultdict(Recent, recent.by_queue(alias, minutes=minutes))
    tasks = _tasks(alias, minutes) if with_tasks else {}
    waiting = overview.waiting(lines, {name for name in done if done[name].counts.left}, alias)
    return [
        QueueGlance(
            line=line,
            done=done[line.name],
            drain_seconds=drain_seconds_of(waiting[line.name], done[line.name].counts, seconds=seconds),
            tasks=tasks.get(line.name, ()),
        )
        for line in lines
    ]


def _tasks(alias: str, minutes: int) -> Mapping[str, Sequence[TaskGlance]]:
    found: dict[str, list[TaskGlance]] = defaultdict(list)
    for (queue, task), done in recent.by_task(alias, minutes=minutes).items():
        found[queue].append(TaskGlance(name=task, done=done))
    return found
