"""What staff can do to many jobs: one table, for the command, for the admin and for operations in the background."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from django_pgqueue.db.connections import Where
from django_pgqueue.exceptions import InvalidOperation
from django_pgqueue.lifecycle.browse import Source
from django_pgqueue.lifecycle.bulk import move_jobs, purge, set_priority, still
from django_pgqueue.lifecycle.dead_letter import requeue
from django_pgqueue.lifecycle.kill import kill
from django_pgqueue.lifecycle.left import (
    Left,
    Why,
    why_left,
    why_not_changed,
    why_not_due,
    why_not_killed,
    why_not_purged,
    why_not_requeued,
)
from django_pgqueue.lifecycle.run_now import run_now
from django_pgqueue.options import Options
from django_pgqueue.states import Status

Ids = Sequence[int]
Said = Mapping[str, Any]
"""What else was said, by the name of what the verb needs."""

LIVE = tuple(status.value for status in Status if status is not Status.HELD)


class Did(StrEnum):
    """What was done to a job."""

    REQUEUED = "requeued"
    DUE = "due"
    KILLED = "killed"
    ASKED = "asked"  # it runs, and was asked to stop
    MOVED = "moved"
    PRIORITIZED = "prioritized"
    PURGED = "purged"


class Done(NamedTuple):
    """What came of a verb."""

    did: Mapping[Did, Ids]
    left: Mapping[int, Left]  # why the others were left alone


@dataclass(frozen=True, kw_only=True)
class Verb:
    """One thing that can be done to many jobs.

    Attributes:
        name: with the source, what it is known by.
        source: the jobs it is for.
        act: does it to a slice of jobs, inside a transaction.
        why: says why others were left alone.
        statuses: those of the live jobs it is for.
        needs: what else has to be said, by name, each with what checks it: it raises InvalidJob.
        is_destructive: whether somebody should think twice.
    """

    name: str
    source: Source
    act: Callable[[Ids, str, Said, Where], Mapping[Did, Ids]]
    why: Why
    statuses: tuple[str, ...] = ()
    needs: str = ""
    is_destructive: bool = False

    def do(self, ids: Ids, *, by: str, said: Said, statuses: Sequence[str], where: Where) -> Done:
        """Do it to jobs in the transaction that is open, and find out why some were left alone.

        Args:
            by: who wants it.
            said: has what the verb needs.
            statuses: those by which live jobs were chosen; what has none of them any more is left alone. Empty: any.
            where: the connection, or its alias.

        Raises:
            InvalidJob: what was said cannot be.
        """
        did = self.act_on_chosen(ids, by=by, said=said, statuses=statuses, where=where)
        return Done(did, why_left(set(ids).difference(*did.values()), self.why_for(statuses), database=where))

    def act_on_chosen(
        self, ids: Ids, *, by: str, said: Said, statuses: Sequence[str], where: Where
    ) -> Mapping[Did, Ids]:
        """Do it, and only that; the arguments are those of ``do``."""
        return self.act(still(ids, statuses, database=where) if statuses else ids, by, said, where)

    def why_for(self, statuses: Sequence[str]) -> Why:
        """Return what says why jobs were left alone; those that run may not have been asked for."""
        spares_running = statuses and Status.RUNNING not in statuses
        return why_not_changed if spares_running and self.why is why_not_killed else self.why

    def check(self, said: Said) -> None:
        """Raise InvalidJob if what the verb needs was not said, or cannot be."""
        if self.needs:
            needed: Any = {self.needs: said.get(self.needs)}
            Options(**needed)


def _requeue(ids: Ids, by: str, _said: Said, where: Where) -> Mapping[Did, Ids]:
    return {Did.REQUEUED: requeue(ids, by=by, database=where).ids}


def _run_now(ids: Ids, by: str, _said: Said, where: Where) -> Mapping[Did, Ids]:
    return {Did.DUE: run_now(ids, by=by, database=where)}


def _kill(ids: Ids, by: str, _said: Said, where: Where) -> Mapping[Did, Ids]:
    killed = kill(ids, by=by, database=where)
    return {Did.KILLED: killed.dead, Did.ASKED: killed.requested}


def _move(ids: Ids, by: str, said: Said, where: Where) -> Mapping[Did, Ids]:
    return {Did.MOVED: move_jobs(ids, queue=said["queue"], by=by, database=where)}


def _set_priority(ids: Ids, by: str, said: Said, where: Where) -> Mapping[Did, Ids]:
    return {Did.PRIORITIZED: set_priority(ids, priority=said["priority"], by=by, database=where)}


def _purge(ids: Ids, by: str, _said: Said, where: Where) -> Mapping[Did, Ids]:
    return {Did.PURGED: purge(ids, by=by, database=where)}


def _purge_finished(ids: Ids, by: str, _said: Said, where: Where) -> Mapping[Did, Ids]:
    return {Did.PURGED: purge(ids, by=by, finished=True, database=where)}


REQUEUE = Verb(name="requeue", source=Source.DEAD, act=_requeue, why=why_not_requeued)
RUN_NOW = Verb(name="run_now", source=Source.LIVE, statuses=(Status.SCHEDULED.value,), act=_run_now, why=why_not_due)
KILL = Verb(name="kill", source=Source.LIVE, statuses=LIVE, act=_kill, why=why_not_killed, is_destructive=True)
MOVE = Verb(name="move", source=Source.LIVE, statuses=LIVE, act=_move, why=why_not_changed, needs="queue")
SET_PRIORITY = Verb(
    name="set_priority", source=Source.LIVE, statuses=LIVE, act=_set_priority, why=why_not_changed, needs="priority"
)
PURGE = Verb(name="purge", source=Source.DEAD, act=_purge, why=why_not_purged, is_destructive=True)
PURGE_FINISHED = Verb(
    name="purge", source=Source.FINISHED, act=_purge_finished, why=why_not_purged, is_destructive=True
)

VERBS = (REQUEUE, RUN_NOW, KILL, MOVE, SET_PRIORITY, PURGE, PURGE_FINISHED)


def verb_of(name: str, source: str) -> Verb:
    """Return the verb of this name for live, dead or finished jobs.

    Raises:
        InvalidOperation: there is none.
    """
    for verb in VERBS:
        if (verb.name, verb.source.name.lower()) == (name, source):
            return verb
    raise InvalidOperation(f"There is no verb {name!r} for {source!r} jobs.")
