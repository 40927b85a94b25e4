"""Run stages of a workflow again, with new members made of the calls that it has kept.

All in one transaction, under the lock under which stages open and close: a crash before the commit changes nothing, and
after it the new members are there.
"""

from collections.abc import Sequence
from typing import NamedTuple

from django.db import IntegrityError

from django_pgqueue.db.connections import CallerConnection, number_array, undoable
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidWorkflow, WorkflowDoesNotExist
from django_pgqueue.middleware import run_if_immediate
from django_pgqueue.signals import announce as send
from django_pgqueue.signals import job_enqueued
from django_pgqueue.states import StageStatus
from django_pgqueue.validation import By, check_snapshot, name_of
from django_pgqueue.workflows.advance import Advanced
from django_pgqueue.workflows.members import FoundStage, announce, find_stage, refuse_outbox

MOST_CALLS = 100_000
"""Maximum number of members that one transaction makes again."""


class ToRerun(NamedTuple):
    """The columns of ``stages_to_rerun.sql``."""

    ids: list[int]
    living: str | None
    undone: list[str]
    is_incomplete: bool
    calls: int


class NewMember(NamedTuple):
    """The columns of ``make_members.sql``."""

    id: int
    task: str
    queue: str
    unique_key: str | None


def rerun(workflow_id: int, stages: Sequence[str | int], *, by: By, database: str) -> int:
    """Run stages again, and all after them, in the caller's transaction; return the number of new members."""
    if not stages:
        raise InvalidWorkflow("rerun() takes the stages at which to begin: name one.")
    refuse_outbox(database)
    caller, by = CallerConnection(database), name_of(by)
    with undoable(database):
        check_snapshot(caller.rows(statement("lock_workflow"), {"workflow_id": workflow_id}))
        if not caller.rows(statement("workflow_state"), {"id": workflow_id}):
            raise WorkflowDoesNotExist(f"There is no workflow {workflow_id} on {database!r}, or not any more.")
        first = [find_stage(caller, workflow_id, stage) for stage in stages]
        chosen = _choose(caller, workflow_id, first)
        _reset(caller, workflow_id, chosen.ids, by=by)
        made = _make_members(caller, workflow_id, chosen)
        for stage in first:
            announce(
                caller, Advanced.read(caller.rows(statement("settle_stage"), {"id": stage.id, "action": "decide"}))
            )
        for stage in first:
            _check_is_not_skipped(find_stage(caller, workflow_id, stage.id), workflow_id)
    _announce_enqueued(made, database)
    run_if_immediate(database, [member.id for member in made])
    return len(made)


def _choose(caller: CallerConnection, workflow_id: int, first: Sequence[FoundStage]) -> ToRerun:
    """Return the stages that run again; raise InvalidWorkflow where they cannot."""
    for stage in first:
        if not stage.keeps_calls:
            raise InvalidWorkflow(
                f"Workflow {workflow_id} has kept no calls, of which members could be made again: begin such workflows "
                "with keep_calls=True."
            )
        if stage.status == StageStatus.BLOCKED:
            raise InvalidWorkflow(
                f"The stage {stage.name!r} of workflow {workflow_id} has not opened yet, so it cannot run again."
            )
    asked = {"ids": number_array([stage.id for stage in first]), "workflow_id": workflow_id, "most": MOST_CALLS}
    [row] = caller.rows(statement("stages_to_rerun"), asked)
    found = ToRerun._make(row)
    if found.living is not None:
        raise InvalidWorkflow(
            f"The stage {found.living!r} of workflow {workflow_id} has members or children that have not ended. Wait "
            "for them, or kill the stage, before it runs again."
        )
    if found.undone:
        raise InvalidWorkflow(
            f"Stages of workflow {workflow_id} were not over when it was ended, and would stay skipped: name "
            f"{', '.join(map(repr, found.undone))} as well."
        )
    if found.is_incomplete:
        raise _lost(workflow_id)
    if not found.calls:
        raise InvalidWorkflow(f"The stages of workflow {workflow_id} that would run again have no members.")
    if found.calls > MOST_CALLS:
        raise InvalidWorkflow(
            f"More than {MOST_CALLS:,} members of workflow {workflow_id} would run again. Begin at a later stage, or "
            "begin a new workflow."
        )
    return found


def _lost(workflow_id: int) -> InvalidWorkflow:
    return InvalidWorkflow(
        f"Not all calls of workflow {workflow_id} are there any more, as it is being removed by age: begin a new one."
    )


def _reset(caller: CallerConnection, workflow_id: int, stages: Sequence[int], *, by: str) -> None:
    asked = {"ids": number_array(stages), "workflow_id": workflow_id, "by": by}
    try:
        reset = caller.rows(statement("reset_stages"), asked)
    except IntegrityError as error:
        raise InvalidWorkflow(
            f"Workflow {workflow_id} cannot be open again: another open workflow has its unique key. Try again when "
            "that one has ended."
        ) from error
    if not reset:
        raise _lost(workflow_id)


def _make_members(caller: CallerConnection, workflow_id: int, chosen: ToRerun) -> list[NewMember]:
    ids = number_array(chosen.ids)
    made = [NewMember._make(row) for row in caller.rows(statement("make_members"), {"ids": ids})]
    if len(made) == chosen.calls:
        return made
    taken = [member.unique_key for member in made if member.unique_key is not None]
    for key, job_id in caller.rows(statement("held_keys"), {"ids": ids, "taken": taken}):
        raise InvalidWorkflow(
            f"Workflow {workflow_id} cannot run these stages again: {f'job {job_id}' if job_id else 'another job'} has "
            f"the unique key {key!r} of a member. Try again when that job has ended."
        )
    raise _lost(workflow_id)


def _check_is_not_skipped(stage: FoundStage, workflow_id: int) -> None:
    if stage.status == StageStatus.SKIPPED:
        raise InvalidWorkflow(
            f"The stage {stage.name!r} of workflow {workflow_id} would be skipped, for the outcome of a stage before "
            "it: begin at that one."
        )


def _announce_enqueued(made: Sequence[NewMember], database: str) -> None:
    if not job_enqueued.receivers:
        return
    alike: dict[tuple[str, str], list[int]] = {}
    for member in made:
        alike.setdefault((member.task, member.queue), []).append(member.id)
    for (task, queue), ids in alike.items():
        send(job_enqueued, task, ids=ids, task=task, queue=queue, database=database)
