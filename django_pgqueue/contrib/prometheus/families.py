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
from django_pgqueue.insights.overview import Measures, QueueLine, Shared, look


@dataclass(frozen=True)
class Name:
    """One metric.

    Args:
        name: without the ``_total`` that a counter gets.
    """

    name: str
    kind: str  # gauge, counter or histogram
    labels: tuple[str, ...]
    help: str


QUEUE: Final = ("queue",)
TASK: Final = ("queue", "task")

# Metrics of the tables

UP: Final = Name("pgqueue_up", "gauge", (), "Whether the tables could be read in time: 1 or 0.")
JOBS: Final = Name("pgqueue_jobs", "gauge", ("queue", "status"), "Live jobs, counted up to a limit.")
DEAD: Final = Name("pgqueue_dead_jobs", "gauge", QUEUE, "Dead jobs, counted up to a limit.")
CAPPED: Final = Name(
    "pgqueue_jobs_capped",
    "gauge",
    ("queue", "status"),
    "Whether counting has stopped at its limit, so that there may be more jobs: 1 or 0.",
)
OLDEST: Final = Name(
    "pgqueue_oldest_runnable_seconds",
    "gauge",
    QUEUE,
    "For how long the job has been due that could have run for longest; 0 where none waits.",
)
PAUSED: Final = Name("pgqueue_queue_paused", "gauge", QUEUE, "Whether the queue is paused: 1 or 0.")
WORKERS: Final = Name("pgqueue_workers", "gauge", QUEUE, "Living worker processes that serve the queue.")

OF_TABLES: Final = (UP, JOBS, DEAD, CAPPED, OLDEST, PAUSED, WORKERS)

# Metrics of one process

ATTEMPTS: Final = Name(
    "pgqueue_attempts", "counter", (*TASK, "outcome"), "Attempts that are over, by what they came to."
)
RETRIES: Final = Name("pgqueue_retries", "counter", TASK, "Failed attempts after which the job runs again.")
DIED: Final = Name("pgqueue_died", "counter", TASK, "Jobs that went to the dead jobs.")
STALE: Final = Name("pgqueue_stale_results", "counter", TASK, "Results that were dropped, as their lease was gone.")
ENQUEUED: Final = Name("pgqueue_enqueued", "counter", TASK, "Jobs that were enqueued by this process or command.")
WAIT: Final = Name("pgqueue_wait_seconds", "histogram", TASK, "From when a job was due until it was claimed.")
RUN: Final = Name("pgqueue_run_seconds", "histogram", TASK, "How long attempts have run.")
TURNS: Final = Name(
    "pgqueue_turn_seconds",
    "histogram",
    ("does",),
    "How long transactions took that claim jobs, write outcomes, or both.",
)
CLAIMED: Final = Name("pgqueue_claimed_jobs", "histogram", (), "How many jobs a claim has found.")
ACKED: Final = Name("pgqueue_acked_jobs", "histogram", (), "How many outcomes a transaction has written.")
PROCESSES: Final = Name("pgqueue_processes", "gauge", (), "Living worker processes of this command.")
SLOTS: Final = Name("pgqueue_slots", "gauge", (), "Jobs that the living processes may run at once, of each kind.")
BUSY: Final = Name("pgqueue_slots_busy", "gauge", (), "Jobs that run at this moment.")
LAST_PASS: Final = Name(
    "pgqueue_last_pass_timestamp_seconds", "gauge", ("duty",), "When a duty of the command was last done well."
)
BUILD: Final = Name(
    "pgqueue_build_info", "gauge", ("version", "django", "python"), "Versions of the command; always 1."
)

OF_WORKERS: Final = (
    *(ATTEMPTS, RETRIES, DIED, STALE, ENQUEUED, WAIT, RUN, TURNS, CLAIMED, ACKED),
    *(PROCESSES, SLOTS, BUSY, LAST_PASS, BUILD),
)


# Families


def gauge(name: Name) -> GaugeMetricFamily:
    """Begin a gauge."""
    return GaugeMetricFamily(name.name, name.help, labels=name.labels)


def counter(name: Name) -> CounterMetricFamily:
    """Begin a counter."""
    return CounterMetricFamily(name.name, name.help, labels=name.labels)


def histogram(name: Name) -> HistogramMetricFamily:
    """Begin a histogram."""
    return HistogramMetricFamily(name.name, name.help, labels=name.labels)


def empty(name: Name) -> Metric:
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
        self, alias: str | None = None, *, shared: Shared | None = None, wait_seconds: float | None = None
    ) -> None:
        self._shared = shared or Shared(partial(look, alias))
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

    def _look(self) -> Measures | None:
        try:
            found = self._shared.measures(wait_seconds=self._wait_seconds)
        except (Error, TookTooLong, TimeoutError) as error:
            if not self._is_away:
                logger.warning("Metrics do without the tables: %s", one_line(error) or type(error).__name__)
            self._is_away = True
            return None
        self._is_away = False
        return found


def families(found: Measures) -> Iterator[Metric]:
    """Tell what a look has found."""
    by_name: dict[Name, GaugeMetricFamily] = {name: gauge(name) for name in OF_TABLES if name is not UP}
    for line in found.queues:
        add(line, by_name)
    yield from by_name.values()


def add(line: QueueLine, to: dict[Name, GaugeMetricFamily]) -> None:
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
