"""Overview of ``pgqueue_stats``: reading it, and its JSON."""

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import bounded, statement
from django_pgqueue.doctor import Finding, findings
from django_pgqueue.insights import overview, throughput, worker_info
from django_pgqueue.insights.overview import QueueLine
from django_pgqueue.insights.throughput import SHARES, RecentWork, StatsCounts, empty_in_seconds_of
from django_pgqueue.insights.worker_info import WorkerState

MINUTES = 5

NUMBERS = ("queued", "scheduled", "limited", "running", "dead")
DONE = ("succeeded", "failed", "retried", "died", "lost", "stale")


@dataclass(frozen=True, kw_only=True)
class WorkerNumbers:
    """Numbers of living ``pgqueue_worker`` commands, their processes and slots, and of slots in use."""

    commands: int
    processes: int
    slots: int
    busy: int


@dataclass(frozen=True, kw_only=True)
class QueueStats:
    line: QueueLine  # its state
    done: RecentWork  # in the time that is looked back at
    empty_in_seconds: float | None  # until nothing is queued, at this pace; None where nothing can be said
    tasks: Mapping[str, RecentWork]  # done by each task, longest total time first; empty where not asked for


@dataclass(frozen=True, kw_only=True)
class StatsSnapshot:
    """State of the queue at one moment."""

    at: dt.datetime  # by the database's clock
    seconds: float  # start of the counts of work
    workers: WorkerNumbers
    findings: Sequence[Finding]  # the worst first
    queues: Sequence[QueueStats]


def snapshot(
    alias: str | None = None, *, queues: Collection[str] = (), minutes: int = MINUTES, with_tasks: bool = False
) -> StatsSnapshot:
    """Read it all, each statement within the time limit of the admin's pages.

    Args:
        queues: names of those to look at; none: all, up to 1,000.
        minutes: number of past minutes to include, in addition to the current one; 1 to 1,440.

    Raises:
        TookTooLong: a statement was stopped.
        django.db.Error: there is trouble with the database.
    """
    alias = alias or conf.database
    with bounded(alias):
        [(at, into_minute)] = CallerConnection(alias).rows(statement("clock"), {})
        seconds = minutes * 60 + into_minute
        alive = worker_info.states_of(worker_info.with_clock(overview.living_workers(alias)), alias)
        lines = overview.lines_of(sorted(set(queues)) or overview.names(alias), alias, [state.row for state in alive])
        return StatsSnapshot(
            at=at,
            seconds=seconds,
            workers=_workers(alive),
            findings=findings(alias, queues=lines),
            queues=_queues(lines, alias, minutes=minutes, seconds=seconds, with_tasks=with_tasks),
        )


def _workers(alive: Sequence[WorkerState]) -> WorkerNumbers:
    return WorkerNumbers(
        commands=len({state.row.supervisor_id for state in alive}),
        processes=len(alive),
        slots=sum(state.row.concurrency for state in alive),
        busy=sum(state.busy for state in alive),
    )


def _queues(
    lines: Sequence[QueueLine], alias: str, *, minutes: int, seconds: float, with_tasks: bool
) -> list[QueueStats]:
    done = defaultdict(RecentWork, throughput.recent_by_queue(alias, minutes=minutes))
    tasks: dict[str, dict[str, RecentWork]] = defaultdict(dict)
    if with_tasks:
        for (queue, task), work in throughput.by_task(alias, minutes=minutes).items():
            tasks[queue][task] = work
    waiting = overview.waiting(lines, {name for name in done if done[name].counts.left}, alias)
    return [
        QueueStats(
            line=line,
            done=done[line.name],
            empty_in_seconds=empty_in_seconds_of(waiting[line.name], done[line.name].counts, seconds=seconds),
            tasks=tasks[line.name],
        )
        for line in lines
    ]


# JSON


def as_json(glance: StatsSnapshot, *, with_tasks: bool = False) -> dict[str, Any]:
    """Return all that is known; numbers of jobs are counted up to some limit, and ``at_least`` names those."""
    return {
        "at": glance.at,
        "window_seconds": round(glance.seconds, 3),
        "workers": asdict(glance.workers),
        "findings": [finding.as_json() for finding in glance.findings],
        "queues": [_queue(queue, glance.seconds, with_tasks=with_tasks) for queue in glance.queues],
    }


def _queue(queue: QueueStats, seconds: float, *, with_tasks: bool) -> dict[str, Any]:
    line = queue.line
    numbers = {name: getattr(line, name) for name in NUMBERS}
    tasks = [{"name": name, **_done(done, seconds)} for name, done in queue.tasks.items()]
    return {
        "name": line.name,
        "is_paused": line.is_paused,
        **{name: number.value for name, number in numbers.items()},
        "at_least": [name for name, number in numbers.items() if number.is_short],
        "oldest_runnable_seconds": _rounded(line.oldest_seconds),
        "waiting_p99_seconds": _rounded(line.p99_seconds),
        "workers": line.workers,
        "empty_in_seconds": _rounded(queue.empty_in_seconds),
        **_done(queue.done, seconds),
        **({"tasks": tasks} if with_tasks else {}),
    }


def _done(done: RecentWork, seconds: float) -> dict[str, Any]:
    counts = done.counts
    return {
        "counts": {name: getattr(counts, name) for name in DONE},
        "per_minute": {name: round(per_minute(counts, name, seconds), 3) for name in DONE},
        "wait_seconds": {"mean": _rounded(counts.mean_wait_seconds), **_percentiles(done.wait_seconds)},
        "run_seconds": {"mean": _rounded(counts.mean_run_seconds), **_percentiles(done.run_seconds)},
    }


def per_minute(counts: StatsCounts, name: str, seconds: float) -> float:
    """Return how often something was counted in a minute, on average."""
    number: int = getattr(counts, name)
    return number * 60 / seconds


def _percentiles(seconds_of: Callable[[float], float | None]) -> dict[str, float | None]:
    return {f"p{share * 100:g}": _rounded(seconds_of(share)) for share in SHARES}


def _rounded(seconds: float | None) -> float | None:
    """Return seconds to the microsecond: nothing here is known more exactly."""
    return None if seconds is None else round(seconds, 6)
