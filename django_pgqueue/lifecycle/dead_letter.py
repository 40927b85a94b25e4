"""Where jobs go that will not run again by themselves, and the way back."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django_pgqueue.base.states import Reason
from django_pgqueue.db import CallerConnection, Database, Parameters
from django_pgqueue.lifecycle.fence import fence
from django_pgqueue.lifecycle.sql import statement
from django_pgqueue.lifecycle.wake import wake


class DeadLetter(NamedTuple):
    """One job that dies: the fence, why, and the last entry of its history."""

    id: int
    lease_token: int  # 0: not running
    reason: Reason
    error: dict[str, Any]


def dead_letter(database: Database, letters: Sequence[DeadLetter], *, by: str | None = None) -> list[int]:
    """Move jobs to ``dead_jobs``.

    Args:
        by: who wanted it, where somebody did.

    Returns:
        The ids moved. Others were locked, or their lease is gone.
    """
    rows = database.rows(statement("dead_letter"), dead_letter_parameters(letters, by=by))
    return [job_id for (job_id,) in rows]


def dead_letter_parameters(letters: Sequence[DeadLetter], *, by: str | None = None) -> Parameters:
    """Return what ``dead_letter.sql`` needs, for those who send it themselves."""
    return fence(letters) | {
        "reasons": [letter.reason.value for letter in letters],
        "errors": [json.dumps(letter.error) for letter in letters],
        "by": by,
    }


def requeue(ids: Iterable[int], *, by: str, database: str | None = None) -> list[int]:
    """Send dead jobs back to be run, with all their attempts before them and a note in their history.

    Runs in the caller's transaction and wakes workers after its commit.

    Args:
        by: who does it; stands in the job's history.

    Returns:
        The ids requeued. Missing are those that are no longer dead, that somebody else is just changing, or whose
        unique key a live job holds: these stay dead.
    """
    caller = CallerConnection(database)
    rows = caller.rows(statement("requeue"), {"ids": list(ids), "by": by})
    for queue in sorted({queue for _, queue in rows}):
        wake(caller.alias, queue)
    return [job_id for job_id, _ in rows]
