"""Meet the job that has the unique key already, and do to it what the newer call wants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

from django_pgqueue.db.connections import Database
from django_pgqueue.db.queries import statement
from django_pgqueue.lifecycle.payload import Call, encode_many
from django_pgqueue.states import OnConflict


@dataclass(slots=True)
class Met:
    """What became of the jobs that were met."""

    ids: dict[str, int]  # by key, those whose matter is settled
    freed: set[str] = field(default_factory=set)  # keys that jobs which are over have given up
    ready: set[str] = field(default_factory=set)  # queues on which one may run now, or was locked while it might
    waiting: set[str] = field(default_factory=set)  # concurrency keys by which a job may have to be admitted


def meet(database: Database, calls: Mapping[str, Call], options: Mapping[str, Any]) -> Met:
    """Find the jobs that hold unique keys, in the caller's transaction, and change them as the calls want.

    A call meets a job that has its work before it: one that runs, one that will, or a tombstone. One that gives the key
    up at its start is kept from starting before the caller's transaction has ended; else a change that is not committed
    yet would be missed. A job that is over, and will not run any more, gives up the key instead.

    A job that runs is neither changed nor locked: its worker has to write its outcome, however long the caller's
    transaction stays open.

    All rows are locked in order of their keys, whatever is to be done to each, so that two calls with the same keys do
    not deadlock. One statement settles each run of neighbours to which the same is to be done.

    Args:
        calls: by key, in any order, what has met that job.
        options: ``on_conflict`` and what its statement needs: as of ``enqueue_keyed.sql``; ``tasks``, the names by
            which the task is known; ``in_transaction``, whether the call is inside the caller's transaction.

    Returns:
        What is settled. A key that is missing is free by now, or its job has just started: try again.
    """
    rows = sorted(database.rows(statement("twins"), {**options, "unique_keys": sorted(calls)}), key=itemgetter(0))
    met = Met({key: job_id for key, job_id, name in rows if name is None})
    wanted = [(key, name) for key, _, name in rows if name is not None]
    for name, neighbours in groupby(wanted, key=itemgetter(1)):
        _settle(name, database, {key: calls[key] for key, _ in neighbours}, options, met)
    return met


def _settle(name: str, database: Database, calls: Mapping[str, Call], options: Mapping[str, Any], met: Met) -> None:
    """Run a statement on jobs; where one has started meanwhile, on those of one half of the keys, then of the other."""
    keys = sorted(calls)
    parameters = {**options, "unique_keys": keys}
    if name == OnConflict.REPLACE:
        parameters |= _arguments([calls[key] for key in keys])
    rows = database.rows_or_undo(statement(name), parameters, number=len(keys))
    if not rows and len(keys) > 1:
        for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
            _settle(name, database, {key: calls[key] for key in half}, options, met)
    if name == "give_up":
        met.freed |= {key for key, *_ in rows}
        return
    met.ids |= {key: job_id for key, job_id, *_ in rows}
    met.ready |= {queue for _, _, queue, is_ready, _ in rows if is_ready}
    met.waiting |= {concurrency_key for *_, concurrency_key in rows if concurrency_key is not None}


def _arguments(calls: Sequence[Call]) -> dict[str, Any]:
    return {
        "args": encode_many([args for args, _ in calls], what="calls"),
        "kwargs": encode_many([kwargs for _, kwargs in calls], what="calls"),
    }
