"""Look whether notifications arrive: what workers try when they connect is tried here."""

from collections.abc import Iterator

from django.utils.translation import gettext as _

from django_pgqueue.conf import conf
from django_pgqueue.doctor.finding import Finding, Level, View
from django_pgqueue.insights.formatting import short
from django_pgqueue.worker.listener import FULL, try_out


def listening(view: View) -> Iterator[Finding]:
    """Say that who listens hears nothing. Takes two connections, and two seconds where nothing arrives."""
    listens = conf.listen_database if view.alias == conf.database else view.alias
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
        what=_("Who listens by way of %(alias)r hears nothing: there is a pooler in between, in transaction mode.")
        % alias,
        remedy=_(
            "Set PGQUEUE['LISTEN_DATABASE'] to an alias that leads to the same database directly. Until then workers "
            "look for jobs every %(seconds)s s."
        )
        % {"seconds": short(conf.poll_seconds, 6)},
        facts=alias,
    )
