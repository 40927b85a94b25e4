"""How the queues stand, as the tables tell it; nothing of them is told while they cannot be read."""

import logging
from collections.abc import Iterator
from functools import partial

from django.db import Error
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from django_pgqueue.db.errors import one_line
from django_pgqueue.insights.bounded import TookTooLong
from django_pgqueue.insights.overview import Measures, QueueLine, Shared, look
from django_pgqueue.metrics.families import empty, gauge
from django_pgqueue.metrics.names import CAPPED, DEAD, JOBS, OF_TABLES, OLDEST, PAUSED, UP, WORKERS, Name

logger = logging.getLogger("django_pgqueue")

STATUSES = ("queued", "scheduled", "waiting", "running")


class QueueCollector(Collector):
    """For a registry of yours: ``registry.register(QueueCollector())``.

    Args:
        alias: of the database; None: that of the queue.
        shared: reads the tables. None: on Django's connection of whoever asks.
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
