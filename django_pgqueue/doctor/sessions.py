"""Look whether the server lets the workers have as many connections as they may open."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from django.db import connections
from django.utils.translation import gettext as _

from django_pgqueue.db.queries import statement
from django_pgqueue.doctor.finding import Finding, Level, View

OF_COMMAND = 4
"""Heartbeat, maintenance, listener and now and then table-maintenance; see docs/how-to/deploy.md#connections."""

OF_PROCESS = 1
"""The consumer; every other thread that uses the database has one more."""

SIZE_OF_POOL = 4
"""That of psycopg, unless settings say so."""


class SessionLimit(NamedTuple):
    """A limit of sessions; the columns of ``connection_limits.sql``."""

    kind: str  # server, role or database
    name: str
    most: int
    used: int
    workers: int  # of these, sessions that bear the names of workers
    alike: int  # of these, sessions that may be those of their threads

    def others(self, needed: int) -> int:
        """Return how many sessions are surely not of the workers, which need the rest."""
        return self.used - self.workers - min(self.alike, max(needed - self.workers, 0))


def too_few_connections(view: View) -> Iterator[Finding]:
    """Name the limit that the workers which are alive may reach. A pooler in between has limits of its own."""
    if not view.workers or view.is_pooled:
        return
    needed = connections_of(view)
    for limit in map(SessionLimit._make, view.database.rows(statement("connection_limits"), {})):
        others = limit.others(needed)
        if needed + others <= limit.most:
            continue
        yield Finding(
            name="connections-short",
            level=Level.ERROR if needed > limit.most else Level.WARNING,
            what=_words(limit) % {"needed": needed, "name": limit.name, "most": limit.most, "others": others},
            remedy=_(
                "Raise that limit, run fewer processes or slots, or let the workers go through a pooler. Each command "
                "takes 4 connections, each of its processes 1, and each slot 1 whose tasks use the database."
            ),
            facts={**limit._asdict(), "needed": needed, "others": others},
        )
        return  # the lowest limit says it all


def connections_of(view: View) -> int:
    """Return how many connections the living workers may open to one database, by plain tasks alone."""
    commands = {worker.supervisor_id for worker in view.workers}
    most = _threads_with_connections(view.alias)
    slots = sum(worker.concurrency if most is None else min(worker.concurrency, most) for worker in view.workers)
    return OF_COMMAND * len(commands) + OF_PROCESS * len(view.workers) + slots


def _threads_with_connections(alias: str) -> int | None:
    """Return how many threads of a process can have a connection at once; None: all."""
    pool: Any = connections[alias].settings_dict["OPTIONS"].get("pool")
    if not pool:
        return None
    sizes = pool if isinstance(pool, dict) else {}
    return int(sizes.get("max_size") or sizes.get("min_size") or SIZE_OF_POOL)


def _words(limit: SessionLimit) -> str:
    if limit.kind == "role":
        return _(
            "The workers that are alive may open %(needed)s connections. ALTER ROLE %(name)s CONNECTION LIMIT allows "
            "it %(most)s, and others have %(others)s."
        )
    if limit.kind == "database":
        return _(
            "The workers that are alive may open %(needed)s connections. ALTER DATABASE %(name)s CONNECTION LIMIT "
            "allows %(most)s, and others have %(others)s."
        )
    return _(
        "The workers that are alive may open %(needed)s connections. The server's max_connections leaves %(most)s, and "
        "others have %(others)s."
    )
