"""Workers, bulk actions, and the jobs that workers hold."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils.translation import pgettext

from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.insights.formatting import columns, compact
from django_pgqueue.insights.overview import living_workers
from django_pgqueue.jobs.actions import SkipReason
from django_pgqueue.models import BulkAction, Worker
from django_pgqueue.stored_values import seconds_between

HEAD = ("id", "process", "name", "state", "slots", "queues", "up", "heard", "version")

CAP = 1000  # jobs of one process are counted up to here
MOST_JOBS = 100


@dataclass(frozen=True)
class WorkerState:
    row: Worker
    at: dt.datetime  # when that was, by the database's clock
    held: int  # its jobs, begun or fetched ahead; ``CAP + 1`` where there are more

    @property
    def is_alive(self) -> bool:
        """Whether no other worker may take its jobs for lost."""
        return self.row.lease_until > self.at

    @property
    def up_seconds(self) -> float:
        return seconds_between(self.row.started_at, self.at)

    @property
    def silent_seconds(self) -> float:
        return max(seconds_between(self.row.heartbeat_at, self.at), 0.0)

    @property
    def left_seconds(self) -> float:
        """Until its lease ends; below 0: it has."""
        return seconds_between(self.at, self.row.lease_until)

    @property
    def word(self) -> str:
        """Its state: silent, stopping, quiet, busy or idle."""
        if not self.is_alive:
            return "silent"
        if self.row.stop_requested_at is not None:
            return "stopping"
        if self.row.quiet_since is not None:
            return "quiet"
        return "busy" if self.held else "idle"

    @property
    def busy(self) -> int:
        """Slots in use: a process fetches ahead only jobs that have no slot."""
        return min(self.held, self.row.concurrency)

    @property
    def ahead(self) -> int:
        """Jobs that wait in the process for a slot."""
        return self.held - self.busy


class HeldJob(NamedTuple):
    """One job of a process; the columns of ``jobs_of_worker.sql``."""

    id: int
    task: str
    queue: str
    attempts: int
    max_attempts: int
    seconds: float  # since it was claimed


def with_clock(rows: QuerySet[Worker]) -> QuerySet[Worker]:
    """Add the time of the database to the rows, as ``at``."""
    return rows.annotate(at=Now())


def states_of(rows: Iterable[Worker], alias: str) -> list[WorkerState]:
    """Return the states of the processes of these rows; the rows come ``with_clock``."""
    rows = list(rows)
    parameters = {"worker_ids": [row.pk for row in rows], "limit": CAP + 1}
    held: dict[int, int] = dict(CallerConnection(alias).rows(statement("jobs_per_worker"), parameters)) if rows else {}
    return [WorkerState(row, row.at, held.get(row.pk, 0)) for row in rows]  # type: ignore[attr-defined]


def jobs_of(worker_id: int, alias: str, *, limit: int = MOST_JOBS) -> list[HeldJob]:
    """Return the jobs that a process holds, the first claimed first, up to ``limit``."""
    parameters = {"worker_id": worker_id, "limit": limit}
    return [HeldJob(*row) for row in CallerConnection(alias).rows(statement("jobs_of_worker"), parameters)]


def table(states: Iterable[WorkerState]) -> str:
    """Return a line for each process, below a head."""
    return columns(HEAD, map(_cells, states))


def _cells(state: WorkerState) -> tuple[str, ...]:
    row = state.row
    asker = {"stopping": row.stop_requested_by, "quiet": row.quiet_by}.get(state.word)
    by = f" (asked by {asker})" if asker else ""
    return (
        *(str(row.pk), f"{row.host} {row.pid}", row.name or "-", f"{state.word}{by}"),
        *(f"{state.busy} of {row.concurrency}", served_text(row)),
        *(compact(state.up_seconds), f"{compact(state.silent_seconds)} ago", row.version),
    )


def as_json(state: WorkerState) -> dict[str, Any]:
    """Return the data of one process; the processes of one command share ``supervisor_id``."""
    row = state.row
    return {
        "id": row.pk,
        "supervisor_id": row.supervisor_id,
        "host": row.host,
        "pid": row.pid,
        "name": row.name,
        "version": row.version,
        "state": state.word,
        "queues": row.queues,
        "concurrency": row.concurrency,
        "busy": state.busy,
        "fetched_ahead": state.ahead,
        "memory_bytes": row.memory_bytes or None,
        "started_at": row.started_at,
        "heartbeat_at": row.heartbeat_at,
        "lease_until": row.lease_until,
        "stop_requested_at": row.stop_requested_at,
        "stop_requested_by": row.stop_requested_by or None,
        "quiet_since": row.quiet_since,
        "quiet_by": row.quiet_by or None,
    }


def served_text(worker: Worker) -> str:
    return ", ".join(worker.queues) if worker.queues else pgettext("queues", "all")


# Bulk actions


def has_living_worker(alias: str) -> bool:
    """Whether a worker lives that carries bulk actions on: any does."""
    return living_workers(alias).exists()


def skipped_of(bulk_action: BulkAction) -> list[tuple[SkipReason, int]]:
    counts = bulk_action.skipped if isinstance(bulk_action.skipped, dict) else {}
    return [(reason, counts[reason]) for reason in SkipReason if reason in counts]


def seen(bulk_action: BulkAction) -> int:
    """Return how many matching jobs it has come by: those that were changed, and those skipped."""
    return bulk_action.done + sum(count for _, count in skipped_of(bulk_action))
