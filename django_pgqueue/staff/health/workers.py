"""Look whether anybody is there, and hears."""

import datetime as dt
from collections.abc import Iterator

from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue.base.conf import conf
from django_pgqueue.staff.health.finding import Finding, Level
from django_pgqueue.staff.health.view import View
from django_pgqueue.staff.health.words import named
from django_pgqueue.staff.overview import living_workers, total

DEAF = dt.timedelta(minutes=1)
"""A worker that is younger may just not have connected yet."""


def no_workers(view: View) -> Iterator[Finding]:
    """Say that nobody runs any job."""
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
    """Say which queues have jobs and none of the workers that are alive."""
    lost = [queue for queue in view.with_work if not queue.workers] if view.workers else []
    if not lost:
        return
    told = [f"{queue.name} ({total([queue.queued, queue.waiting])})" for queue in lost]
    yield Finding(
        name="queue-not-served",
        level=Level.ERROR,
        what=ngettext(
            "No worker that is alive serves %(number)s queue in which jobs wait: %(queues)s.",
            "No worker that is alive serves %(number)s queues in which jobs wait: %(queues)s.",
            len(lost),
        )
        % {"number": len(lost), "queues": named(told)},
        remedy=_("Start a worker whose --queues names them, or none; or move the jobs to a queue that is served."),
        facts={"queues": [queue.name for queue in lost]},
    )


def polling(view: View) -> Iterator[Finding]:
    """Say that workers do not hear of new jobs, although these are announced."""
    if not conf.notify:
        return
    deaf = living_workers(view.alias).filter(session_pid=0, started_at__lt=Now() - DEAF)
    number = len({worker.supervisor_id for worker in deaf})
    commands = len({worker.supervisor_id for worker in view.workers})
    if not number:
        return
    yield Finding(
        name="polling",
        level=Level.WARNING,
        what=ngettext(
            "%(number)s of %(all)s worker command does not hear of new jobs: it looks for them every %(seconds)g s.",
            "%(number)s of %(all)s worker commands do not hear of new jobs: they look for them every %(seconds)g s.",
            commands,
        )
        % {"number": number, "all": commands, "seconds": conf.poll_seconds},
        remedy=_(
            "LISTEN needs a session of its own: behind a pooler in transaction mode, set PGQUEUE['LISTEN_DATABASE'] "
            "to an alias that leads to the server itself. Where they poll on purpose (--no-listen), set "
            "PGQUEUE['NOTIFY'] to False: announcing is for nothing then."
        ),
        facts={"commands": commands, "polling": number},
    )
