"""What is said of a queue: how many jobs it has, who has paused it and why, how it is limited."""

import datetime as dt
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import Case, Q, Value, When
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.maintenance.pending_work import Counts, counts
from django_pgqueue.models import Queue
from django_pgqueue.staff import figures
from django_pgqueue.staff.figures import at_most, whole
from django_pgqueue.staff.terminal import columns

CAP = 1000
"""Jobs of one kind in one queue are counted up to here."""

MOST_QUEUES = 1000

NOBODY = Counts(0, 0, 0)

HEAD = ("queue", "queued", "running", "waiting", "limits", "paused")

PAUSED = Case(
    When(Q(paused_at__isnull=False) & (Q(resume_at=None) | Q(resume_at__gt=Now())), then=Value(True)),
    default=Value(False),
)
"""Whether a row says that its queue is paused, by the database's clock."""


@dataclass(frozen=True)
class QueueState:
    """One queue as it stands.

    Attributes:
        row: what has been said of it; one that is not stored where nobody has noted the queue yet.
        counts: how many jobs it has.
        is_paused: whether it is now.
    """

    row: Queue
    counts: Counts
    is_paused: bool


def states(alias: str, names: Collection[str] | None = None) -> list[QueueState]:
    """Return queues in alphabetical order, up to 1,000: those named, or all that are noted or have jobs queued."""
    rows = Queue.objects.using(alias).annotate(is_paused=PAUSED)
    if names is not None:
        rows = rows.filter(name__in=names)
    known = {row.name: row for row in rows.order_by("name")[:MOST_QUEUES]}
    unnoted = [name for name in _unnoted(alias) if names is None or name in names]
    found = known | {name: Queue(name=name) for name in unnoted}
    return states_of([found[name] for name in sorted(found)], alias)


def states_of(rows: Iterable[Queue], alias: str) -> list[QueueState]:
    """Return how the queues of these rows stand; the rows are annotated with ``is_paused``."""
    rows = list(rows)
    numbers = counts(CallerConnection(alias), [row.name for row in rows], limit=CAP + 1)
    return [QueueState(row, numbers.get(row.name, NOBODY), bool(getattr(row, "is_paused", False))) for row in rows]


def number(counted: int) -> str:
    """Show a number that was counted up to the cap."""
    return at_most(counted, CAP)


def limits_of(row: Queue) -> str:
    """Say in words how a queue is limited; empty where it is not."""
    parts = []
    if row.max_running is not None:
        parts.append(_("%(number)s at once") % {"number": whole(row.max_running)})
    if row.rate_limit is not None:
        rate = figures.rate(row.rate_limit, row.rate_period_seconds or 1.0)
        parts.append(_("%(rate)s, burst %(burst)s") % {"rate": rate, "burst": whole(row.rate_burst or 0)})
    return "; ".join(parts)


def pause_of(row: Queue) -> str:
    """Say in words who has paused a queue, since when, until when, and why."""
    words = _("by %(name)s since %(time)s")
    if row.resume_at is not None:
        words = _("by %(name)s since %(time)s until %(end)s")
    words %= {"name": row.paused_by, "time": _at(row.paused_at), "end": _at(row.resume_at)}
    return f"{words}: {row.pause_reason}" if row.pause_reason else words


def table(found: Iterable[QueueState]) -> str:
    """Return queues as lines of columns, below a head."""
    return columns(HEAD, map(_cells, found))


def as_json(state: QueueState) -> dict[str, Any]:
    """Return all that is known of a queue; numbers of jobs are counted up to 1,001."""
    row = state.row
    return {
        "name": row.name,
        **state.counts._asdict(),
        "is_paused": state.is_paused,
        "paused_at": row.paused_at if state.is_paused else None,
        "paused_by": row.paused_by if state.is_paused else None,
        "pause_reason": row.pause_reason if state.is_paused else None,
        "resume_at": row.resume_at if state.is_paused else None,
        "max_running": row.max_running,
        "rate_limit": row.rate_limit,
        "rate_period_seconds": row.rate_period_seconds,
        "rate_burst": row.rate_burst,
    }


def _cells(state: QueueState) -> tuple[str, ...]:
    paused = pause_of(state.row) if state.is_paused else ""
    return (state.row.name, *map(number, state.counts), limits_of(state.row) or "-", paused or "-")


def _at(value: dt.datetime | None) -> str:
    if value is None:
        return ""
    return f"{timezone.localtime(value) if timezone.is_aware(value) else value:%Y-%m-%d %H:%M:%S}"


def _unnoted(alias: str) -> list[str]:
    return [name for (name,) in CallerConnection(alias).rows(statement("unnoted_queues"), {"limit": MOST_QUEUES})]
