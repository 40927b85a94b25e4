"""Settle jobs whose worker died while it was running them."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from django_pgqueue.base.records import Lease, Reaped
from django_pgqueue.base.states import MAX_LOST, Reason
from django_pgqueue.db import Database
from django_pgqueue.lifecycle.dead_letter import DeadLetter, dead_letter
from django_pgqueue.lifecycle.fence import fence
from django_pgqueue.lifecycle.release import release
from django_pgqueue.lifecycle.sql import statement


def settle(database: Database, leases: Sequence[Lease]) -> Reaped:
    """Send jobs of a dead worker back to queued, their attempt counted; those without an attempt left die.

    Every change is fenced, so two reapers, or a reaper and a late ack, cannot both have it.
    """
    if not leases:
        return Reaped(0, 0, frozenset())
    verdicts = [(lease, verdict(lease)) for lease in leases]
    lost = [lease for lease, reason in verdicts if reason is None]
    letters = [
        DeadLetter(lease.id, lease.lease_token, reason, worker_lost(lease))
        for lease, reason in verdicts
        if reason is not None
    ]
    returned = _send_back(database, lost) if lost else []
    dead = dead_letter(database, letters) if letters else []
    return Reaped(len(returned), len(dead), frozenset(lease.queue for lease in lost if lease.id in returned))


def settle_dead_process(
    database: Database, leases: Sequence[Lease], *, started: Collection[int], was_stopped: bool
) -> Reaped:
    """Settle what a worker process left whose end its supervisor has seen.

    What it had only fetched goes back as if never claimed. What it had started counts as an attempt; unless it was
    stopped on purpose, when only jobs that may be started just once pay for it.

    Args:
        started: the marks of the jobs it had started.
        was_stopped: the supervisor ended the process itself, because its time to stop was over.
    """
    unrun = [lease for lease in leases if lease.mark not in started or (was_stopped and _may_go_back(lease))]
    run = [lease for lease in leases if lease not in unrun]
    released = release(database, unrun) if unrun else []
    reaped = settle(database, run)
    queues = reaped.queues | {lease.queue for lease in unrun if lease.id in released}
    return Reaped(reaped.returned + len(released), reaped.dead, queues)


def verdict(lease: Lease) -> Reason | None:
    """Say why a job of a dead worker will not run again; None if it will."""
    if lease.is_cancelled:
        return Reason.KILLED
    if lease.attempts >= lease.max_attempts or lease.lost + 1 >= MAX_LOST:
        return Reason.LOST
    return None


def worker_lost(lease: Lease) -> dict[str, Any]:
    """Return the entry for the job's history."""
    return {"error": "worker lost", "worker": lease.worker}


def _may_go_back(lease: Lease) -> bool:
    return lease.max_attempts > 1 and not lease.is_cancelled


def _send_back(database: Database, leases: Sequence[Lease]) -> list[int]:
    parameters = fence(leases) | {"errors": [json.dumps(worker_lost(lease)) for lease in leases]}
    return [job_id for (job_id,) in database.rows(statement("reap"), parameters)]
