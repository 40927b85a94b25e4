"""Stop jobs: those that wait at once, those that run by request."""

from collections.abc import Iterable
from typing import NamedTuple

from django_pgqueue.db.connections import Where, caller_of
from django_pgqueue.db.notify import wake_for_cancel, wake_to_admit
from django_pgqueue.db.queries import statement
from django_pgqueue.lifecycle.dead_letter import DeadLetter, dead_letter
from django_pgqueue.signals import announce, job_killed
from django_pgqueue.states import Reason


class Killed(NamedTuple):
    """What a kill came to."""

    dead: list[int]  # moved to dead_jobs
    requested: list[int]  # running; the worker has been asked


def kill(ids: Iterable[int], *, by: str, database: Where = None) -> Killed:
    """Kill jobs in the caller's transaction.

    A job that is not running goes to ``dead_jobs`` with the reason ``killed``. A running one is asked to stop: its
    worker learns of it after the commit, sets ``current_job().is_cancelled``, cancels an async task at once and raises
    ``JobKilled`` in a plain one a second later. If it does not listen, the process is ended some seconds after that.

    Args:
        by: who does it; stands in the job's history.

    Returns:
        The ids by what was done. In neither list: gone, or just being changed by somebody else.
    """
    caller, ids = caller_of(database), list(ids)
    dead = dead_letter(
        caller, [DeadLetter(job_id, 0, Reason.KILLED, {"error": f"killed by {by}"}) for job_id in ids], by=by
    )
    running = sorted(set(ids) - set(dead))
    requested = [job_id for (job_id,) in caller.rows(statement("cancel"), {"ids": running, "by": by})]
    if requested:
        wake_for_cancel(caller)
    wake_to_admit(caller, {key for key in dead.values() if key is not None})
    if dead or requested:
        announce(job_killed, ids=list(dead), requested=requested, by=by, database=caller.alias)
    return Killed(list(dead), requested)
