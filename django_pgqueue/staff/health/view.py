"""What several looks need, read once."""

import functools
from collections.abc import Sequence

from django_pgqueue.db import CallerConnection
from django_pgqueue.housekeeping import vacuum
from django_pgqueue.housekeeping.vacuum import Signs
from django_pgqueue.models import Worker
from django_pgqueue.staff.overview import QueueLine, living_workers


class View:
    """What several looks need, read when the first one asks.

    Args:
        queues: how they stand.
    """

    def __init__(self, alias: str, queues: Sequence[QueueLine]) -> None:
        self.alias = alias
        self.queues = queues
        self.database = CallerConnection(alias)

    @functools.cached_property
    def workers(self) -> list[Worker]:
        """Those that are alive."""
        return list(living_workers(self.alias))

    @functools.cached_property
    def signs(self) -> Signs:
        """Dead rows of pgqueue_jobs, and its last VACUUM."""
        return vacuum.look(self.database)

    @functools.cached_property
    def with_work(self) -> list[QueueLine]:
        """Queues with jobs that want to run, and may."""
        return [queue for queue in self.queues if queue.has_work and not queue.is_paused]
