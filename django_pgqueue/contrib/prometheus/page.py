"""The pages of metrics: of a web process, and of a worker command."""

import functools
import gzip
import secrets
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from django.db import Error, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseForbidden
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import REGISTRY, CollectorRegistry, Counter
from prometheus_client.exposition import choose_encoder, gzip_accepted

from django_pgqueue.conf import conf
from django_pgqueue.contrib.prometheus.collectors import (
    QueueCollector,
    SharedReading,
    WorkerCollector,
    of_each,
    read_outbox,
    read_tables,
)
from django_pgqueue.contrib.prometheus.families import ENQUEUED
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.errors import is_too_slow, is_transient
from django_pgqueue.worker.http import Headers, Page, Response
from django_pgqueue.worker.metrics import CommandMetrics, on_enqueued

T = TypeVar("T")

PERMISSION = "pgqueue.view_overview"

REFUSAL = (
    "For staff with the permission to view the overview of the queues, or with the header "
    "'Authorization: Bearer' and the token of PGQUEUE['METRICS_TOKEN'].\n"
)


@never_cache
@require_safe
@transaction.non_atomic_requests
def view(request: HttpRequest) -> HttpResponse:
    """Export the metrics of the tables; not the counters of other processes."""
    if not (knows_token(request) or may_look(request)):
        return HttpResponseForbidden(REFUSAL, content_type="text/plain")
    body, headers = exposed(_registry(conf.databases), request.headers)
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


def exposed(registry: CollectorRegistry, headers: Mapping[str, str]) -> tuple[bytes, dict[str, str]]:
    """Return the answer to a request with these headers, and the headers that it has."""
    encode, content_type = choose_encoder(headers.get("Accept") or "")
    body, told = encode(registry), {"Content-Type": content_type, "Vary": "Accept, Accept-Encoding"}
    if gzip_accepted(headers.get("Accept-Encoding") or ""):
        body, told = gzip.compress(body, compresslevel=1), told | {"Content-Encoding": "gzip"}
    return body, told


@functools.cache
def _registry(aliases: tuple[str, ...]) -> CollectorRegistry:
    """Return the registry of this process. A reading in another thread, which may hang, is not waited out."""
    registry = CollectorRegistry()
    wait_seconds = conf.read_timeout_seconds
    if len(aliases) == 1:
        registry.register(QueueCollector(alias=aliases[0], wait_seconds=wait_seconds))
    else:
        registry.register(of_each({alias: _tables_of(alias, is_kept=False) for alias in aliases}))
    return registry


def count_enqueued(registry: CollectorRegistry = REGISTRY) -> Counter:
    """Count jobs from here on, as they are committed; to be called once, as in the ``ready()`` of an ``AppConfig``.

    Returns:
        The counter, by queue and task. It is like any other of the registry, also where several processes share a
        folder.
    """
    counter = Counter(ENQUEUED.name, ENQUEUED.help, ENQUEUED.labels, registry=registry)
    on_enqueued(lambda queue, task, number: counter.labels(queue, task).inc(number))
    return counter


# The page of one worker command


def page_of(figures: Mapping[str, Callable[[], CommandMetrics]]) -> Page:
    """Return the page of metrics of a command: its own figures of each database, by alias, and those of the tables."""
    registry = CollectorRegistry()
    registry.register(of_each({alias: WorkerCollector(one) for alias, one in figures.items()}))
    registry.register(of_each({alias: _tables_of(alias, is_kept=True) for alias in figures}))

    def page(headers: Headers) -> Response:
        return Response(*exposed(registry, headers))

    return page


# Readings apart from the caller


def _tables_of(alias: str, *, is_kept: bool) -> QueueCollector:
    outboxes = {
        outbox: _apart(outbox, partial(read_outbox, outbox, alias), is_kept=is_kept) for outbox in conf.outboxes
    }
    queues = _apart(alias, partial(read_tables, alias), is_kept=is_kept)
    return QueueCollector(shared=queues, outboxes=outboxes, wait_seconds=conf.read_timeout_seconds)


def _apart(alias: str, look: Callable[[], T], *, is_kept: bool) -> SharedReading[T]:
    """Return a reading of ``alias`` in a thread of its own, so that no scrape waits for a silent server.

    It has a connection of its own, on which no answer is waited for without end; it may be kept for the next scrape.
    """
    database = QueueConnection(alias, "metrics", patience_seconds=2 * conf.read_timeout_seconds)

    def read() -> T:
        database.lend()
        try:
            return _read(database, look)
        except Error as error:
            if not is_transient(error) or is_too_slow(error):
                raise
            return _read(database, look)  # on a new connection
        finally:
            if not is_kept:
                database.close()

    def begin(reading: Callable[[], None]) -> None:
        threading.Thread(target=reading, name="pgqueue-metrics", daemon=True).start()

    return SharedReading(read, begin)


def _read(database: QueueConnection, look: Callable[[], T]) -> T:
    database.autocommit()  # opens it where need be
    try:
        return look()
    except Error:
        database.close()
        raise
