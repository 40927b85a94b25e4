"""What several looks need, read once."""

import functools
from collections.abc import Sequence

from django.db import connections

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.maintenance import vacuum
from django_pgqueue.maintenance.vacuum import Signs
from django_pgqueue.models import Worker
from django_pgqueue.staff.health.catalogue import Catalogue, unapplied
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
    def unapplied(self) -> list[str]:
        """Migrations of this code that the database has not seen."""
        return unapplied(self.alias)

    @functools.cached_property
    def catalogue(self) -> Catalogue:
        """What the database has of the tables."""
        return Catalogue(self.alias)

    @functools.cached_property
    def is_pooled(self) -> bool:
        """Whether a pooler stands before the server: it tells its clients process ids of its own."""
        [(pid,)] = self.database.rows("SELECT pg_backend_pid()", {})
        return bool(connections[self.alias].connection.info.backend_pid != pid)

    @functools.cached_property
    def with_work(self) -> list[QueueLine]:
        """Queues with jobs that want to run, and may."""
        return [queue for queue in self.queues if queue.has_work and not queue.is_paused]
