"""Admit no more jobs than may run: by concurrency keys, and by the limits of queues.

A session that admits jobs must count those admitted already, and no other may count at the same time. So it takes two
statements of one transaction: the first locks names without waiting, the second counts and admits for the names that
were locked. A session that gets no lock tries again later: the holder, which is in the middle of one short transaction,
may have admitted just what there was. No lock outlives that transaction, and none is held while business transactions
are open.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from django_pgqueue.db.connections import PendingResult, QueueConnection
from django_pgqueue.db.queries import statement

LOCKED_AT_ONCE = 200  # maximum number of names: all sessions of a server share the room for some thousand locks


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
        """Return what it came to, once. Not to be acted on before the transaction has committed."""
        missed = frozenset(self.locking.names) - self.locking.got()
        return Admitted(frozenset(queue for (queue,) in self.answer.fetchall()), missed)


def send(database: QueueConnection, keys: Iterable[str]) -> PendingAdmission:
    """Send the admission of the next jobs of concurrency keys, as ``try_lock`` does, in the transaction that is open.

    What else that transaction has written counts: a slot that it gives back is free.
    """
    return PendingAdmission(try_lock(database, LockKind.KEY, keys), database.send(statement("admit_limited"), {}))


def admit(database: QueueConnection, keys: Iterable[str]) -> Admitted:
    """Let in the next jobs of concurrency keys, ``LOCKED_AT_ONCE`` at most, in a transaction of its own."""
    with database.transaction():
        admission = send(database, keys)
    return admission.read()
