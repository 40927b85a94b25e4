"""Metrics: names, families, and the reading of the tables."""

import functools
import gzip
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Final

from django.db import Error
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder, gzip_accepted
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from django_pgqueue.db.errors import one_line
from django_pgqueue.insights.bounded import TookTooLong
from django_pgqueue.insights.overview import OverviewData, QueueLine, SharedReading, read_overview


@dataclass(frozen=True)
class MetricName:
    """One metric; a counter's name gets ``_total`` in addition."""

    name: str
    kind: str  # gauge, counter or histogram
    labels: tuple[str, ...]
    help: str


QUEUE: Final = ("queue",)
TASK: Final = ("queue", "task")

# Metrics of the tables

UP: Final = MetricName("pgqueue_up", "gauge", (), "Whether the tables could be read in time: 1 or 0.")
JOBS: Final = MetricName("pgqueue_jobs", "gauge", ("queue", "status"), "Live jobs, counted up to a limit.")
DEAD: Final = MetricName("pgqueue_dead_jobs", "gauge", QUEUE, "Dead jobs, counted up to a limit.")
CAPPED: Final = MetricName(
    "pgqueue_jobs_capped",
    "gauge",
    ("queue", "status"),
    "Whether counting has stopped at its limit, so that there may be more jobs: 1 or 0.",
)
OLDEST: Final = MetricName(
    "pgqueue_oldest_runnable_seconds",
    "gauge",
    QUEUE,
    "For how long the job has been due that could have run for longest; 0 where none waits.",
)
PAUSED: Final = MetricName("pgqueue_queue_paused", "gauge", QUEUE, "Whether the queue is paused: 1 or 0.")
WORKERS: Final = MetricName("pgqueue_workers", "gauge", QUEUE, "Living worker processes that serve the queue.")

OF_TABLES: Final = (UP, JOBS, DEAD, CAPPED, OLDEST, PAUSED, WORKERS)

# Metrics of one process

ATTEMPTS: Final = MetricName(
    "pgqueue_attempts", "counter", (*TASK, "outcome"), "Attempts that are over, by what they came to."
)
RETRIES: Final = MetricName("pgqueue_retries", "counter", TASK, "Failed attempts after which the job runs again.")
DIED: Final = MetricName("pgqueue_died", "counter", TASK, "Jobs that went to the dead jobs.")
STALE: Final = MetricName(
    "pgqueue_stale_results", "counter", TASK, "Results that were dropped, as their lease was gone."
)
ENQUEUED: Final = MetricName("pgqueue_enqueued", "counter", TASK, "Jobs that were enqueued by this process or command.")
WAIT: Final = MetricName("pgqueue_wait_seconds", "histogram", TASK, "From when a job was due until it was claimed.")
RUN: Final = MetricName("pgqueue_run_seconds", "histogram", TASK, "How long attempts have run.")
CYCLES: Final = MetricName(
    "pgqueue_cycle_seconds",
    "histogram",
    ("does",),
    "How long transactions took that claim jobs, write outcomes, or both.",
)
CLAIMED: Final = MetricName("pgqueue_claimed_jobs", "histogram", (), "How many jobs a claim has found.")
ACKED: Final = MetricName("pgqueue_acked_jobs", "histogram", (), "How many outcomes a transaction has written.")
PROCESSES: Final = MetricName("pgqueue_processes", "gauge", (), "Living worker processes of this command.")
SLOTS: Final = MetricName("pgqueue_slots", "gauge", (), "Jobs that the living processes may run at once, of each kind.")
BUSY: Final = MetricName("pgqueue_slots_busy", "gauge", (), "Jobs that run at this moment.")
LAST_PASS: Final = MetricName(
    "pgqueue_last_pass_timestamp_seconds", "gauge", ("service",), "When a service of the command last ran well."
)
BUILD: Final = MetricName(
    "pgqueue_build_info", "gauge", ("version", "django", "python"), "Versions of the command; always 1."
)

OF_WORKERS: Final = (
    *(ATTEMPTS, RETRIES, DIED, STALE, ENQUEUED, WAIT, RUN, CYCLES, CLAIMED, ACKED),
    *(PROCESSES, SLOTS, BUSY, LAST_PASS, BUILD),
)


# Families


def gauge(name: MetricName) -> GaugeMetricFamily:
    """Begin a gauge."""
    return GaugeMetricFamily(name.name, name.help, labels=name.labels)


def counter(name: MetricName) -> CounterMetricFamily:
    """Begin a counter."""
    return CounterMetricFamily(name.name, name.help, labels=name.labels)


def histogram(name: MetricName) -> HistogramMetricFamily:
    """Begin a histogram."""
    return HistogramMetricFamily(name.name, name.help, labels=name.labels)


def empty(name: MetricName) -> Metric:
    """Return a family without samples, which says that there may be some."""
    return {"gauge": gauge, "counter": counter, "histogram": histogram}[name.kind](name)


def observed(bounds: Sequence[float], counts: Sequence[float]) -> list[tuple[str, float]]:
    """Return how many there are up to each bound, of how many there are in each bucket; the last has no bound."""
    ends = _ends(tuple(bounds))
    return list(zip(ends, accumulate(counts[: len(ends)]), strict=True))


@functools.cache
def _ends(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*map(floatToGoString, bounds), "+Inf")


# Exposition


def exposed(registry: CollectorRegistry, headers: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
    """Return the answer to a request with these headers, and the headers that it has."""
    encode, content_type = choose_encoder(headers.get("Accept") or "")
    body, told = encode(registry), {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if gzip_accepted(headers.get("Accept-Encoding") or ""):
        body, told = gzip.compress(body, compresslevel=1), told | {"Content-Encoding": "gzip"}
    return body, told


# Reading the tables

logger = logging.getLogger("django_pgqueue")

STATUSES = ("queued", "scheduled", "waiting", "running")


class QueueCollector(Collector):
    """For a registry of yours: ``registry.register(QueueCollector())``.

    Args:
        alias: of the database; None: that of the queue.
        shared: reads the tables. None: on Django's connection of the caller.
        wait_seconds: for how long to wait for it where another thread reads.
    """

    def __init__(
        self, alias: str | None = None, *, shared: SharedReading | None = None, wait_seconds: float | None = None
    ) -> None:
        self._shared = shared or SharedReading(partial(read_overview, alias))
        self._wait_seconds = wait_seconds
        self._is_away = False

    def describe(self) -> list[Metric]:
        """Name the metrics, so that a registry need not read the tables for that."""
        return list(map(empty, OF_TABLES))

    def collect(self) -> Iterator[Metric]:
        up, found = gauge(UP), self._look()
        up.add_metric((), float(found is not None))
        yield up
        if found is not None:
            yield from families(found)

    def _look(self) -> OverviewData | None:
        try:
            found = self._shared.measures(wait_seconds=self._wait_seconds)
        except (Error, TookTooLong, TimeoutError) as error:
            if not self._is_away:
                logger.warning("Metrics do without the tables: %s", one_line(error) or type(error).__name__)
            self._is_away = True
            return None
        self._is_away = False
        return found


def families(found: OverviewData) -> Iterator[Metric]:
    """Tell what a look has found."""
    by_name: dict[MetricName, GaugeMetricFamily] = {name: gauge(name) for name in OF_TABLES if name is not UP}
    for line in found.queues:
        add(line, by_name)
    yield from by_name.values()


def add(line: QueueLine, to: dict[MetricName, GaugeMetricFamily]) -> None:
    """Add what there is to tell of one queue."""
    queue = (line.name,)
    for status in STATUSES:
        number = getattr(line, status)
        to[JOBS].add_metric((*queue, status), number.value)
        to[CAPPED].add_metric((*queue, status), float(number.is_short))
    to[DEAD].add_metric(queue, line.dead.value)
    to[CAPPED].add_metric((*queue, "dead"), float(line.dead.is_short))
    to[OLDEST].add_metric(queue, line.oldest_seconds or 0.0)
    to[PAUSED].add_metric(queue, float(line.is_paused))
    to[WORKERS].add_metric(queue, line.workers)
