"""Move jobs that will not run again to ``dead_jobs``, and retry them."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from django_pgqueue.db.connections import Database, JobIds, Parameters, Where, as_one, caller_of_jobs, fence
from django_pgqueue.db.notify import notify_due, notify_waiters
from django_pgqueue.db.queries import statement
from django_pgqueue.signals import JobEvent, announce, death_event, job_died, job_retried
from django_pgqueue.states import DeathReason, EntryKind
from django_pgqueue.validation import By, check_snapshot, name_of


class DeadLetter(NamedTuple):
    id: int
    lease_token: int  # 0: not running
    reason: DeathReason
    error: dict[str, Any]  # the last entry of its history


class DeadLetterResult(NamedTuple):
    keys: dict[int, str | None] = {}  # concurrency keys of the jobs moved, by id; others of a key may be admitted now
    events: Sequence[JobEvent] = ()  # of the same jobs, for receivers; empty where there are none


def dead_letter(
    database: Database, letters: Sequence[DeadLetter], *, by: str | None = None, is_told: bool | None = None
) -> DeadLetterResult:
    """Move jobs to ``dead_jobs``, and notify callers that wait for them after the commit.

    The caller announces the deaths, by the events that are returned. Jobs that are missing were locked, or their lease
    is gone.

    Args:
        by: user who asked for it; None: the queue itself.
        is_told: whether the events are wanted; None: if ``job_died`` has receivers.
    """
    is_told = bool(job_died.receivers) if is_told is None else is_told
    parameters = dead_letter_parameters(letters, by=by, is_told=is_told)
    rows = database.rows(statement("dead_letter"), parameters)
    notify_waiters(database, [job_id for job_id, is_awaited, *_ in rows if is_awaited])
    events = [death_event(job_id, told, database=database.alias) for job_id, *_, told in rows if told]
    return DeadLetterResult({job_id: key for job_id, _, key, _ in rows}, events)


def expired_entry() -> dict[str, Any]:
    """Return the entry for the history of a job that has expired; ``dead_letter.sql`` adds its deadline."""
    return {"kind": EntryKind.EXPIRED, "error": "expired"}


def dead_letter_parameters(
    letters: Sequence[DeadLetter], *, by: str | None = None, is_told: bool = False
) -> Parameters:
    """Return the parameters of ``dead_letter.sql``, for callers that send it in a pipeline."""
    return fence(letters) | {
        "reasons": [letter.reason.value for letter in letters],
        "errors": [json.dumps(letter.error) for letter in letters],
        "by": by,
        "is_told": is_told,
    }


class RetryResult(NamedTuple):
    """The ids of dead jobs by what ``retry`` has done with them.

    Attributes:
        ids: to be run again.
        held_by: those that stay dead, each with the id of the live job that has its unique key.
    """

    ids: list[int]
    held_by: dict[int, int]


def retry(ids: JobIds, *, by: By = "", database: Where = None) -> RetryResult:
    """Send dead jobs back to be run, with all their attempts before them and a note in their history.

    A job whose unique key a live job holds stays dead, and its history says so. Runs in the caller's transaction and
    wakes workers after its commit.

    Args:
        by: user who does it, or the username; kept in the history of the jobs.

    Returns:
        The ids retried, and those that stay dead for their unique key. In neither part are those that are not dead any
        more, or that another transaction has locked.
    """
    (caller, ids), by = caller_of_jobs(ids, database), name_of(by)
    with as_one(caller):
        check_snapshot(caller.rows(statement("share_workflows"), {"ids": ids}))
        rows = caller.rows(statement("retry_dead"), {"ids": ids, "by": by})
    notify_due(caller, [(queue, key) for _, queue, key in rows])
    retried = [job_id for job_id, _, _ in rows]
    if retried:
        announce(job_retried, ids=retried, by=by, database=caller.alias)
    rest = sorted(set(ids).difference(retried))
    held_by: dict[int, int] = dict(caller.rows(statement("note_key_holder"), {"ids": rest, "by": by})) if rest else {}
    return RetryResult(retried, held_by)
