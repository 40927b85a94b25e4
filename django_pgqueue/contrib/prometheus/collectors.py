"""Collectors: of the tables, for a registry of the project or of a worker command; and of one worker command."""

import logging
import math
import operator
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import django
from django.db import Error
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from django_pgqueue.conf import conf
from django_pgqueue.contrib.prometheus.families import (
    ACKED,
    ATTEMPTS,
    BUILD,
    BUSY,
    CAPPED,
    CLAIMED,
    CYCLES,
    DIED,
    ENQUEUED,
    HANDED_OVER,
    JOBS,
    LAST_PASS,
    LIMITED,
    MAX_BACKLOG,
    OF_QUEUES,
    OF_TABLES,
    OF_WORKERS,
    OF_WORKFLOWS,
    OLDEST,
    OLDEST_WORKFLOW,
    OUTBOX_OLDEST,
    OUTBOX_WAITING,
    PAUSED,
    PROCESSES,
    QUIET,
    RETRIED,
    RUN,
    SLOTS,
    STAGES_OPEN,
    STAGES_STUCK,
    STAGES_UNSEALED,
    STALE,
    SUCCEEDED,
    UP,
    WAIT,
    WAITING_P99,
    WORKERS,
    WORKFLOW_P50,
    WORKFLOW_P95,
    WORKFLOWS_CAPPED,
    WORKFLOWS_ENDED,
    WORKFLOWS_OPEN,
    WORKFLOWS_OVERDUE,
    WORKFLOWS_STUCK,
    family,
    observed,
)
from django_pgqueue.db.errors import one_line
from django_pgqueue.db.queries import TookTooLong, bounded
from django_pgqueue.insights.overview import OutboxLine, QueueLine, lines, outbox_line
from django_pgqueue.insights.workflow_info import WorkflowCounts, counts_by_name
from django_pgqueue.jobs import stats
from django_pgqueue.jobs.stats import BOUNDS, SIZES
from django_pgqueue.version import VERSION
from django_pgqueue.worker.metrics import CommandMetrics, CounterSums

logger = logging.getLogger("django_pgqueue")

T = TypeVar("T")

STATUSES = ("queued", "scheduled", "limited", "running", "dead")
ENDS = ("succeeded", "failed", "killed")
FRESH_SECONDS = 1.0


class TableFigures(NamedTuple):
    """The values of one reading of the tables."""

    queues: list[QueueLine]
    workflows: list[WorkflowCounts]


def read_tables(alias: str | None = None) -> TableFigures:
    """Read all values; no statement takes longer than ``READ_TIMEOUT_SECONDS`` or counts a big table to its end."""
    alias = alias or conf.database
    with bounded(alias):
        return TableFigures(lines(alias), counts_by_name(alias))


def read_outbox(outbox: str, alias: str | None = None) -> OutboxLine:
    """Read an outbox, on the database with the alias ``outbox``, as ``read_tables`` reads those of the queue."""
    with bounded(outbox):
        return outbox_line(outbox, alias or conf.database)


class SharedReading(Generic[T]):
    """One reading at a time, and one a second at most, for all scrapes of a process; errors are shared too.

    Args:
        begin: calls the function that it is given, in this thread or in another one.
    """

    def __init__(self, read: Callable[[], T], begin: Callable[[Callable[[], None]], None] = operator.call) -> None:
        self._read = read
        self._begin = begin
        self._lock = threading.Lock()  # held during a reading, which releases it, in whichever thread
        self._answer: T | BaseException = TimeoutError("Nothing was read yet.")
        self._read_at = -math.inf  # monotonic

    def begin(self) -> None:
        """Begin a reading, if none is under way and the latest is not fresh; in another thread it is not waited for."""
        if self._lock.acquire(blocking=False):
            if self._is_fresh():
                self._lock.release()
            else:
                self._begin_reading()

    def latest(self, *, wait_seconds: float | None = None, since: float = math.inf) -> T:
        """Return the result of the latest reading, or raise its error.

        Another is begun before, unless the latest is fresh, or was read after ``since``.
        One in another thread that takes longer than ``wait_seconds`` (None: without end) goes on all the same, but
        raises TimeoutError here.
        """
        self._acquire(wait_seconds)
        if not self._is_fresh() and self._read_at < since:
            self._begin_reading()
            self._acquire(wait_seconds)
        answer = self._answer
        self._lock.release()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _is_fresh(self) -> bool:
        return time.monotonic() - self._read_at < FRESH_SECONDS

    def _begin_reading(self) -> None:
        try:
            self._begin(self._renew)
        except BaseException:  # no thread can be started
            self._lock.release()
            raise

    def _acquire(self, wait_seconds: float | None) -> None:
        if not self._lock.acquire(timeout=-1 if wait_seconds is None else wait_seconds):
            raise TimeoutError

    def _renew(self) -> None:
        try:
            self._answer = self._read()
        except BaseException as error:  # noqa: BLE001 - raised where it was asked for
            self._answer = error
        self._read_at = time.monotonic()
        self._lock.release()


class QueueCollector(Collector):
    """For a registry of yours: ``registry.register(QueueCollector())``.

    Args:
        alias: of the database; None: that of the queue.
        shared: reads the tables. None: on Django's connection of the caller.
        outboxes: read those, by the alias of each. None: on Django's connections of the caller.
        wait_seconds: for how long to wait for it where another thread reads.
    """

    def __init__(
        self,
        alias: str | None = None,
        *,
        shared: SharedReading[TableFigures] | None = None,
        outboxes: Mapping[str, SharedReading[OutboxLine]] | None = None,
        wait_seconds: float | None = None,
    ) -> None:
        self._shared = shared or SharedReading(lambda: read_tables(alias))
        if outboxes is None:
            outboxes = {outbox: SharedReading(partial(read_outbox, outbox, alias)) for outbox in conf.outboxes}
        self._outboxes = outboxes
        self._wait_seconds = wait_seconds
        self._since = math.inf  # a scrape that has begun takes readings from then on, monotonic
        self._until = math.inf  # how long it waits, monotonic
        self._away: set[str] = set()  # what the last scrape could not read

    def describe(self) -> list[Metric]:
        """Name the metrics, so that a registry need not read the tables for that."""
        return list(map(family, OF_TABLES))

    def begin(self) -> None:
        """Begin all readings of a scrape: all of them together are then waited for no longer than one."""
        self._since = time.monotonic() - FRESH_SECONDS
        self._shared.begin()
        for outbox in self._outboxes.values():
            outbox.begin()
        if self._wait_seconds is not None:
            self._until = time.monotonic() + self._wait_seconds

    def collect(self) -> Iterator[Metric]:
        figures = self._read(self._shared, "the tables")
        yield family(UP, [((), float(figures is not None))])
        if figures is not None:
            yield from of_queues(figures.queues)
            yield from of_workflows(figures.workflows)
            read = (self._read(shared, f"the outbox on {outbox!r}") for outbox, shared in self._outboxes.items())
            yield from of_outboxes([line for line in read if line is not None])

    def _read(self, shared: SharedReading[T], what: str) -> T | None:
        try:
            answer = shared.latest(wait_seconds=self._left(), since=self._since)
        except (Error, TookTooLong, TimeoutError) as error:
            if what not in self._away:
                logger.warning("Metrics do without %s: %s", what, one_line(error) or type(error).__name__)
            self._away.add(what)
            return None
        self._away.discard(what)
        return answer

    def _left(self) -> float | None:
        if self._wait_seconds is None:
            return None
        return min(self._wait_seconds, max(self._until - time.monotonic(), 0.0))


def of_queues(queues: Sequence[QueueLine]) -> Iterator[Metric]:
    """Yield the metrics of queues."""
    made = {name: family(name) for name in OF_QUEUES}
    for line in queues:
        for status in STATUSES:
            number = getattr(line, status)
            made[JOBS].add_metric((line.name, status), number.value)
            made[CAPPED].add_metric((line.name, status), float(number.is_short))
        made[OLDEST].add_metric((line.name,), line.oldest_seconds or 0.0)
        made[WAITING_P99].add_metric((line.name,), line.p99_seconds or 0.0)
        made[PAUSED].add_metric((line.name,), float(line.is_paused))
        made[LIMITED].add_metric((line.name,), float(line.is_limited))
        if line.max_backlog is not None:
            made[MAX_BACKLOG].add_metric((line.name,), line.max_backlog)
        made[WORKERS].add_metric((line.name,), line.workers)
    yield from made.values()


def of_workflows(counts: Sequence[WorkflowCounts]) -> Iterator[Metric]:
    """Yield the metrics of workflows and of their stages."""
    made = {name: family(name) for name in OF_WORKFLOWS}
    for one in counts:
        of_name = (one.name,)
        made[WORKFLOWS_OPEN].add_metric(of_name, one.open)
        made[WORKFLOWS_STUCK].add_metric(of_name, one.stuck)
        made[WORKFLOWS_OVERDUE].add_metric(of_name, one.overdue)
        made[STAGES_OPEN].add_metric(of_name, one.open_stages)
        made[STAGES_STUCK].add_metric(of_name, one.stuck_stages)
        made[STAGES_UNSEALED].add_metric(of_name, one.unsealed_stages)
        made[OLDEST_WORKFLOW].add_metric(of_name, one.oldest_seconds)
        for status in ENDS:
            made[WORKFLOWS_ENDED].add_metric((one.name, status), getattr(one, status))
        for name, seconds in ((WORKFLOW_P50, one.p50_seconds), (WORKFLOW_P95, one.p95_seconds)):
            if seconds is not None:
                made[name].add_metric(of_name, seconds)
    made[WORKFLOWS_CAPPED].add_metric((), float(any(one.is_capped for one in counts)))
    yield from made.values()


def of_outboxes(outboxes: Sequence[OutboxLine]) -> Iterator[Metric]:
    """Yield the metrics of outboxes."""
    yield family(OUTBOX_WAITING, (((line.outbox,), line.waiting.value) for line in outboxes))
    yield family(OUTBOX_OLDEST, (((line.outbox,), line.oldest_seconds or 0.0) for line in outboxes))


# One worker command

OUTCOMES = {"succeeded": stats.SUCCEEDED, "failed": stats.FAILED, "lost": stats.LOST}
COUNTERS = {
    SUCCEEDED: stats.SUCCEEDED,
    RETRIED: stats.RETRIED,
    DIED: stats.DIED,
    STALE: stats.STALE,
    ENQUEUED: stats.ENQUEUED,
}
SECONDS = {
    WAIT: (stats.WAIT_SECONDS, stats.WAIT_BUCKETS, stats.RUN_BUCKETS),
    RUN: (stats.RUN_SECONDS, stats.RUN_BUCKETS, stats.WIDTH),
}
PHASES = {"claim": stats.CLAIM, "ack": stats.ACK, "both": stats.BOTH}
SIZES_OF_CYCLES = {CLAIMED: stats.CLAIMED, ACKED: stats.ACKED}


class WorkerCollector(Collector):
    """Collects the metrics of one command."""

    def __init__(self, figures: Callable[[], CommandMetrics]) -> None:
        self._figures = figures

    def describe(self) -> list[Metric]:
        return list(map(family, OF_WORKERS))

    def collect(self) -> Iterator[Metric]:
        figures = self._figures()
        yield from counters(figures.sums)
        yield from histograms(figures.sums)
        yield from gauges(figures)


def counters(sums: CounterSums) -> Iterator[Metric]:
    """Yield the counters of attempts and jobs."""
    attempts = family(ATTEMPTS)
    for task, row in sums.rows.items():
        for outcome, place in OUTCOMES.items():
            attempts.add_metric((*task, outcome), row[place])
    yield attempts
    for name, place in COUNTERS.items():
        yield family(name, ((task, row[place]) for task, row in sums.rows.items()))


def histograms(sums: CounterSums) -> Iterator[Metric]:
    """Yield the histograms of times, and of numbers of jobs in a statement."""
    for name, (total, first, end) in SECONDS.items():
        rows = sums.rows.items()
        yield family(name, ((task, observed(BOUNDS, row[first:end]), row[total]) for task, row in rows))
    yield family(CYCLES, (((phase,), *_summed(BOUNDS, sums.histograms[which])) for phase, which in PHASES.items()))
    for name, which in SIZES_OF_CYCLES.items():
        yield family(name, [((), *_summed(SIZES, sums.histograms[which]))])


def _summed(bounds: Sequence[float], histogram: Sequence[float]) -> tuple[list[tuple[str, float]], float]:
    total, *counts = histogram
    return observed(bounds, counts), total


def gauges(figures: CommandMetrics) -> Iterator[Metric]:
    """Yield the gauges, which are values of this moment, and the counter of each outbox."""
    now = time.time()  # by the clock of this machine, as Prometheus wants it
    yield family(PROCESSES, [((), figures.processes)])
    yield family(SLOTS, [((), figures.slots)])
    yield family(BUSY, [((), figures.busy)])
    yield family(QUIET, [((), int(figures.is_quiet))])
    yield family(HANDED_OVER, (((outbox,), number) for outbox, number in figures.handed_over.items()))
    yield family(LAST_PASS, (((service,), round(now - age, 3)) for service, age in figures.pass_ages.items()))
    yield family(BUILD, [((VERSION, django.get_version(), platform.python_version()), 1)])


def of_each(collectors: Mapping[str, Collector]) -> Collector:
    """Return one collector of those of several databases, by alias: its samples have the label ``database``.

    Of one database it is that one's own.
    """
    return _OfEach(collectors) if len(collectors) > 1 else next(iter(collectors.values()))


class _OfEach(Collector):
    def __init__(self, collectors: Mapping[str, Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for collector in self._collectors.values():
            if isinstance(collector, QueueCollector):
                collector.begin()
        for alias, collector in self._collectors.items():
            for one in collector.collect():
                known = found.setdefault(one.name, Metric(one.name, one.documentation, one.type, one.unit))
                known.samples += [
                    sample._replace(labels={**sample.labels, "database": alias}) for sample in one.samples
                ]
        yield from found.values()

    def describe(self) -> Iterator[Metric]:
        yield from ()
