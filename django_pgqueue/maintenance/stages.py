"""Close, open and clear stages of workflows where the transactions of outcomes have not.

A stage whose members have ended stays open after a crash between an outcome and the look that follows it, after a kill
or a purge, and while its workflow is locked for long. When a stage with many members opens or is skipped, its first
thousand members are moved in the same transaction, and the others here, in slices. So are stages behind one: of more
than 500 that one outcome decides about, the others are marked in its transaction.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from django.db import Error

from django_pgqueue.db.connections import Database, MaintenanceConnection, QueueConnection
from django_pgqueue.db.errors import is_too_much
from django_pgqueue.jobs.manage import kill
from django_pgqueue.services import repeat_slices
from django_pgqueue.states import WorkflowStatus
from django_pgqueue.workflows.advance import (
    AT_ONCE,
    Advanced,
    advance,
    late_workflows,
    move_members,
    moving_stages,
    sweep,
    try_to_end,
)

STAGES_SECONDS = 1.0
DEADLINES_SECONDS = 1.0


class Opened(NamedTuple):
    """The queues that have jobs to claim, and the concurrency keys of jobs that wait to be admitted."""

    queues: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()

    def and_also(self, other: Advanced) -> "Opened":
        return Opened(self.queues | other.queues, self.keys | other.keys)


class StageSweep(NamedTuple):
    found: tuple[int, ...]  # stages that were looked at closely
    last: int  # where to go on; 0: at the first again
    opened: Opened


def sweep_stages(database: Database, *, after: int = 0) -> StageSweep:
    """Look at up to 1,000 open stages behind ``after``; close those that are over, and open those that follow.

    Raises:
        django.db.Error: of one alone that is too much for one statement, after all others.
    """
    swept, opened = sweep(database, after=after), Opened()
    due, deaths = list(swept.stages), set(swept.deaths)
    most, too_much = AT_ONCE, None
    while due:
        stages, due = due[:most], due[most:]
        try:
            advanced = advance(database, stages, deaths.intersection(stages))
        except Error as error:
            if not is_too_much(error):
                raise
            if len(stages) == 1:
                too_much = error
            else:
                most, due = len(stages) // 2, stages + due
            continue
        opened = opened.and_also(advanced)
        due += sorted(advanced.parents)
    if too_much is not None:
        raise too_much
    return StageSweep(tuple(swept.stages), swept.last, opened)


class MoveResult(NamedTuple):
    moved: int  # members that were opened, removed or killed, children that were ended, and stages left for later
    opened: Opened
    announcements: dict[str, set[str]]  # payloads by channel, of kills


def move_slices(database: QueueConnection) -> MoveResult:
    """Open or remove up to 1,000 members of each of up to 100 stages; end the children of skipped ones."""
    number, opened, announcements = 0, Opened(), dict[str, set[str]]()
    for stage in moving_stages(database):
        with database.transaction():
            moved = move_members(database, stage.id)
            connection = MaintenanceConnection(database)
            if moved.kills:
                killed = kill(moved.kills, by=stage.killed_by, database=connection)
                number += len(killed.dead) + len(killed.requested)
            for child_id in moved.children:
                number += len(try_to_end(database, child_id, WorkflowStatus.KILLED, by=stage.killed_by).ended)
        number += moved.moved
        opened = opened.and_also(moved)
        for channel, payloads in connection.announcements.items():
            announcements.setdefault(channel, set()).update(payloads)
    return MoveResult(number, opened, announcements)


def fail_late(database: Database) -> int:
    """End up to 100 workflows whose deadline has passed, as failed; return their number."""
    late = late_workflows(database)
    return sum(len(try_to_end(database, workflow_id, WorkflowStatus.FAILED, by="").ended) for workflow_id in late)


class StageKeeper:
    """Services of maintenance.

    Args:
        announce: called with queues that have jobs to claim, and concurrency keys of jobs that may be admitted.
        send: called with payloads of notifications by channel.
    """

    def __init__(
        self,
        database: QueueConnection,
        announce: Callable[[Collection[str], Collection[str]], None],
        send: Callable[[dict[str, set[str]]], None],
    ) -> None:
        self._database = database
        self._announce = announce
        self._send = send
        self._last = 0  # the stage that was looked at last

    def sweep(self) -> None:
        swept = sweep_stages(self._database, after=self._last)
        self._last = swept.last
        self._announce(*swept.opened)

    def move(self) -> float:
        return repeat_slices(self._move_slices)

    def _move_slices(self) -> bool:
        moved = move_slices(self._database)
        self._announce(*moved.opened)
        self._send(moved.announcements)
        return moved.moved > 0

    def fail_late(self) -> None:
        fail_late(self._database)
