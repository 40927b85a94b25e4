"""Close stages whose last members have ended, and open those that follow.

A live member means that a stage is not over: there is no count. The worker that writes the outcome of a member looks in
the same transaction. Two workers that write the last two outcomes at once do not see each other's: each that sees a
member running for another worker looks once more after its own commit, and the one that commits last sees everything. A
periodic sweep finds stages that crashes, kills and purges leave open.
"""

import itertools
import math
import time
from collections.abc import Iterable
from typing import NamedTuple

from django_pgqueue.db.connections import Database, PendingResult, QueueConnection, number_array
from django_pgqueue.db.notify import notify_keys, notify_maintenance, notify_queues
from django_pgqueue.db.queries import statement
from django_pgqueue.records import MEMBER, Fate, Outcome
from django_pgqueue.states import WorkflowStatus

AT_ONCE = 200
"""Maximum number of stages of one statement, each of which may lock its workflow."""

MOVED_AT_ONCE = 1000
"""Maximum number of members of one stage that ``pgqueue_move_members`` opens or removes; then there may be more."""

AGAIN_SECONDS = 0.005
"""Pause before another look at a stage: of another worker's outcome, or of the lock."""

LOOKS_AGAIN = 1
"""Maximum number of further looks at a stage of which a member runs elsewhere."""

TRIES = 20
"""Maximum number of tries to lock a workflow; then its stage is left to the sweep."""


class Advanced(NamedTuple):
    """The result of a look at stages.

    Attributes:
        queues: that have jobs to claim.
        keys: concurrency keys of jobs that wait to be admitted.
        running: stages of which a member runs for another worker.
        locked: stages whose workflow another session has locked.
        parents: stages that have waited for a workflow that is over now.
        kills: ids of live members of skipped stages.
        children: ids of open workflows that members of skipped or killed stages have begun, up to 100 of a stage.
        moved: number of members that were opened or removed, and of stages that were left for later and are decided.
        has_more: whether a stage may have more of them, or stages were left for later, for maintenance to move.
        ended: ids of workflows that were ended.
    """

    queues: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()
    running: frozenset[int] = frozenset()
    locked: frozenset[int] = frozenset()
    parents: frozenset[int] = frozenset()
    kills: tuple[int, ...] = ()
    moved: int = 0
    has_more: bool = False
    ended: tuple[int, ...] = ()
    children: tuple[int, ...] = ()

    @classmethod
    def read(cls, rows: Iterable[tuple[str, str]]) -> "Advanced":
        names: dict[str, list[str]] = {}
        for kind, name in rows:
            names.setdefault(kind, []).append(name)

        def ids(kind: str) -> list[int]:
            return [int(name) for name in names.get(kind, ())]

        return cls(
            frozenset(names.get("queue", ())),
            frozenset(names.get("key", ())),
            frozenset(ids("running")),
            frozenset(ids("locked")),
            frozenset(ids("parent")),
            tuple(sorted(ids("kill"))),
            sum(ids("moved")),
            MOVED_AT_ONCE in ids("moved") or "left" in names,
            tuple(ids("ended")),
            tuple(ids("child")),
        )


def _parameters(stages: Iterable[int], deaths: Iterable[int], *, worker_id: int) -> dict[str, object]:
    return {"stage_ids": number_array(stages), "with_deaths": number_array(deaths), "worker_id": worker_id}


def advance(database: Database, stages: Iterable[int], deaths: Iterable[int] = (), *, worker_id: int = 0) -> Advanced:
    """Look at stages, in the transaction that is open on ``database`` or in one of its own.

    Args:
        deaths: those of them of which a member has died.
        worker_id: of the caller; members that run for it are looked at when they end. 0: it is no worker.
    """
    rows = database.rows(statement("advance"), _parameters(stages, deaths, worker_id=worker_id))
    return Advanced.read(rows)


def notify_opened(database: Database, advanced: Advanced) -> None:
    """Announce the jobs of stages that were opened, once the caller's transaction has committed."""
    notify_queues(database, advanced.queues)
    notify_keys(database, advanced.keys)
    if advanced.has_more:
        notify_maintenance(database)


def ends_in(outcomes: Iterable[Outcome]) -> list[tuple[int, bool]]:
    """Return the stages of members that end with these outcomes, most of them once, each with whether one has died."""
    members = {
        (outcome.job.rest, outcome.fate is Fate.DIED): outcome.job
        for outcome in outcomes
        if outcome.job.flags & MEMBER and outcome.fate in ENDS
    }  # the stage is in the rest, and all that is in it of most members
    return [(job.stage_id or 0, has_died) for (_, has_died), job in members.items()]


ENDS = (Fate.SUCCEEDED, Fate.RECORDED, Fate.DIED)  # no set: that would call Enum.__hash__ for each member


class PendingAdvance(NamedTuple):
    """A look at stages that was sent, and its answer."""

    stages: tuple[int, ...]
    answer: PendingResult


class StageRequests:
    """The stages that are still to be looked at. Not safe for two threads at once."""

    def __init__(self) -> None:
        self._due: dict[int, int] = {}  # how often each was tried
        self._again: dict[int, int] = {}
        self._deaths: set[int] = set()  # those of both of which a member has died
        self._again_at = 0.0  # when to try those again, monotonic

    def request(self, ends: Iterable[tuple[int, bool]]) -> None:
        for stage, has_died in ends:
            self._due[stage] = 0
            if has_died:
                self._deaths.add(stage)

    def clear(self) -> None:
        self._due.clear()
        self._again.clear()
        self._deaths.clear()

    def wait_until(self) -> float:
        """Return when there will be something to send, monotonic; in the past if there is now."""
        if self._due:
            return 0.0
        return self._again_at if self._again else math.inf

    def send(self, database: QueueConnection, *, worker_id: int, limit: int = AT_ONCE) -> PendingAdvance | None:
        """Send the look at up to ``limit`` stages in the transaction that is open; None if there is none to look at."""
        if self._again and time.monotonic() >= self._again_at:
            self._due = self._again | self._due
            self._again = {}
        stages = tuple(sorted(itertools.islice(self._due, min(limit, AT_ONCE))))
        if not stages:
            return None
        deaths = self._deaths.intersection(stages)
        return PendingAdvance(
            stages, database.send(statement("advance"), _parameters(stages, deaths, worker_id=worker_id))
        )

    def record(self, pending: PendingAdvance) -> Advanced:
        """Learn from the answer, after the commit; note the stages that must be looked at again."""
        advanced = Advanced.read(pending.answer.fetchall())
        tried = {stage: self._due.pop(stage) + 1 for stage in pending.stages}
        again = {stage: number for stage, number in tried.items() if stage in advanced.locked and number < TRIES}
        again |= {
            stage: number for stage, number in tried.items() if stage in advanced.running and number <= LOOKS_AGAIN
        }
        if again and not self._again:
            self._again_at = time.monotonic() + AGAIN_SECONDS
        self._again.update(again)
        self._deaths.difference_update(stage for stage in tried if stage not in again)
        self._due.update(dict.fromkeys(advanced.parents, 0))
        return advanced


# What maintenance does


class SweptStages(NamedTuple):
    """The result of a sweep."""

    stages: list[int]  # that may be over, or have a death to report
    deaths: list[int]  # those of them with deaths
    last: int  # where to go on; 0: that was the end, start again


def sweep(database: Database, *, after: int = 0) -> SweptStages:
    """Look at up to 1,000 open stages, in the order of their ids, behind ``after``; 0: from the first."""
    [(stages, deaths, last, is_more)] = database.rows(statement("sweep_stages"), {"after": after})
    return SweptStages(stages, deaths, last if is_more else 0)


class MovingStage(NamedTuple):
    """A stage whose members are being opened or removed, or children ended; or the first one left for later."""

    id: int
    status: str
    killed_by: str  # who has killed it, or its workflow
    is_killed: bool  # itself


def moving_stages(database: Database, workflow_id: int | None = None) -> list[MovingStage]:
    """Return up to 100 stages whose members are still to be opened or removed: of a workflow, or of any."""
    rows = database.rows(statement("moving_stages"), {"workflow_id": workflow_id})
    return [MovingStage._make(row) for row in rows]


def move_members(database: Database, stage_id: int) -> Advanced:
    """Open or remove up to 1,000 members of a stage; return jobs to announce and to kill, and workflows to end."""
    return Advanced.read(database.rows(statement("move_members"), {"stage_id": stage_id}))


def try_to_end(database: Database, workflow_id: int, status: WorkflowStatus, *, by: str) -> Advanced:
    """End a workflow that is open, unless another session has locked it. Its stages are cleared in slices."""
    asked = {"id": workflow_id, "status": status, "by": by}
    return Advanced.read(database.rows(statement("end_workflow"), asked))


def late_workflows(database: Database) -> list[int]:
    """Return up to 100 open workflows that have passed their deadline."""
    return [workflow_id for (workflow_id,) in database.rows(statement("late_workflows"), {})]
