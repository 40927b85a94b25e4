"""The pages of metrics: of a web process, and of a worker command."""

import functools
import platform
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import django
from django.db import Error, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import REGISTRY, CollectorRegistry, Counter
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
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.errors import is_too_slow, is_transient
from django_pgqueue.insights.overview import OverviewData, SharedReading, read_overview
from django_pgqueue.jobs import stats
from django_pgqueue.jobs.stats import BOUNDS, SIZES
from django_pgqueue.version import VERSION
from django_pgqueue.worker.http import Headers, Page, Response
from django_pgqueue.worker.metrics import CommandMetrics, CounterSums, on_enqueued

PERMISSION = "django_pgqueue.view_overview"

REFUSAL = (
    "For staff with the permission to view the overview of the queues, or with the header "
    "'Authorization: Bearer' and the token of PGQUEUE['METRICS_TOKEN'].\n"
)

IDLE_SECONDS = 120.0  # without a request, after which the connection is closed


@never_cache
@require_safe
@transaction.non_atomic_requests
def view(request: HttpRequest) -> HttpResponse:
    """Tell how the queues stand; not what other processes have counted."""
    if not (knows_token(request) or may_look(request)):
        return HttpResponseForbidden(REFUSAL, content_type="text/plain")
    body, headers = exposed(_registry(conf.database), request.headers)
    return HttpResponse(body, headers=headers)


view.login_required = False  # type: ignore[attr-defined] # of Django's LoginRequiredMiddleware: a scraper cannot log in


def knows_token(request: HttpRequest) -> bool:
    """Whether a token is set, and the request brings it."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if not conf.metrics_token or scheme.lower() != "bearer":
        return False
    return secrets.compare_digest(token.strip().encode(), conf.metrics_token.encode())


def may_look(request: HttpRequest) -> bool:
    """Whether staff ask who may see the same in the admin."""
    user = getattr(request, "user", None)
    return bool(user and user.is_active and user.is_staff and user.has_perm(PERMISSION))


@functools.cache
def _registry(alias: str) -> CollectorRegistry:
    """Return the registry of this process. A look serves a second; another thread's may hang, and is not waited out."""
    registry = CollectorRegistry()
    registry.register(QueueCollector(alias=alias, wait_seconds=conf.admin_timeout_seconds))
    return registry


# Look in a thread of its own


class Background:
    """Looks in a thread of its own: requests need not wait for a silent server. A broken connection is replaced."""

    def __init__(self, alias: str) -> None:
        self._looks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._database = QueueConnection(alias, "metrics", patience_seconds=2 * conf.admin_timeout_seconds)

    def begin(self, looking: Callable[[], None]) -> None:
        """Have it done in the thread; by one caller at a time."""
        self._looks.put(looking)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="pgqueue-metrics", daemon=True)
            self._thread.start()

    def look(self) -> OverviewData:
        try:
            return self._look()
        except Error as error:
            if not is_transient(error) or is_too_slow(error):
                raise
            return self._look()

    def _look(self) -> OverviewData:
        self._database.autocommit()  # opens it where need be
        try:
            return read_overview(self._database.alias)
        except Error:
            self._database.close()
            raise

    def _work(self) -> None:
        self._database.lend()
        while True:
            try:
                self._looks.get(timeout=IDLE_SECONDS)()
            except queue.Empty:
                self._database.close()


# Counts of enqueued jobs


def count_enqueued(registry: CollectorRegistry = REGISTRY) -> Counter:
    """Count from here on, as jobs are committed; to be called once, as in the ``ready()`` of an ``AppConfig``.

    Returns:
        A counter like any other of the registry, also where several processes share a folder.
    """
    counter = Counter(ENQUEUED.name, ENQUEUED.help, ENQUEUED.labels, registry=registry)
    on_enqueued(lambda queue, task, number: counter.labels(queue, task).inc(number))
    return counter


# Metrics of one worker command, and its page

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
