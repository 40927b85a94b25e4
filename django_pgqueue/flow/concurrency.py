"""Admit no more jobs than may run: by concurrency keys, and by the limits of queues.

A session that admits jobs must count those admitted already, and no other may count at the same time. So it takes two
statements of one transaction: the first locks names without waiting, the second counts and admits for the names that
were locked. A session that gets no lock tries again later: the holder, which is in the middle of one short transaction,
may have admitted just what there was. No lock outlives that transaction, and none is held while business transactions
are open.

When a job ends or becomes limited, its key must be checked for free slots. The consumer does this with its next
acknowledgement, maintenance when it is notified, and a periodic sweep finds the keys that both missed.
"""

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from typing import NamedTuple

from django.db import Error

from django_pgqueue.db.connections import Database, PendingResult, QueueConnection
from django_pgqueue.db.queries import statement

LOCKED_AT_ONCE = 200  # maximum number of names: all sessions of a server share the room for some thousand locks

AGAIN_SECONDS = 0.005  # until a key is tried again that another session was counting
TRIES = 20  # then the key is left to the sweep

SWEEP_SECONDS = 1.0
SWEPT_AT_ONCE = 1000  # keys: three index entries each


class LockKind(StrEnum):
    """Kind of a locked name; a key and a queue of the same name do not conflict."""

    KEY = "key"
    QUEUE = "queue"


class Admitted(NamedTuple):
    queues: frozenset[str]  # those that have jobs to claim
    missed: frozenset[str]  # keys that another session was counting


class PendingLocks(NamedTuple):
    names: tuple[str, ...]
    answer: PendingResult

    def got(self) -> frozenset[str]:
        """Wait for the answer and return the names that were locked; another session is counting the others."""
        [(names,)] = self.answer.fetchall()
        return frozenset(names)


def try_lock(database: QueueConnection, kind: LockKind, names: Iterable[str]) -> PendingLocks:
    """Send the try to lock names, in the transaction that is open on ``database``, and do not wait for the answer.

    The next statement of the transaction finds those that were got in ``current_setting('pgqueue.admitting')``, as a
    JSON array. Nothing waits for a lock, so there can be no deadlock. Of more than ``LOCKED_AT_ONCE`` names the first
    in the alphabet are tried.
    """
    tried = tuple(sorted(set(names))[:LOCKED_AT_ONCE])
    return PendingLocks(tried, database.send(statement("try_lock"), {"kind": kind.value, "names": list(tried)}))


class PendingAdmission(NamedTuple):
    locking: PendingLocks
    answer: PendingResult

    def read(self) -> Admitted:
        """Return the result, once. Act on it only after the transaction has committed."""
        missed = frozenset(self.locking.names) - self.locking.got()
        return Admitted(frozenset(queue for (queue,) in self.answer.fetchall()), missed)


def send_admission(database: QueueConnection, keys: Iterable[str]) -> PendingAdmission:
    """Send the admission of the next jobs of concurrency keys, as ``try_lock`` does, in the transaction that is open.

    What else that transaction has written counts: a slot that it gives back is free.
    """
    return PendingAdmission(try_lock(database, LockKind.KEY, keys), database.send(statement("admit_limited"), {}))


def admit(database: QueueConnection, keys: Iterable[str]) -> Admitted:
    """Let in the next jobs of concurrency keys, ``LOCKED_AT_ONCE`` at most, in a transaction of its own."""
    with database.transaction():
        admission = send_admission(database, keys)
    return admission.read()


class KeySweep(NamedTuple):
    keys: list[str]  # a job waits that may be admitted
    last: str  # where to go on; "": that was the end, start again


def sweep(database: Database, *, after: str = "", limit: int = 1000) -> KeySweep:
    """Look at up to ``limit`` keys of limited jobs, in alphabetical order behind ``after``; "": from the first."""
    [(keys, last, is_more)] = database.rows(statement("sweep"), {"after": after, "limit": limit})
    return KeySweep(keys, last if is_more else "")


class AdmissionRequests:
    """The keys whose limited jobs are still to be admitted. Not safe for two threads at once."""

    def __init__(self) -> None:
        self._due: dict[str, int] = {}  # how often each was missed
        self._missed: dict[str, int] = {}
        self._again_at = 0.0  # when to try those again, monotonic

    def request(self, keys: Iterable[str]) -> None:
        self._due.update(dict.fromkeys(keys, 0))

    def clear(self) -> None:
        self._due.clear()
        self._missed.clear()

    def wait_until(self) -> float:
        """Return when there will be something to send, monotonic; in the past if there is now."""
        if self._due:
            return 0.0
        return self._again_at if self._missed else math.inf

    def send(self, database: QueueConnection, *, limit: int = LOCKED_AT_ONCE) -> PendingAdmission | None:
        """Send the admission of up to ``limit`` keys; None if there is none. The others stay due."""
        if self._missed and time.monotonic() >= self._again_at:
            self._due = self._missed | self._due
            self._missed = {}
        keys = list(itertools.islice(self._due, min(limit, LOCKED_AT_ONCE)))
        return send_admission(database, keys) if keys else None

    def record(self, admission: PendingAdmission) -> frozenset[str]:
        """Learn from the answer to an admission; return the queues that have jobs to claim."""
        admitted = admission.read()
        tried = {key: self._due.pop(key) + 1 for key in admission.locking.names}
        if not self._missed:
            self._again_at = time.monotonic() + AGAIN_SECONDS
        self._missed.update((key, tried[key]) for key in admitted.missed if tried[key] < TRIES)
        return admitted.queues


class ConcurrencySweeper:
    """Maintenance's part: announced keys at once, and all keys in turn, a bounded number each second.

    ``announce`` is called with queues that have jobs to claim.
    """

    def __init__(self, database: QueueConnection, announce: Callable[[Collection[str]], None]) -> None:
        self._database = database
        self._announce = announce
        self._inbox: deque[Collection[str]] = deque()
        self._admissions = AdmissionRequests()
        self._last = ""  # the key that was looked at last; "": go on with the first
        self._laps = 1  # to be made without a pause; a lap under way counts

    def request(self, keys: Collection[str]) -> None:
        """Take note that jobs of these keys may be admitted; from any thread. After "", for any, ``sweep`` is due."""
        self._inbox.append(keys)

    def sweep(self) -> float | None:
        self._drain_inbox()
        swept = sweep(self._database, after=self._last, limit=SWEPT_AT_ONCE)
        self._admissions.request(swept.keys)
        self._last = swept.last
        if not swept.last:
            self._laps = max(self._laps - 1, 0)
        return 0.0 if self._laps or (swept.keys and swept.last) else None

    def admit(self) -> float:
        """Admit jobs of the keys that were announced or found; return the seconds until more can be tried."""
        self._drain_inbox()
        if time.monotonic() >= self._admissions.wait_until():
            self._announce(self._admit())
        return max(self._admissions.wait_until() - time.monotonic(), 0.0)

    def _drain_inbox(self) -> None:
        while self._inbox:
            keys = set(self._inbox.popleft())
            if "" in keys:
                self._laps = 2 if self._last else 1  # new ones may be behind the last key
            self._admissions.request(keys - {""})

    def _admit(self) -> frozenset[str]:
        try:
            with self._database.transaction():
                admission = self._admissions.send(self._database)
        except Error:
            self._admissions.clear()  # the next lap starts again
            raise
        return self._admissions.record(admission) if admission else frozenset()
