"""Insert jobs that have keys or expire: resolve conflicts with the live job of the same unique key."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from django_pgqueue.db.connections import CallerConnection, Database, undoable
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import PgQueueError
from django_pgqueue.jobs.serialization import encode_many, numbered
from django_pgqueue.keys import Keys
from django_pgqueue.states import OnConflict

MOST_ATTEMPTS = 100
"""Maximum number of attempts of one insert: a conflicting job may disappear before it can be read."""

MOST_UNDONE = 20_000
"""Maximum number of calls that are rolled back and tried again for one bulk insert."""

MOVES = (OnConflict.LATER, OnConflict.EARLIER)
"""What moves the job that holds a key to another time."""


class KeyedCall(NamedTuple):
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    keys: Keys
    options: Mapping[str, Any]
    """The other parameters of ``enqueue_keyed.sql``, one object for all calls with the same; and ``on_conflict``;
    ``tasks``, the names by which the task is known; ``in_transaction``, whether the caller is in a transaction.
    """
    id: int | None = None  # of a call that comes by an outbox
    put_at: Any = None  # when it was put there


class InsertedRow(NamedTuple):
    """A new job; the columns of ``enqueue_keyed.sql`` and ``enqueue_keyed_calls.sql``."""

    id: int
    is_ready: bool  # it may run now
    is_limited: bool  # it waits to be admitted
    unique_key: str | None
    enqueued_at: Any  # of a job of the Tasks framework, else None
    run_at: Any  # the same


class Conflict(NamedTuple):
    """A unique key and the live job that holds it; the columns of ``find_unique_conflicts.sql``."""

    unique_key: str
    job_id: int
    statement: str | None  # to run on the job; None: it needs no change


class Settled(NamedTuple):
    """A conflicting job that was changed; the columns of ``replace.sql``, and of those that return like it."""

    unique_key: str
    job_id: int
    queue: str
    is_ready: bool  # it may run now
    concurrency_key: str | None  # by which it, or another job, may have to be admitted


@dataclass(slots=True)
class InsertResult:
    ids: list[int]  # in the order of the calls; of a conflicting job, where the call met one
    created: list[bool]  # in the same order: whether the job is a new one
    ready: set[str] = field(default_factory=set)  # the queues on which something may run now
    limited: set[str] = field(default_factory=set)  # concurrency keys by which a job may have to be admitted
    instants: dict[int, Sequence[Any]] = field(default_factory=dict)  # of new jobs, by id: when enqueued, and when due

    @property
    def new_ids(self) -> list[int]:
        return [job_id for job_id, is_new in zip(self.ids, self.created, strict=True) if is_new]


def insert(database: Database, calls: Sequence[KeyedCall]) -> InsertResult:
    """Insert jobs in the caller's transaction; the calls that insert none meet their conflicting jobs.

    Raises:
        PgQueueError: other jobs with the same key came and went faster than they could be found.
    """
    insertion = _Insertion(database, calls)
    for _ in range(MOST_ATTEMPTS):
        insertion.attempt()
        if not insertion.left:
            return insertion.inserted
    keys = sorted({str(calls[position].keys.unique) for position in insertion.left})
    raise PgQueueError(
        f"Jobs with the unique keys {keys[:3]} came and went {MOST_ATTEMPTS} times while this one was being enqueued. "
        "Try again, or give its key a hold."
    )


def insert_many(alias: str, calls: Sequence[KeyedCall]) -> InsertResult:
    """Do what ``insert`` does for several calls, all or none of them.

    A call that must be tried again has a key that comes after others that are locked by now, so two callers could
    deadlock. So all calls are undone and tried again, in the order of the keys. If keys come and go too fast for that,
    as they may with many thousands, those locked stay so.
    """
    for _ in range(min(MOST_ATTEMPTS, MOST_UNDONE // len(calls))):
        with undoable(alias) as undo:
            insertion = _Insertion(CallerConnection(alias), calls)
            insertion.attempt()
            if not insertion.left:
                return insertion.inserted
            undo()
    with undoable(alias):
        return insert(CallerConnection(alias), calls)


class _Insertion:
    """Calls on their way into the table."""

    def __init__(self, database: Database, calls: Sequence[KeyedCall]) -> None:
        self.inserted = InsertResult([0] * len(calls), [False] * len(calls))
        self._database = database
        self._calls = calls

    @property
    def left(self) -> list[int]:
        """The positions of calls that are neither inserted nor settled by a conflicting job."""
        return [position for position, job_id in enumerate(self.inserted.ids) if not job_id]

    def attempt(self) -> None:
        """Insert the calls that are left, settle conflicts of the others, insert those whose keys that has freed."""
        self._insert(self.left)
        if left := self.left:
            freed = self.resolve_conflict(left)
            self._insert([position for position in left if self._calls[position].keys.unique in freed])
            if moves := [position for position in self.left if self._calls[position].keys.unique in freed]:
                self.resolve_conflict(moves)

    def _insert(self, positions: Sequence[int]) -> None:
        """Insert a job for each key; of a key that a live job holds, none."""
        merged = _merged(self._calls, positions)
        rows = self._rows([call for call, _ in merged]) if merged else []
        with_key = {row.unique_key: row for row in rows if row.unique_key is not None}
        without_key = iter(sorted(row for row in rows if row.unique_key is None))  # in the order of their calls
        for call, places in merged:
            key = call.keys.unique
            row = next(without_key) if key is None else with_key.get(key)
            if row is not None:
                self._record(row, call, places)

    def _rows(self, calls: Sequence[KeyedCall]) -> list[InsertedRow]:
        """Insert with one statement, which differs where options do."""
        options = calls[0].options
        if "stage_id" in options:
            parameters = {**numbered([call.options for call in calls]), **_parameters(calls)}
            rows = self._database.rows(statement("enqueue_keyed_members"), parameters)
        elif calls[0].id is not None:
            arrays = {"ids": [call.id for call in calls], "put_ats": [call.put_at for call in calls]}
            parameters = {**numbered([call.options for call in calls]), **_parameters(calls), **arrays}
            rows = self._database.rows(statement("hand_over"), parameters)
        elif all(call.options is options for call in calls):
            rows = self._database.rows(statement("enqueue_keyed"), {**options, **_parameters(calls)})
        else:
            parameters = {**numbered([call.options for call in calls]), **_parameters(calls)}
            rows = self._database.rows(statement("enqueue_keyed_calls"), parameters)
        return [InsertedRow._make(row) for row in rows]

    def _record(self, row: InsertedRow, call: KeyedCall, places: Sequence[int]) -> None:
        inserted = self.inserted
        inserted.created[places[0]] = True
        for place in places:
            inserted.ids[place] = row.id
        if row.is_ready:
            inserted.ready.add(call.options["queue"])
        if row.is_limited and call.keys.concurrency is not None:
            inserted.limited.add(call.keys.concurrency)
        if call.options["backend"]:
            inserted.instants[row.id] = row.enqueued_at, row.run_at

    def resolve_conflict(self, positions: Sequence[int]) -> set[str]:
        """Find the jobs that hold the keys of these calls, and change them as the calls want, in their order.

        A call meets a job that has its work before it: one that runs, one that will, or a reserved row. One that gives
        the key up at its start is kept from starting before the caller's transaction has ended; else a change that is
        not committed yet would be missed. A job that is over, and will not run any more, gives up the key instead.

        A job that runs is neither changed nor locked: its worker must be able to write its outcome while the caller's
        transaction is open.

        All rows are locked in order of their keys, for any change, so that two callers with the same keys do not
        deadlock. Keys with one change are resolved together, one with several by itself, once for each.

        Returns:
            The keys that are free by now. A call that is still left met a job that has just started: try again.
        """
        changes = _changes(self._calls[position] for position in positions)
        ids: dict[str, int] = {}
        freed: set[str] = set()
        for is_one, keys in groupby(sorted(changes), key=lambda key: len(changes[key]) == 1):
            if is_one:
                self._resolve({key: changes[key][0] for key in keys}, ids, freed)
                continue
            for key in keys:
                for call in changes[key]:
                    ids.pop(key, None)
                    self._resolve({key: call}, ids, freed)
                    if key not in ids:
                        break
        for position in positions:
            self.inserted.ids[position] = ids.get(str(self._calls[position].keys.unique), 0)
        return freed

    def _resolve(self, calls: Mapping[str, KeyedCall], ids: dict[str, int], freed: set[str]) -> None:
        """Change the jobs that hold these keys; add their ids by key, and the keys that are free by now.

        One statement settles each run of neighbours that need the same change with the same options.
        """
        conflicts = sorted(self._conflicts(calls), key=attrgetter("unique_key"))
        ids |= {conflict.unique_key: conflict.job_id for conflict in conflicts if conflict.statement is None}
        to_settle = (conflict for conflict in conflicts if conflict.statement is not None)
        alike = groupby(to_settle, key=lambda conflict: (conflict.statement, id(calls[conflict.unique_key].options)))
        for (name, _), neighbours in alike:
            settled = self._settle(str(name), [calls[conflict.unique_key] for conflict in neighbours])
            if name == "release_expired_keys":
                freed |= {job.unique_key for job in settled}
                continue
            ids |= {job.unique_key: job.job_id for job in settled}
            self.inserted.ready |= {job.queue for job in settled if job.is_ready}
            self.inserted.limited |= {job.concurrency_key for job in settled if job.concurrency_key is not None}

    def _conflicts(self, calls: Mapping[str, KeyedCall]) -> list[Conflict]:
        """Find the jobs that hold these keys, with one statement for all calls with the same options."""
        alike: dict[int, list[str]] = {}
        for key in sorted(calls):
            alike.setdefault(id(calls[key].options), []).append(key)
        found: list[Conflict] = []
        for keys in alike.values():
            parameters = {**calls[keys[0]].options, "unique_keys": keys}
            rows = self._database.rows(statement("find_unique_conflicts"), parameters)
            found += map(Conflict._make, rows)
        return found

    def _settle(self, name: str, calls: Sequence[KeyedCall]) -> list[Settled]:
        """Run a statement on jobs; where one has started meanwhile, on those of each half of the keys in turn.

        All calls have the same options.
        """
        parameters = {**calls[0].options, "unique_keys": [call.keys.unique for call in calls]}
        if name == OnConflict.REPLACE:
            parameters |= _parameters(calls)
        rows = self._database.rows_or_undo(statement(name), parameters, number=len(calls))
        if rows or len(calls) == 1:
            return [Settled._make(row) for row in rows]
        half = len(calls) // 2
        return [*self._settle(name, calls[:half]), *self._settle(name, calls[half:])]


def _changes(calls: Iterable[KeyedCall]) -> dict[str, list[KeyedCall]]:
    """Return, by key, the calls to apply, in their order; one at least.

    Those that a later one supersedes are left out, and those that change nothing.
    """
    found: dict[str, list[KeyedCall]] = {}
    for call in calls:
        of_key = found.setdefault(str(call.keys.unique), [])
        if not of_key or of_key[-1].options["on_conflict"] == OnConflict.KEEP or _supersedes(call, of_key[-1]):
            of_key[-1:] = [call]
        elif call.options["on_conflict"] != OnConflict.KEEP:
            of_key.append(call)
    return found


def _supersedes(later: KeyedCall, earlier: KeyedCall) -> bool:
    """Whether a job is the same after both calls as after the later one alone."""
    mine, others = later.options, earlier.options
    if mine is others:
        return True
    if mine["on_conflict"] != others["on_conflict"] or mine["tasks"] != others["tasks"]:
        return False
    return mine["on_conflict"] == OnConflict.REPLACE or (mine["on_conflict"] in MOVES and _moves_as_far(mine, others))


def _moves_as_far(mine: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    if any(one["expires_at"] is not None or one["expires_seconds"] is not None for one in (mine, others)):
        return False  # which a move sets too
    if (mine["run_at"] is None) != (others["run_at"] is None):
        return False
    by = "delay_seconds" if mine["run_at"] is None else "run_at"
    if isinstance(mine[by], str) or isinstance(others[by], str):
        return False  # an instant from an outbox, with the offset of its caller
    return bool(mine[by] >= others[by] if mine["on_conflict"] == OnConflict.LATER else mine[by] <= others[by])


def _merged(calls: Sequence[KeyedCall], positions: Sequence[int]) -> list[tuple[KeyedCall, list[int]]]:
    """Merge the calls at these positions that have the same key; return each with the positions that it answers.

    Calls that may move the job of the first to another time are left out: they meet it when it is there.
    """
    merged: dict[str | int, tuple[KeyedCall, list[int]]] = {}
    moved: set[str | int] = set()
    for position in positions:
        call = calls[position]
        key = position if call.keys.unique is None else call.keys.unique
        if key not in merged:
            merged[key] = call, [position]
            continue
        first, places = merged[key]
        if call.options["on_conflict"] in MOVES and (key in moved or call.options is not first.options):
            moved.add(key)
            continue
        places.append(position)
        merged[key] = _replaced(first, call), places
    return list(merged.values())


def _replaced(first: KeyedCall, later: KeyedCall) -> KeyedCall:
    """Return the first of two calls with one key, with the arguments of the later one if that replaces it."""
    if later.options["on_conflict"] != OnConflict.REPLACE:
        return first
    if later.options is first.options:
        return first._replace(args=later.args, kwargs=later.kwargs)
    if first.options["task"] not in later.options["tasks"]:
        return first
    options = {**first.options, "tags": later.options["tags"], "metadata": later.options["metadata"]}
    return first._replace(args=later.args, kwargs=later.kwargs, options=options)


def _parameters(calls: Sequence[KeyedCall]) -> dict[str, Any]:
    return {
        "number": len(calls),
        "args": encode_many([call.args for call in calls], what="calls"),
        "kwargs": encode_many([call.kwargs for call in calls], what="calls"),
        "unique_keys": [call.keys.unique for call in calls],
        "concurrency_keys": [call.keys.concurrency for call in calls],
        "fair_keys": [call.keys.fair for call in calls],
    }
