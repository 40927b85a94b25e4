"""Metrics for Prometheus, by the classes of ``prometheus_client``; an extra."""

from django_pgqueue.exceptions import ConfigurationError

try:
    import prometheus_client  # noqa: F401 - whether it is there
except ModuleNotFoundError as error:
    raise ConfigurationError(
        "Metrics need prometheus_client, which is not installed: pip install prometheus-client."
    ) from error

from django_pgqueue.contrib.prometheus.collectors import QueueCollector
from django_pgqueue.contrib.prometheus.page import count_enqueued, view

__all__ = ["QueueCollector", "count_enqueued", "view"]
