"""Insert jobs that have keys or expire: resolve conflicts with the live job of the same unique key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from django_pgqueue.db.connections import CallerConnection, Database, undoable
from django_pgqueue.db.notify import ADMIT, queue_payload
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.jobs.serialization import Call, encode_many
from django_pgqueue.options import Keys
from django_pgqueue.states import OnConflict

MOST_MEETINGS = 100  # maximum insert attempts: the conflicting job may disappear before it can be read

MOST_UNDONE = 20_000  # maximum number of calls rolled back while retrying one bulk insert


@dataclass(slots=True)
class Resolution:
    """Result of ``resolve_conflict()``."""

    ids: dict[str, int]  # by key, those whose matter is settled
    freed: set[str] = field(default_factory=set)  # keys that jobs which are over have given up
    ready: set[str] = field(default_factory=set)  # queues on which one may run now, or was locked while it might
    waiting: set[str] = field(default_factory=set)  # concurrency keys by which a job may have to be admitted


def resolve_conflict(database: Database, calls: Mapping[str, Call], options: Mapping[str, Any]) -> Resolution:
    """Find the jobs that hold unique keys, in the caller's transaction, and change them as the calls want.

    A call meets a job that has its work before it: one that runs, one that will, or a reserved row. One that gives the
    key up at its start is kept from starting before the caller's transaction has ended; else a change that is not
    committed yet would be missed. A job that is over, and will not run any more, gives up the key instead.

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
    rows = sorted(
        database.rows(statement("find_unique_conflicts"), {**options, "unique_keys": sorted(calls)}), key=itemgetter(0)
    )
    met = Resolution({key: job_id for key, job_id, name in rows if name is None})
    wanted = [(key, name) for key, _, name in rows if name is not None]
    for name, neighbours in groupby(wanted, key=itemgetter(1)):
        _settle(name, database, {key: calls[key] for key, _ in neighbours}, options, met)
    return met


def _settle(
    name: str, database: Database, calls: Mapping[str, Call], options: Mapping[str, Any], met: Resolution
) -> None:
    """Run a statement on jobs; where one has started meanwhile, on those of one half of the keys, then of the other."""
    keys = sorted(calls)
    parameters = {**options, "unique_keys": keys}
    if name == OnConflict.REPLACE:
        parameters |= _arguments([calls[key] for key in keys])
    rows = database.rows_or_undo(statement(name), parameters, number=len(keys))
    if not rows and len(keys) > 1:
        for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
            _settle(name, database, {key: calls[key] for key in half}, options, met)
    if name == "release_expired_keys":
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


# Insert


class KeyedCall(NamedTuple):
    """One call: its arguments, and the keys of its job."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    keys: Keys


@dataclass(slots=True)
class InsertResult:
    """Result of an insert, by call."""

    ids: list[int]  # in the order of the calls; of a conflicting job, where the call met one
    created: list[bool]  # likewise: whether the job is a new one
    ready: set[str] = field(default_factory=set)  # the queues on which something may run now
    waiting: set[str] = field(default_factory=set)  # concurrency keys by which a job may have to be admitted
    instants: dict[int, Sequence[Any]] = field(default_factory=dict)  # of new jobs, by id: when enqueued, and when due

    @property
    def new_ids(self) -> list[int]:
        return [job_id for job_id, is_new in zip(self.ids, self.created, strict=True) if is_new]


def payloads_of(result: InsertResult) -> set[str]:
    """Return the payloads of the notifications that an insert is followed by."""
    return {*map(queue_payload, result.ready), *(ADMIT + key for key in result.waiting)}


def insert(database: Database, calls: Sequence[KeyedCall], options: Mapping[str, Any]) -> InsertResult:
    """Insert jobs of one task in the caller's transaction; the calls that insert none meet their conflicting jobs.

    Args:
        options: the other parameters of ``enqueue_keyed.sql``, and those of ``resolve_conflict``, the same for all.

    Raises:
        PgQueueError: other jobs with the same key came and went faster than they could be found.
    """
    insertion = _Insertion(database, calls, options)
    for _ in range(MOST_MEETINGS):
        insertion.try_once()
        if not insertion.left:
            return insertion.inserted
    keys = sorted({str(calls[position].keys.unique) for position in insertion.left})
    raise PgQueueError(
        f"Jobs with the unique keys {keys[:3]} came and went {MOST_MEETINGS} times while this one was being enqueued. "
        "Try again, or use unique_for."
    )


def insert_many(alias: str, calls: Sequence[KeyedCall], options: Mapping[str, Any]) -> InsertResult:
    """Do what ``insert`` does for several calls, all or none of them.

    Where one has to be tried again, its key comes after others that are locked by now, and two who do so could
    deadlock. So all is undone and tried again, which goes by the order of the keys. If keys come and go too fast for
    that, as they may with many thousands, those locked stay so.
    """
    for _ in range(min(MOST_MEETINGS, MOST_UNDONE // len(calls))):
        with undoable(alias) as undo:
            insertion = _Insertion(CallerConnection(alias), calls, options)
            insertion.try_once()
            if not insertion.left:
                return insertion.inserted
            undo()
    with undoable(alias):
        return insert(CallerConnection(alias), calls, options)


class _Insertion:
    """Calls on their way into the table; ``left`` has those neither inserted nor settled by a conflicting job."""

    def __init__(self, database: Database, calls: Sequence[KeyedCall], options: Mapping[str, Any]) -> None:
        self.inserted = InsertResult([0] * len(calls), [False] * len(calls))
        self.left: Sequence[int] = range(len(calls))
        self._database = database
        self._calls = calls
        self._options = options

    def try_once(self) -> None:
        self._insert(self.left)
        self._look_what_is_left()
        if self.left:
            freed = self._meet_conflicts()
            self._insert([position for position in self.left if self._calls[position].keys.unique in freed])
            self._look_what_is_left()

    def _look_what_is_left(self) -> None:
        self.left = [position for position in self.left if not self.inserted.ids[position]]

    def _insert(self, positions: Sequence[int]) -> None:
        groups, inserted = self._grouped(positions), self.inserted
        chosen = [self._one_of(group) for group in groups]
        parameters = {**self._options, **_parameters(chosen)}
        rows = self._database.rows(statement("enqueue_keyed"), parameters) if chosen else []
        ids_by_key = {key: job_id for job_id, _, _, key, *_ in rows if key is not None}
        ids_without = iter(sorted(job_id for job_id, _, _, key, *_ in rows if key is None))
        for group, call in zip(groups, chosen, strict=True):
            key = call.keys.unique
            job_id = ids_by_key.get(key, 0) if key is not None else next(ids_without)
            if job_id:
                inserted.created[group[0]] = True
            for position in group:
                inserted.ids[position] = job_id
        inserted.ready |= {self._options["queue"] for _, is_ready, *_ in rows if is_ready}
        if self._options["backend"]:
            inserted.instants |= {job_id: times for job_id, _, _, _, *times in rows}
        if any(is_waiting for _, _, is_waiting, *_ in rows):
            inserted.waiting |= {call.keys.concurrency for call in chosen if call.keys.concurrency is not None}

    def _grouped(self, positions: Sequence[int]) -> list[list[int]]:
        groups: dict[str | int, list[int]] = {}
        for position in positions:
            groups.setdefault(self._calls[position].keys.unique or position, []).append(position)
        return list(groups.values())

    def _one_of(self, positions: Sequence[int]) -> KeyedCall:
        first, last = self._calls[positions[0]], self._calls[positions[-1]]
        return last._replace(keys=first.keys) if self._options["on_conflict"] == OnConflict.REPLACE else first

    def _meet_conflicts(self) -> set[str]:
        """Of several calls with one key the last has its way. Return the keys that are free by now."""
        chosen = [self._calls[position] for position in self.left]
        last = {str(call.keys.unique): (call.args, call.kwargs) for call in chosen}
        met = resolve_conflict(self._database, last, self._options)
        for position, call in zip(self.left, chosen, strict=True):
            self.inserted.ids[position] = met.ids.get(str(call.keys.unique), 0)
        self.inserted.ready |= met.ready
        self.inserted.waiting |= met.waiting
        return met.freed


def _parameters(calls: Sequence[KeyedCall]) -> dict[str, Any]:
    return {
        "number": len(calls),
        "args": encode_many([call.args for call in calls], what="calls"),
        "kwargs": encode_many([call.kwargs for call in calls], what="calls"),
        "unique_keys": [call.keys.unique for call in calls],
        "concurrency_keys": [call.keys.concurrency for call in calls],
        "fair_keys": [call.keys.fair for call in calls],
    }
