"""Look whether workers are there, get notifications and connections, and carry out what staff have begun."""

import datetime as dt
from collections.abc import Iterator
from typing import Any, NamedTuple

from django.db import connections
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue.conf import conf
from django_pgqueue.db.queries import statement
from django_pgqueue.doctor.finding import Finding, Level, View, named
from django_pgqueue.insights.formatting import short
from django_pgqueue.insights.overview import total
from django_pgqueue.models import BulkAction
from django_pgqueue.version import VERSION
from django_pgqueue.worker.listener import FULL, try_out

CONNECTING = dt.timedelta(minutes=1)  # a younger worker may just not listen yet
STALLED = dt.timedelta(minutes=1)  # since its slice was due: workers look every second
MOST_BULK_ACTIONS = 100


def no_workers(view: View) -> Iterator[Finding]:
    if view.workers:
        return
    waiting = [queue.name for queue in view.with_work]
    yield Finding(
        name="no-workers",
        level=Level.ERROR if waiting else Level.WARNING,
        what=_("No worker is alive, and jobs wait in: %(queues)s.") % {"queues": named(waiting)}
        if waiting
        else _("No worker is alive."),
        remedy=_("Start one: manage.py pgqueue_worker. If one should be running, its log says why it is not."),
        facts={"queues": waiting},
    )


def unserved(view: View) -> Iterator[Finding]:
    lost = [queue for queue in view.with_work if not queue.workers] if view.workers else []
    if not lost:
        return
    told = [f"{queue.name} ({total([queue.queued, queue.limited])})" for queue in lost]
    yield Finding(
        name="queue-not-served",
        level=Level.ERROR,
        what=ngettext(
            "No worker that is alive serves %(number)s queue in which jobs wait: %(queues)s.",
            "No worker that is alive serves %(number)s queues in which jobs wait: %(queues)s.",
            len(lost),
        )
        % {"number": len(lost), "queues": named(told)},
        remedy=_("Start a worker whose --queue names them, or none; or move the jobs to a queue that is served."),
        facts={"queues": [queue.name for queue in lost]},
    )


def polling(view: View) -> Iterator[Finding]:
    if not conf.notify:
        return
    number = len({worker.supervisor_id for worker in view.workers if _only_polls(worker)})
    commands = len({worker.supervisor_id for worker in view.workers})
    if not number:
        return
    yield Finding(
        name="polling",
        level=Level.WARNING,
        what=ngettext(
            "%(number)s of %(all)s worker commands does not hear of new jobs: it looks for them every %(seconds)s s.",
            "%(number)s of %(all)s worker commands do not hear of new jobs: they look for them every %(seconds)s s.",
            number,
        )
        % {"number": number, "all": commands, "seconds": short(conf.poll_seconds, 6)},
        remedy=_(
            "LISTEN needs a session of its own: behind a pooler in transaction mode, set PGQUEUE['LISTEN_DATABASE'] "
            "to an alias that leads to the server itself. Where they poll on purpose (--poll-only), set "
            "PGQUEUE['NOTIFY'] to False: announcing is for nothing then."
        ),
        facts={"commands": commands, "polling": number},
    )


def _only_polls(worker: Any) -> bool:
    return not worker.session_pid and worker.started_at < worker.at - CONNECTING


def versions(view: View) -> Iterator[Finding]:
    other = [worker.version for worker in view.workers if worker.version != VERSION]
    if not other:
        return
    yield Finding(
        name="versions-differ",
        level=Level.WARNING,
        what=ngettext(
            "%(number)s of %(all)s worker processes runs another version of django-pgqueue than %(here)s: "
            "%(versions)s.",
            "%(number)s of %(all)s worker processes run another version of django-pgqueue than %(here)s: %(versions)s.",
            len(other),
        )
        % {"number": len(other), "all": len(view.workers), "here": VERSION, "versions": named(sorted(set(other)))},
        remedy=_("While a deployment is under way that is right. Afterwards, restart the workers with the new code."),
        facts={"here": VERSION, "versions": sorted(set(other)), "processes": len(other)},
    )


def stalled_bulk_actions(view: View) -> Iterator[Finding]:
    due = BulkAction.objects.using(view.alias).filter(ended_at=None, next_at__lt=Now() - STALLED).order_by("next_at")
    stalled = list(due[:MOST_BULK_ACTIONS])
    if not stalled:
        return
    yield Finding(
        name="bulk-actions-stalled",
        level=Level.WARNING,
        what=ngettext(
            "No worker carries on %(number)s bulk action: %(bulk_actions)s.",
            "No worker carries on %(number)s bulk actions: %(bulk_actions)s.",
            len(stalled),
        )
        % {"number": len(stalled), "bulk_actions": named([str(bulk_action) for bulk_action in stalled])},
        remedy=_("Any worker does. Start one, or look into the log of those that run; or stop the bulk action."),
        facts={"bulk_actions": [bulk_action.pk for bulk_action in stalled]},
    )


def listening(view: View) -> Iterator[Finding]:
    """Try what workers try when they connect. Takes two connections, and two seconds where nothing arrives."""
    listens = conf.listen_alias(view.alias)
    useless = try_out(listens, view.alias) if conf.notify else None
    if useless is None:
        return
    alias = {"alias": listens}
    if useless == FULL:
        yield Finding(
            name="notifications-full",
            level=Level.ERROR,
            what=_("The server takes no more notifications: some session does not read them, and their queue is full."),
            remedy=_("End that session; the server's log names it: see pg_notification_queue_usage(). Workers poll."),
            facts=alias,
        )
        return
    yield Finding(
        name="listen-behind-pooler",
        level=Level.WARNING,
        what=_("LISTEN by way of %(alias)r gets no notifications: there is a pooler in between, in transaction mode.")
        % alias,
        remedy=_(
            "Set PGQUEUE['LISTEN_DATABASE'] to an alias that leads to the same database directly. Until then workers "
            "look for jobs every %(seconds)s s."
        )
        % {"seconds": short(conf.poll_seconds, 6)},
        facts=alias,
    )


# Connections

OF_COMMAND = 4  # heartbeat, maintenance, listener, at times table-maintenance; see docs/how-to/sizing.md#connections
OF_PROCESS = 1  # the consumer; every other thread that uses the database has one more
SIZE_OF_POOL = 4  # that of psycopg, unless settings say so


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
