"""What people say to workers."""

from collections.abc import Iterable

from django_pgqueue.db.connections import Where, caller_of
from django_pgqueue.db.notify import wake_for_cancel
from django_pgqueue.db.queries import statement


def request_stop(worker_ids: Iterable[int], *, by: str, database: Where = None) -> list[int]:
    """Ask the commands of these worker processes to stop, in the caller's transaction.

    A command stops as on SIGTERM, all its processes with it: it takes no more jobs, and those that run have its grace
    to end. It learns of it after the commit, at once where LISTEN works and else with its next heartbeat. Whatever has
    started it may start it again.

    Args:
        by: who does it; stands in the rows, and in the command's log.

    Returns:
        The ids of the processes that were asked, all those of the commands. Those that somebody has asked before, that
        are gone, or whose rows somebody is just changing are left out.
    """
    caller = caller_of(database)
    parameters = {"worker_ids": list(worker_ids), "by": by}
    asked = sorted(worker_id for (worker_id,) in caller.rows(statement("request_stop"), parameters))
    if asked:
        wake_for_cancel(caller)
    return asked
