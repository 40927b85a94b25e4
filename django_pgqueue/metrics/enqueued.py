"""Counts what a process enqueues, for those that export metrics of their own, as web processes do."""

from prometheus_client import REGISTRY, CollectorRegistry, Counter

from django_pgqueue.metrics.names import ENQUEUED
from django_pgqueue.worker.metrics import tell_of_enqueued


def count_enqueued(registry: CollectorRegistry = REGISTRY) -> Counter:
    """Count from here on, as jobs are committed; to be called once, as in the ``ready()`` of an ``AppConfig``.

    Returns:
        A counter like any other of the registry, also where several processes share a folder.
    """
    counter = Counter(ENQUEUED.name, ENQUEUED.help, ENQUEUED.labels, registry=registry)
    tell_of_enqueued(lambda queue, task, number: counter.labels(queue, task).inc(number))
    return counter
