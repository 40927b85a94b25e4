"""Rows of workers: register, heartbeat, leases and their release, requests to stop, to be quiet and to go on."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from django_pgqueue.db.connections import Database, Fenced, Parameters, Where, caller_of, fence, ids_of, number_array
from django_pgqueue.db.notify import notify_kill
from django_pgqueue.db.queries import statement
from django_pgqueue.records import Lease
from django_pgqueue.validation import By, name_of

BEAT_SECONDS = 4.0
"""Maximum interval between heartbeats of a command that has a session, even with a long lease."""

SILENT_SECONDS = 5.0
"""Minimum time without a heartbeat after which a command counts as silent."""

RECONNECTED_SECONDS = 15.0
"""Time in which living workers reconnect after an outage; until then none is judged by its session."""


def register(
    database: Database,
    *,
    supervisor_id: int,
    host: str,
    name: str,
    version: str,
    concurrency: int,
    queues: Sequence[str],
    lease_seconds: int,
    worker_id: int | None = None,
    quiet_by: str | None = None,
) -> int | None:
    """Write down a worker process that is about to start; return its id, new for each start.

    The sequence may give an id that is in use: after a failover to an asynchronous replica it is behind the rows of
    workers that have registered again. Then the next one is taken. With the ``worker_id`` of a process that runs, its
    row is written again; None is returned if that is there. ``quiet_by``: who has asked its command to be quiet.
    """
    parameters = {
        "worker_id": worker_id,
        "supervisor_id": supervisor_id,
        "pid": 0,
        "host": host,
        "name": name,
        "version": version,
        "concurrency": concurrency,
        "queues": json.dumps(list(queues)),
        "lease_seconds": lease_seconds,
        "quiet_by": quiet_by,
    }
    while not (rows := database.rows(statement("register"), parameters)):
        if worker_id is not None:
            return None
    return rows[0][0]  # type: ignore[no-any-return]


class HeartbeatResult(NamedTuple):
    standing: set[int]  # the ids whose rows are there and were renewed
    stop_by: str | None  # who has asked the command to stop; None: no stop is requested
    quiet_by: Mapping[int, str | None]  # by id: who has asked it to be quiet, as its row says; None: it is not


def heartbeat(
    database: Database,
    pids: Mapping[int, int],
    *,
    lease_seconds: int,
    session_pid: int = 0,
    memory_bytes: Mapping[int, int] | None = None,
    tells_quiet: bool = False,
    quiet_by: str | None = None,
) -> HeartbeatResult:
    """Renew the leases of worker processes, given as ``{worker_id: pid}``.

    ``session_pid`` is the server's process for the session of their command; 0 if it has none. ``memory_bytes`` are
    resident, by worker id; 0 or missing: not known. With ``tells_quiet`` the rows say from now on who has asked the
    command to be quiet, ``quiet_by``; None: it is not.
    """
    memory = memory_bytes or {}
    parameters = {
        "worker_ids": list(pids),
        "pids": list(pids.values()),
        "memory_bytes": [memory.get(worker_id, 0) for worker_id in pids],
        "lease_seconds": lease_seconds,
        "session_pid": session_pid,
        "tells_quiet": tells_quiet,
        "quiet_by": quiet_by,
    }
    rows = database.rows(statement("heartbeat"), parameters)
    stop_by = next((by for _, by, _ in rows if by is not None), None)
    quiet_of = {worker_id: by for worker_id, _, by in rows}
    return HeartbeatResult(set(quiet_of), stop_by, quiet_of)


def silent_workers(database: Database, *, seconds: float) -> list[int]:
    """Return which worker processes have lost the session of their command and been silent for these seconds.

    One look proves nothing: a session may be terminated while the command lives, and it says so within a second.
    """
    return [worker_id for (worker_id,) in database.rows(statement("silent_workers"), {"seconds": seconds})]


def worker_leases(database: Database, worker_ids: Sequence[int]) -> list[Lease]:
    return [Lease._make(row) for row in database.rows(statement("worker_leases"), {"worker_ids": list(worker_ids)})]


def has_session(database: Database, worker_id: int, *, is_pooled: bool) -> bool:
    """Whether the server still works for the consumer of a process that has ended, which may yet claim something."""
    [(is_there,)] = database.rows(statement("consumer_session"), {"worker_id": worker_id, "is_pooled": is_pooled})
    return bool(is_there)


def release(database: Database, rows: Sequence[Fenced], delays: Sequence[float] | None = None) -> list[int]:
    """Put running jobs back to queued, or to scheduled where there is a delay, in seconds; None: none has one.

    Returns the ids released. Others were locked, or their lease is gone.
    """
    rows_released = database.rows(statement("release"), release_parameters(rows, delays))
    return [job_id for job_id, _ in rows_released]


def release_parameters(rows: Sequence[Fenced], delays: Sequence[float] | None = None) -> Parameters:
    """Return the parameters of ``release.sql``, for callers that send it in a pipeline."""
    return fence(rows) | {"delays": number_array([0.0] * len(rows) if delays is None else delays)}


def deregister(database: Database, worker_ids: Sequence[int]) -> set[int]:
    """Remove worker processes that have ended and whose jobs are settled; return those that are locked for now."""
    return {worker_id for (worker_id,) in database.rows(statement("deregister"), {"worker_ids": list(worker_ids)})}


def stop(worker_ids: Iterable[int], *, by: By = "", database: Where = None) -> list[int]:
    """Ask the commands of these worker processes to stop, in the caller's transaction.

    A command stops as on SIGTERM, all its processes with it: it takes no more jobs, and those that run have its
    shutdown timeout to end. It learns of it after the commit, at once where LISTEN works and else with its next
    heartbeat. The process manager that started it may start it again.

    Args:
        by: user who does it, or the username; kept in the rows, and in the log of the command.

    Returns:
        The ids of the processes that were asked, all those of the commands. Missing are those that were asked before,
        that are gone, or whose rows another transaction has locked.
    """
    caller = caller_of(database)
    parameters = {"worker_ids": ids_of(worker_ids), "by": name_of(by)}
    asked = sorted(worker_id for (worker_id,) in caller.rows(statement("request_stop"), parameters))
    if asked:
        notify_kill(caller)
    return asked


def quiet(worker_ids: Iterable[int], *, by: By = "", database: Where = None) -> list[int]:
    """Ask the commands of these worker processes to be quiet, in the caller's transaction.

    A quiet command, with all its processes, finishes the jobs that run, gives back those that it has fetched ahead, and
    claims nothing until ``resume()``, or until it is started again. It does its maintenance meanwhile. It learns of it
    after the commit, at once where LISTEN works and else with its next heartbeat. SIGUSR1 does the same.

    Args:
        by: user who does it, or the username; kept in the rows, and in the log of the command.

    Returns:
        The ids of the processes that were asked, all those of the commands. Missing are those that are quiet, that are
        gone, or whose rows another transaction has locked.
    """
    return _ask_quiet(worker_ids, is_quiet=True, by=by, database=database)


def resume(worker_ids: Iterable[int], *, by: By = "", database: Where = None) -> list[int]:
    """Ask the commands of these worker processes to claim jobs again, as ``quiet()``. SIGUSR2 does the same."""
    return _ask_quiet(worker_ids, is_quiet=False, by=by, database=database)


def _ask_quiet(worker_ids: Iterable[int], *, is_quiet: bool, by: By, database: Where) -> list[int]:
    caller = caller_of(database)
    parameters = {"worker_ids": ids_of(worker_ids), "is_quiet": is_quiet, "by": name_of(by)}
    asked = sorted(worker_id for (worker_id,) in caller.rows(statement("request_quiet"), parameters))
    if asked:
        notify_kill(caller)
    return asked
