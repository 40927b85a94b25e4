"""Ids of stages, and states of workflows."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from django_pgqueue.states import MOST_STAGES, OnDeath, OpensWhen, StageStatus, WorkflowStatus
from django_pgqueue.stored_values import read

STAGES_OF_ONE = 2 * MOST_STAGES
"""Number of ids that the stages of one workflow may have."""

MOST_WORKFLOWS = 2**63 // STAGES_OF_ONE - 1
"""Number of ids that workflows may have, so that the ids of stages, and one behind the last, have 63 bits."""

WORKFLOW_SHIFT = 42
"""Bits of the id of a workflow below the number of its database: with those of a stage it has 63."""


def stage_id_of(workflow_id: int, number: int, *, collects: bool) -> int:
    """Return the id of a stage: members know by it their workflow, and whether their results are collected."""
    return workflow_id * STAGES_OF_ONE + 2 * number + collects


def workflow_id_of(stage_id: int) -> int:
    """Return the id of the workflow that a stage belongs to."""
    return stage_id // STAGES_OF_ONE


@dataclass(frozen=True, slots=True)
class StageState:
    """A stage at one moment.

    Attributes:
        id: of the stage; the members' column ``stage_id``.
        name: unique in its workflow.
        status: ``blocked``, ``open``, ``ended`` or ``skipped``.
        opens_when: the stages before it have ``succeeded``, have ``ended``, or a member of one has ``died``.
        is_sealed: whether code outside of the workflow can add no members.
        members: how many it was given.
        live: how many of them have not ended.
        dead: how many of them are dead.
        opened_at: when it opened. None: it has not.
        ended_at: when it ended, or was skipped. None: neither.
        killed_by: who has killed it, and not its workflow as a whole. None: it was not killed.
        rerun_by: who has run it again last; "" if no name was given. None: it was not run again.
        is_stuck: whether it waits for dead members, or for children that failed or were killed, and for nothing else.
        after: names of the stages that it waits for.
    """

    id: int
    name: str
    status: StageStatus
    opens_when: OpensWhen
    is_sealed: bool
    members: int
    live: int
    dead: int
    opened_at: dt.datetime | None
    ended_at: dt.datetime | None
    killed_by: str | None
    rerun_by: str | None
    is_stuck: bool
    after: tuple[str, ...]

    @classmethod
    def of(cls, row: Sequence[Any], names: Mapping[int, str]) -> Self:
        """Make it of a row of ``stage_states.sql`` and the names of all stages."""
        stage_id, name, status, opens_when, *rest, before = row
        after = tuple(names[one] for one in before)
        return cls(stage_id, name, StageStatus(status), OpensWhen(opens_when), *rest, after)  # type: ignore[call-arg]

    @property
    def collects(self) -> bool:
        """Whether the results of its members are kept for the others."""
        return bool(self.id & 1)

    @property
    def done(self) -> int:
        """The number of members that have succeeded; those of a skipped stage that were removed count as well."""
        return max(self.members - self.live - self.dead, 0)


@dataclass(frozen=True, slots=True)
class WorkflowState:
    """A workflow at one moment.

    Attributes:
        id: its id.
        name: as given.
        status: ``open``, ``succeeded``, ``failed`` or ``killed``.
        on_death: ``wait``, ``stop`` or ``go_on``.
        unique_key: which no other open workflow has. None: there is none.
        begun_at: when it was begun.
        ended_at: when it ended. None: it is open.
        deadline_at: when it fails if it is still open. None: never.
        ended_by: who has killed it; "" where it was not.
        parent_stage_id: the stage of another workflow that waits for it. None: there is none.
        context: as given, for all members.
        stages: in the order in which they were added.
    """

    id: int
    name: str
    status: WorkflowStatus
    on_death: OnDeath
    unique_key: str | None
    begun_at: dt.datetime
    ended_at: dt.datetime | None
    deadline_at: dt.datetime | None
    ended_by: str
    parent_stage_id: int | None
    context: Any = field(repr=False)
    stages: tuple[StageState, ...] = field(repr=False)

    @classmethod
    def of(cls, row: Sequence[Any], stages: tuple[StageState, ...]) -> Self:
        """Make it of the row of ``workflow_state.sql``."""
        number, name, status, on_death, *rest, context = row
        return cls(number, name, WorkflowStatus(status), OnDeath(on_death), *rest, read(context), stages)  # type: ignore[call-arg]

    @property
    def is_finished(self) -> bool:
        """Whether it has ended, either way."""
        return self.status is not WorkflowStatus.OPEN

    @property
    def is_stuck(self) -> bool:
        """Whether a stage waits for dead members: until they are retried or purged, or the stage is skipped."""
        return any(stage.is_stuck for stage in self.stages)

    def stage(self, name: str) -> StageState:
        """Return the stage of this name; raise KeyError where there is none."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(
            f"Workflow {self.id} ({self.name}) has no stage {name!r}: it has {[s.name for s in self.stages]}."
        )
