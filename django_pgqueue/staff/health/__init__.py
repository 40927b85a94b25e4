"""What is wrong with the queue, whose fault it is, and what to do about it: for people in a hurry.

Each look costs a few reads of bounded size; none waits for a lock. ``findings()`` says nothing where all is well.

::

    finding     what a finding is
    view        what several looks need, read once
    words       names in a sentence
    workers     is anybody there, and do they hear?
    jobs        who waits too long, or in vain?
    schedules   do they fire?
    tables      dead rows and who keeps them, partitions, settings, clocks
"""

from collections.abc import Callable, Iterable, Iterator

from django.db import DatabaseError, transaction
from django.utils.translation import gettext as _

from django_pgqueue.base.conf import conf
from django_pgqueue.staff.health.finding import Finding, Level
from django_pgqueue.staff.health.jobs import failing, old_jobs, unknown_tasks
from django_pgqueue.staff.health.schedules import late_schedules, refused_schedules
from django_pgqueue.staff.health.tables import clocks, dead_rows, default_partition, old_snapshot, partitions, settings
from django_pgqueue.staff.health.view import View
from django_pgqueue.staff.health.workers import no_workers, polling, unserved
from django_pgqueue.staff.overview import QueueLine, lines

__all__ = ["LOOKS", "Finding", "Level", "findings"]

Look = Callable[[View], Iterable[Finding]]

LOOKS: tuple[Look, ...] = (
    no_workers,
    unserved,
    polling,
    old_jobs,
    failing,
    unknown_tasks,
    late_schedules,
    refused_schedules,
    old_snapshot,
    dead_rows,
    partitions,
    default_partition,
    settings,
    clocks,
)


def findings(alias: str | None = None, *, queues: list[QueueLine] | None = None) -> list[Finding]:
    """Return what is wrong, the worst first; nothing if all is well.

    Args:
        queues: how they stand, where that is known already.
    """
    alias = alias or conf.database
    view = View(alias, lines(alias) if queues is None else queues)
    found = [finding for look in LOOKS for finding in _guarded(look, view)]
    return sorted(found, key=lambda finding: finding.level is not Level.ERROR)


def _guarded(look: Look, view: View) -> Iterator[Finding]:
    """Let a look that the database refuses be a finding, and the others go on."""
    try:
        with transaction.atomic(using=view.alias):
            yield from list(look(view))
    except DatabaseError as error:
        yield Finding(
            name="not-looked-at",
            level=Level.WARNING,
            what=_("The database did not answer the question for %(name)s: %(error)s")
            % {"name": look.__name__.replace("_", " "), "error": str(error).strip().partition("\n")[0]},
            remedy=_("Look at what the role of this process may read, and how busy the server is."),
            facts={"look": look.__name__},
        )
