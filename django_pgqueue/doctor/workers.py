"""Look whether workers are there, get notifications, and carry out what staff have begun."""

import datetime as dt
from collections.abc import Iterator

from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_pgqueue.conf import conf
from django_pgqueue.doctor.finding import Finding, Level, View, named
from django_pgqueue.insights.formatting import short
from django_pgqueue.insights.overview import living_workers, total
from django_pgqueue.models import BulkAction
from django_pgqueue.version import VERSION

DEAF = dt.timedelta(minutes=1)
"""A worker that is younger may just not have connected yet."""

STALLED = dt.timedelta(minutes=1)
"""Time after which a bulk action whose slice is due counts as abandoned: workers look every second."""

MOST_BULK_ACTIONS = 100


def no_workers(view: View) -> Iterator[Finding]:
    """Say that no worker runs any job."""
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


def versions(view: View) -> Iterator[Finding]:
    """Say that workers run another version of the package than this process."""
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
    """Say which bulk actions of staff are not carried on, although a slice is due."""
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
