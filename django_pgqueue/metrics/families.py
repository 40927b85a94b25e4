"""Families of samples as ``prometheus_client`` has them, made of the names of metrics."""

import functools
from collections.abc import Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from django_pgqueue.metrics.names import Name


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
