"""Report of the doctor: all looks and their findings, the worst first."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from django.db import connections, transaction

from django_pgqueue.conf import conf
from django_pgqueue.db.queries import bounded
from django_pgqueue.doctor import jobs, schedules, schema, tables, workers, workflows
from django_pgqueue.doctor.finding import UNANSWERED, Finding, Level, View, not_looked_at
from django_pgqueue.insights.overview import QueueLine, lines

Look = Callable[[View], Iterable[Finding]]

SCHEMA_LOOKS: tuple[Look, ...] = (
    schema.columns,
    schema.indexes,
    schema.checks,
    schema.functions,
    schema.numbers,
    tables.partitions,
    tables.settings,
)
"""Looks at the catalogue alone, not at jobs or workers: for the system checks too."""

LOOKS: tuple[Look, ...] = (
    workers.no_workers,
    workers.unserved,
    workers.polling,
    workers.versions,
    workers.stalled_bulk_actions,
    jobs.backlogs,
    jobs.failing,
    jobs.unknown_tasks,
    schedules.late_schedules,
    schedules.refused_schedules,
    workflows.problems,
    schema.migrations,
    *SCHEMA_LOOKS,
    workers.too_few_connections,
    tables.old_snapshot,
    tables.dead_rows,
    tables.default_partition,
    tables.publications,
    tables.clocks,
)
"""Those of the panel in the admin."""

ALL_LOOKS: tuple[Look, ...] = (*LOOKS, jobs.unfit_arguments, jobs.unfit_schedules, tables.claim_plan, workers.listening)
"""And those of pgqueue_doctor alone: they read arguments, plan a claim, or wait for an answer."""

DEPLOY_LOOKS: tuple[Look, ...] = (
    schema.migrations,
    jobs.unknown_tasks,
    jobs.unfit_arguments,
    jobs.unfit_schedules,
)
"""Those that compare the database with the code of this process."""

LOCK_MILLISECONDS = 100


def findings(
    alias: str | None = None, *, queues: list[QueueLine] | None = None, looks: Sequence[Look] = LOOKS
) -> list[Finding]:
    """Return the problems, the worst first; nothing if all is well.

    Inside a transaction that is open, its limits of time hold. Otherwise no statement takes longer than
    ``READ_TIMEOUT_SECONDS``, nor waits for a lock for longer than 100 ms.

    Args:
        queues: their state, if it is known already.
    """
    view = View(alias or conf.database, queues or [])
    first = (_count_queues,) if queues is None else ()
    found = [finding for look in (*first, *looks) for finding in _guarded(look, view)]
    return sorted(found, key=lambda finding: finding.level is not Level.ERROR)


def _count_queues(view: View) -> Iterable[Finding]:
    view.queues = lines(view.alias, view.workers)
    return ()


def _guarded(look: Look, view: View) -> Iterator[Finding]:
    try:
        with _limited(view):
            yield from list(look(view))
    except UNANSWERED as error:
        yield not_looked_at(look.__name__.strip("_").replace("_", " "), error, look=look.__name__)


@contextmanager
def _limited(view: View) -> Iterator[None]:
    """Ask in a transaction of its own, which keeps no lock and no snapshot once it is over; or behind a savepoint."""
    if connections[view.alias].in_atomic_block:
        with transaction.atomic(using=view.alias):
            yield
        return
    with bounded(view.alias):
        view.database.rows("SELECT set_config('lock_timeout', %(limit)s, true)", {"limit": f"{LOCK_MILLISECONDS}ms"})
        yield
