"""Report of the doctor: all looks and their findings, the worst first."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
from django.db import Error, connections, transaction
from django.utils.translation import gettext as _

from django_pgqueue.conf import conf
from django_pgqueue.db.errors import one_line
from django_pgqueue.db.queries import statement
from django_pgqueue.doctor.finding import Finding, Level, View
from django_pgqueue.doctor.jobs import failing, old_jobs, unfit_arguments, unfit_schedules, unknown_tasks
from django_pgqueue.doctor.schedules import late_schedules, refused_schedules
from django_pgqueue.doctor.schema import checks, columns, functions, indexes, migrations
from django_pgqueue.doctor.tables import clocks, dead_rows, default_partition, old_snapshot, partitions, settings
from django_pgqueue.doctor.workers import (
    listening,
    no_workers,
    polling,
    stalled_bulk_actions,
    too_few_connections,
    unserved,
    versions,
)
from django_pgqueue.insights.bounded import TookTooLong, bounded
from django_pgqueue.insights.overview import QueueLine, lines

Look = Callable[[View], Iterable[Finding]]

SCHEMA_LOOKS: tuple[Look, ...] = (columns, indexes, checks, functions, partitions, settings)
"""Looks at the catalogue alone, whatever works or waits: for the system checks too."""

LOOKS: tuple[Look, ...] = (
    no_workers,
    unserved,
    polling,
    versions,
    stalled_bulk_actions,
    old_jobs,
    failing,
    unknown_tasks,
    late_schedules,
    refused_schedules,
    migrations,
    *SCHEMA_LOOKS,
    too_few_connections,
    old_snapshot,
    dead_rows,
    default_partition,
    clocks,
)
"""Those of the panel in the admin."""

ALL_LOOKS: tuple[Look, ...] = (*LOOKS, unfit_arguments, unfit_schedules, listening)
"""And those of pgqueue_doctor alone: they read arguments, or wait for an answer."""

NOT_LOOKED_AT = "not-looked-at"

LOCK_MILLISECONDS = 100


def findings(
    alias: str | None = None, *, queues: list[QueueLine] | None = None, looks: Sequence[Look] = LOOKS
) -> list[Finding]:
    """Return what is wrong, the worst first; nothing if all is well.

    Inside a transaction that is open, its limits of time hold. Otherwise no statement takes longer than
    ``ADMIN_TIMEOUT_SECONDS``, nor waits for a lock for longer than 100 ms.

    Args:
        queues: how they stand, where that is known already.
    """
    view = View(alias or conf.database, queues or [])
    first = (_count_queues,) if queues is None else ()
    found = [finding for look in (*first, *looks) for finding in _guarded(look, view)]
    return sorted(found, key=lambda finding: finding.level is not Level.ERROR)


def _count_queues(view: View) -> Iterable[Finding]:
    view.queues = lines(view.alias)
    return ()


def _guarded(look: Look, view: View) -> Iterator[Finding]:
    try:
        with _limited(view):
            yield from list(look(view))
    except (Error, psycopg.Error, TookTooLong) as error:
        yield Finding(
            name=NOT_LOOKED_AT,
            level=Level.WARNING,
            what=_("The database did not answer the question for %(name)s: %(error)s")
            % {"name": look.__name__.strip("_").replace("_", " "), "error": one_line(error.__cause__ or error)},
            remedy=_("Look at what the role of this process may read, and how busy the server is."),
            facts={"look": look.__name__},
        )


@contextmanager
def _limited(view: View) -> Iterator[None]:
    """Ask in a transaction of its own, which keeps no lock and no snapshot once it is over; or behind a savepoint."""
    if connections[view.alias].in_atomic_block:
        with transaction.atomic(using=view.alias):
            yield
        return
    with bounded(view.alias):
        view.database.rows(statement("lock_timeout"), {"milliseconds": LOCK_MILLISECONDS})
        yield
