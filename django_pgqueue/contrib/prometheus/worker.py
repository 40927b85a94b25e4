"""Metrics of one worker command, and its page."""

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import django
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from django_pgqueue.conf import conf
from django_pgqueue.contrib.prometheus.families import (
    ACKED,
    ATTEMPTS,
    BUILD,
    BUSY,
    CLAIMED,
    CYCLES,
    DIED,
    ENQUEUED,
    LAST_PASS,
    OF_WORKERS,
    PROCESSES,
    RETRIES,
    RUN,
    SLOTS,
    STALE,
    WAIT,
    MetricName,
    QueueCollector,
    counter,
    empty,
    exposed,
    gauge,
    histogram,
    observed,
)
from django_pgqueue.contrib.prometheus.page import Background
from django_pgqueue.insights.overview import SharedReading
from django_pgqueue.jobs import stats
from django_pgqueue.jobs.stats import BOUNDS, SIZES
from django_pgqueue.version import VERSION
from django_pgqueue.worker.http import Headers, Page, Response
from django_pgqueue.worker.metrics import CommandMetrics, CounterSums

OUTCOMES = {"succeeded": stats.SUCCEEDED, "failed": stats.FAILED, "lost": stats.LOST}
COUNTERS = {
    RETRIES: stats.RETRIED,
    DIED: stats.DIED,
    STALE: stats.STALE,
    ENQUEUED: stats.ENQUEUED,
}
SECONDS = {
    WAIT: (stats.WAIT_SECONDS, stats.WAIT_BUCKETS, stats.RUN_BUCKETS),
    RUN: (stats.RUN_SECONDS, stats.RUN_BUCKETS, stats.WIDTH),
}
DOES = {"claim": stats.CLAIM, "ack": stats.ACK, "both": stats.BOTH}
SIZES_OF_CYCLES = {CLAIMED: stats.CLAIMED, ACKED: stats.ACKED}


def page_of(figures: Callable[[], CommandMetrics]) -> Page:
    """Return the page of metrics of a command: its own figures, and those of the tables."""
    registry = CollectorRegistry()
    registry.register(WorkerCollector(figures))
    background = Background(conf.database)
    registry.register(
        QueueCollector(shared=SharedReading(background.look, background.begin), wait_seconds=conf.admin_timeout_seconds)
    )

    def page(headers: Headers) -> Response:
        body, told = exposed(registry, headers)
        return Response(body, told)

    return page


class WorkerCollector(Collector):
    """Tells the figures of one command."""

    def __init__(self, figures: Callable[[], CommandMetrics]) -> None:
        self._figures = figures

    def describe(self) -> list[Metric]:
        return list(map(empty, OF_WORKERS))

    def collect(self) -> Iterator[Metric]:
        figures = self._figures()
        yield from counters(figures.sums)
        yield from histograms(figures.sums)
        yield from gauges(figures)


def counters(sums: CounterSums) -> Iterator[Metric]:
    """Tell what has become of attempts and jobs."""
    attempts, others = counter(ATTEMPTS), {name: counter(name) for name in COUNTERS}
    for kind, row in sums.rows.items():
        for outcome, place in OUTCOMES.items():
            attempts.add_metric((*kind, outcome), row[place])
        for name, place in COUNTERS.items():
            others[name].add_metric(kind, row[place])
    yield attempts
    yield from others.values()


def histograms(sums: CounterSums) -> Iterator[Metric]:
    """Tell how long it took, and how much was done at once."""
    for name, (total, first, end) in SECONDS.items():
        family = histogram(name)
        for kind, row in sums.rows.items():
            family.add_metric(kind, observed(BOUNDS, row[first:end]), row[total])
        yield family
    yield _of_processes(CYCLES, BOUNDS, {(does,): sums.histograms[which] for does, which in DOES.items()})
    for name, which in SIZES_OF_CYCLES.items():
        yield _of_processes(name, SIZES, {(): sums.histograms[which]})


def gauges(figures: CommandMetrics) -> Iterator[Metric]:
    """Tell what is at this moment."""
    now = time.time()  # by the clock of this machine, as Prometheus wants it
    passes: dict[tuple[str, ...], float] = {
        (service,): round(now - age, 3) for service, age in figures.pass_ages.items()
    }
    build = (VERSION, django.get_version(), platform.python_version())
    yield _gauge(PROCESSES, {(): figures.processes})
    yield _gauge(SLOTS, {(): figures.slots})
    yield _gauge(BUSY, {(): figures.busy})
    yield _gauge(LAST_PASS, passes)
    yield _gauge(BUILD, {build: 1})


def _gauge(name: MetricName, values: Mapping[tuple[str, ...], float]) -> Metric:
    family = gauge(name)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _of_processes(name: MetricName, bounds: Sequence[float], rows: Mapping[tuple[str, ...], Sequence[float]]) -> Metric:
    family = histogram(name)
    for labels, (total, *counts) in rows.items():
        family.add_metric(labels, observed(bounds, counts), total)
    return family
