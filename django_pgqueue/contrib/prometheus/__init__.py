"""Metrics for Prometheus, by the classes of ``prometheus_client``; imported by whoever wants them, and by nobody else.

::

    names        what each metric is called, and what it tells
    families     the same as prometheus_client has it
    tables       how the queues stand, for any registry
    worker       what one worker command has done, and its page
    background   reads the tables for it, on a connection of its own
    enqueued     counts what another process enqueues, for its own registry
    exposition   the formats in which a registry is told
    page         the same of the tables, as a page of the project
    urls         where that is
"""

from django_pgqueue.exceptions import ConfigurationError

try:
    import prometheus_client  # noqa: F401 - whether it is there
except ModuleNotFoundError as error:
    raise ConfigurationError(
        "Metrics need prometheus_client, which is not installed: pip install 'django-pgqueue[prometheus]'."
    ) from error

from django_pgqueue.contrib.prometheus.families import QueueCollector
from django_pgqueue.contrib.prometheus.page import count_enqueued, view

__all__ = ["QueueCollector", "count_enqueued", "view"]
