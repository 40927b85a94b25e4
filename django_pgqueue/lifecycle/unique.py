"""Meet the job that has the unique key already, and do to it what the newer call wants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django_pgqueue.base.states import OnConflict
from django_pgqueue.db import Database
from django_pgqueue.lifecycle.payload import Call, encode_many
from django_pgqueue.lifecycle.sql import statement


@dataclass(slots=True)
class Met:
    """What became of the jobs that were met."""

    ids: dict[str, int]  # by key, those whose matter is settled
    freed: frozenset[str] = frozenset()  # keys that tombstones have given up
    ready: set[str] = field(default_factory=set)  # queues on which one may run now
    waiting: set[str] = field(default_factory=set)  # concurrency keys by which a job may have to be admitted


def meet(database: Database, calls: Mapping[str, Call], options: Mapping[str, Any]) -> Met:
    """Find the jobs that hold unique keys, in the caller's transaction, and change them as the calls want.

    A job that runs is neither changed nor locked: its worker has to write down what it comes to, however long the
    caller's transaction stays open. The same goes for a tombstone, unless its time is over: then it gives up the key.

    Args:
        calls: by key, in any order, what has met that job.
        options: ``on_conflict`` and what its statement needs: as of ``enqueue_keyed.sql``, and ``tasks``, the names by
            which the task is known.

    Returns:
        What is settled. A key that is missing is free by now, or its job has just started: try again.
    """
    rows = database.rows(statement("twins"), {**options, "unique_keys": sorted(calls)})
    met = Met({key: job_id for key, job_id, is_over, stays in rows if stays and not is_over})
    if over := sorted(key for key, _, is_over, _ in rows if is_over):
        met.freed = frozenset(key for (key,) in database.rows(statement("give_up"), {"unique_keys": over}))
    if changing := {key: calls[key] for key, _, _, stays in rows if not stays}:
        _change(database, changing, options, met)
    return met


def _change(database: Database, calls: Mapping[str, Call], options: Mapping[str, Any], met: Met) -> None:
    """Change jobs; where one of them has started meanwhile, those of one half of the keys, then of the other.

    All go by the order of the keys, so that two who change the same ones do not deadlock.
    """
    verb, keys = OnConflict(options["on_conflict"]), sorted(calls)
    parameters = {**options, "unique_keys": keys}
    if verb is OnConflict.REPLACE:
        parameters |= _arguments([calls[key] for key in keys])
    rows = database.rows_or_undo(statement(verb.value), parameters, number=len(keys))
    if not rows and len(keys) > 1:
        for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
            _change(database, {key: calls[key] for key in half}, options, met)
    met.ids |= {key: job_id for key, job_id, *_ in rows}
    met.ready |= {queue for _, _, queue, is_ready, _ in rows if is_ready}
    met.waiting |= {concurrency_key for *_, concurrency_key in rows if concurrency_key is not None}


def _arguments(calls: Sequence[Call]) -> dict[str, Any]:
    return {
        "args": encode_many([args for args, _ in calls], what="calls"),
        "kwargs": encode_many([kwargs for _, kwargs in calls], what="calls"),
    }
