"""Change a workflow that has begun: add members, seal, skip or kill a stage, kill it, retry dead members."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection, number_array, undoable
from django_pgqueue.db.notify import notify_maintenance
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidWorkflow, StageClosed, WorkflowDoesNotExist
from django_pgqueue.jobs import dead_letter
from django_pgqueue.jobs.context import current_job, find_current
from django_pgqueue.jobs.enqueue import Member, insert_members
from django_pgqueue.jobs.handle import JobHandles
from django_pgqueue.jobs.manage import kill
from django_pgqueue.jobs.unique import InsertResult
from django_pgqueue.middleware import run_if_immediate
from django_pgqueue.outbox.writing import outbox_for
from django_pgqueue.states import StageStatus, WorkflowStatus
from django_pgqueue.tasks import Call
from django_pgqueue.validation import By, check_snapshot, name_of
from django_pgqueue.workflows.advance import (
    Advanced,
    MovingStage,
    advance,
    move_members,
    moving_stages,
    notify_opened,
    try_to_end,
)
from django_pgqueue.workflows.records import STAGES_OF_ONE, workflow_id_of

MOST_SLICES = 10
"""Maximum number of slices of members that are removed in the transaction of a kill; the rest is left to workers."""

MOST_ENDED = 100
"""Maximum number of workflows that are ended in the transaction of a kill."""


def check_calls(calls: Any, what: str) -> list[Call[Any]]:
    """Return calls as a list; raise InvalidWorkflow at anything else."""
    if isinstance(calls, Call):
        raise InvalidWorkflow(f"{what} takes an iterable of calls, not one call: write [{calls!r}].")
    if not isinstance(calls, Iterable):
        raise InvalidWorkflow(f"{what} takes an iterable of calls: {instead_of_a_call(calls)}")
    chosen = list(calls)
    for place, call in enumerate(chosen):
        if not isinstance(call, Call):
            raise InvalidWorkflow(f"calls[{place}] of {what} is no call: {instead_of_a_call(call)}")
    return chosen


def instead_of_a_call(given: Any) -> str:
    """Return what something is that was given in place of a call, and what to write."""
    name = getattr(given, "module_path", None) or getattr(given, "name", None) or type(given).__name__
    if hasattr(given, "bind"):
        return f"it is the task {name} without arguments. Write {name.rpartition('.')[2]}.bind(…)."
    if hasattr(given, "module_path"):  # of the framework, whose tasks the core does not import
        return (
            f"it is the task {name} of the alias {given.backend!r} in TASKS, whose backend has no jobs of this queue. "
            "Give it an alias with django_pgqueue.backend.PgQueueBackend: its tasks have bind()."
        )
    return f"it is of the type {name}. A member is a call made by bind(), as in fetch.bind(1)."


def refuse_outbox(alias: str) -> None:
    """Raise InvalidWorkflow where members would have to go by an outbox: they are committed with their workflow."""
    if conf.outboxes and not conf.immediate and (outbox := outbox_for(alias)):
        raise InvalidWorkflow(
            f"Workflows go by no outbox: this one is on {alias!r}, inside atomic() on {outbox!r}. Enqueue a task with "
            f"atomic=True there, which begins the workflow or adds to it, or do that after the commit: "
            f"transaction.on_commit(…, using={outbox!r})."
        )


def insert(members: Sequence[Member], names: dict[int, str]) -> InsertResult:
    """Insert members in the caller's transaction; ``names``: of the stages, by id.

    Raises:
        InvalidWorkflow: the unique key of one is held by another job, for which the stage would not wait.
    """
    inserted = insert_members(members)
    for member, job_id, is_new in zip(members, inserted.ids, inserted.created, strict=True):
        if not is_new:
            raise InvalidWorkflow(
                f"{member.call!r} cannot be a member of the stage {names[member.stage_id]!r}: job {job_id} has its "
                "unique key, and a stage waits for its own members only. Leave it out, or give it another key."
            )
    return inserted


# Adding


class FoundStage(NamedTuple):
    """The columns of ``find_stage.sql``."""

    id: int
    name: str
    status: str
    is_sealed: bool
    is_killed: bool
    of_workflow: str  # the status of that
    keeps_calls: bool  # so does the workflow
    previous: str | None  # JSON: the arguments of its first member that are PREVIOUS, where null stands for the result

    @property
    def is_closed(self) -> bool:
        is_unended = self.of_workflow == WorkflowStatus.OPEN and self.status in (StageStatus.BLOCKED, StageStatus.OPEN)
        return self.is_killed or not is_unended

    @property
    def words(self) -> str:
        return "killed" if self.is_killed else self.status


def find_stage(caller: CallerConnection, workflow_id: int, stage: str | int) -> FoundStage:
    """Return a stage of a workflow by its name or id; raise InvalidWorkflow where there is none."""
    asked = {"id": stage if isinstance(stage, int) else 0, "name": stage if isinstance(stage, str) else ""}
    rows = caller.rows(statement("find_stage"), {"workflow_id": workflow_id, **asked})
    if not rows:
        raise InvalidWorkflow(f"Workflow {workflow_id} has no stage {stage!r}.")
    return FoundStage._make(rows[0])


def share(caller: CallerConnection, workflow_id: int) -> None:
    """Keep stages of a workflow from closing until the caller's transaction ends."""
    check_snapshot(caller.rows(statement("share_workflow"), {"workflow_id": workflow_id}))


def add(workflow_id: int, stage: str | int, calls: Any, *, database: str) -> JobHandles[Any]:
    """Add members to a stage in the caller's transaction."""
    refuse_outbox(database)
    chosen = check_calls(calls, "add_many()")
    if not chosen:
        return JobHandles(InsertResult([], []), [])
    for call in chosen:
        if call.task.database != database:
            raise InvalidWorkflow(
                f"The workflow is on {database!r}, and {call.task.name} is enqueued on {call.task.database!r}."
            )
    caller = CallerConnection(database)
    with undoable(database):
        share(caller, workflow_id)
        found = find_stage(caller, workflow_id, stage)
        _check_is_open(found, workflow_id)
        is_blocked = found.status == StageStatus.BLOCKED
        if is_blocked or found.keeps_calls:  # a rerun makes them blocked ones
            _check_arguments(found, chosen)
        inserted = insert([Member(call, found.id, is_blocked) for call in chosen], {found.id: found.name})
        caller.rows(statement("count_added"), {"stage_id": found.id, "members": len(chosen)})
        if found.keeps_calls:
            keep_calls(caller, inserted.ids, by_stage_id=_own_stage_id(workflow_id))
    run_if_immediate(database, inserted.ids)
    return JobHandles(inserted, [call.task for call in chosen])


def _check_is_open(stage: FoundStage, workflow_id: int) -> None:
    if stage.is_closed:
        raise StageClosed(
            f"The stage {stage.name!r} of workflow {workflow_id} takes no more members: it is {stage.words}, and the "
            f"workflow {stage.of_workflow}."
        )
    if stage.is_sealed and _own_stage_id(workflow_id) is None:
        raise StageClosed(
            f"The stage {stage.name!r} of workflow {workflow_id} is sealed: only members of the workflow may add to "
            "it. Declare it by sealed=False, and seal it when it is full."
        )


def _check_arguments(stage: FoundStage, calls: Iterable[Call[Any]]) -> None:
    """Raise InvalidWorkflow where None would be taken for ``PREVIOUS``."""
    if stage.previous is None:
        return
    previous = json.loads(stage.previous)
    for call in calls:
        named = [name for name in previous["kwargs"] if name in call.kwargs and call.kwargs[name] is None]
        placed = [f"{place + 1}" for place in previous["args"] if call.args[place : place + 1] == (None,)]
        if named or placed:
            raise InvalidWorkflow(
                f"The argument {', '.join([*placed, *named])} of {call!r} is None, for which members of the stage "
                f"{stage.name!r} get the result before it, as another one has PREVIOUS there. Put it into another "
                "stage, or give another value."
            )


def _own_stage_id(workflow_id: int) -> int | None:
    """Return the stage of this workflow that the running job is a member of; None: it is a member of none."""
    current = find_current()
    stage_id = current.claimed.stage_id if current else None
    return stage_id if stage_id is not None and workflow_id_of(stage_id) == workflow_id else None


def keep_calls(caller: CallerConnection, job_ids: Sequence[int], *, by_stage_id: int | None = None) -> None:
    """Keep the calls of members that were just inserted, for ``rerun``; ``by_stage_id``: the stage that added them."""
    caller.rows(statement("keep_calls"), {"ids": number_array(job_ids), "by_stage_id": by_stage_id})


# Sealing, skipping, ending


def seal(workflow_id: int, stage: str | int, *, database: str) -> bool:
    """Seal a stage in the caller's transaction; return whether it was not sealed before."""
    caller = CallerConnection(database)
    with undoable(database):
        share(caller, workflow_id)
        found = find_stage(caller, workflow_id, stage)
        sealed = caller.rows(statement("seal_stage"), {"id": found.id})
        if sealed:
            announce(caller, advance(caller, [found.id]))
    return bool(sealed)


def skip(workflow_id: int, stage: str | int, *, by: By, database: str) -> bool:
    """Skip a stage in the caller's transaction; return whether it was not over before."""
    caller, by = CallerConnection(database), name_of(by)
    with undoable(database):
        check_snapshot(caller.rows(statement("lock_workflow"), {"workflow_id": workflow_id}))
        found = find_stage(caller, workflow_id, stage)
        if found.is_closed:
            return False
        announce(caller, Advanced.read(caller.rows(statement("settle_stage"), {"id": found.id, "action": "skip"})))
        clear(caller, workflow_id, by=by)
    return True


def kill_stage(workflow_id: int, stage: str | int, *, by: By, database: str) -> bool:
    """Kill a stage in the caller's transaction; return whether it was not over, or killed, before."""
    caller, by = CallerConnection(database), name_of(by)
    with undoable(database):
        check_snapshot(caller.rows(statement("lock_workflow"), {"workflow_id": workflow_id}))
        found = find_stage(caller, workflow_id, stage)
        if found.is_closed:
            return False
        caller.rows(statement("kill_stage"), {"id": found.id, "by": by})
        clear(caller, workflow_id, by=by)
        if found.status == StageStatus.BLOCKED:
            announce(caller, Advanced.read(caller.rows(statement("settle_stage"), {"id": found.id, "action": "kill"})))
        else:
            announce(caller, advance(caller, [found.id]))
    return True


def end_workflow(workflow_id: int, *, by: By, database: str) -> bool:
    """Kill a workflow in the caller's transaction; return whether it was open."""
    caller, by = CallerConnection(database), name_of(by)
    with undoable(database):
        check_snapshot(caller.rows(statement("lock_workflow"), {"workflow_id": workflow_id}))
        ended = try_to_end(caller, workflow_id, WorkflowStatus.KILLED, by=by)
        if ended.ended:
            clear(caller, workflow_id, by=by)
            announce(caller, ended)
    return bool(ended.ended)


def clear(caller: CallerConnection, workflow_id: int, *, by: str) -> None:
    """Remove the members of skipped stages, kill those that are open, or of killed ones, and end their children.

    The first ones of many: the rest is left to maintenance, and so are children that another session has locked.
    """
    ended = [workflow_id]
    for one in ended:  # and those that are added meanwhile
        before: list[MovingStage] = []
        for _ in range(MOST_SLICES):
            if not (stages := _to_clear(caller, one)) or stages == before:
                break
            has_moved = False
            for stage in stages:
                moved = move_members(caller, stage.id)
                if moved.kills:
                    kill(moved.kills, by=by, database=caller)
                children = moved.children[: MOST_ENDED - len(ended)]
                killed = [child for child in children if try_to_end(caller, child, WorkflowStatus.KILLED, by=by).ended]
                ended += killed
                has_moved |= bool(moved.moved or moved.kills or killed)
            before = [] if has_moved else stages
        if stages:
            notify_maintenance(caller)


def _to_clear(caller: CallerConnection, workflow_id: int) -> list[MovingStage]:
    stages = moving_stages(caller, workflow_id)
    return [stage for stage in stages if stage.is_killed or stage.status == StageStatus.SKIPPED]


def announce(caller: CallerConnection, advanced: Advanced) -> None:
    """Announce jobs of opened stages, and look at stages that have waited for workflows that are over now."""
    notify_opened(caller, advanced)
    if advanced.parents:
        announce(caller, advance(caller, sorted(advanced.parents)))


# Retrying


def retry(workflow_id: int, *, stage: str | int | None, by: By, database: str) -> int:
    """Retry the dead members of a workflow, or of one of its stages; return their number."""
    caller, retried = CallerConnection(database), 0
    first, after = workflow_id * STAGES_OF_ONE, (workflow_id + 1) * STAGES_OF_ONE
    if stage is not None:
        first = find_stage(caller, workflow_id, stage).id
        after = first + 1
    place = first, 0
    while True:
        asked = {"from_stage": first, "to_stage": after, "after_stage": place[0], "after_id": place[1]}
        rows = caller.rows(statement("dead_members"), asked)
        if not rows:
            return retried
        retried += len(dead_letter.retry([job_id for _, job_id in rows], by=by, database=caller).ids)
        place = rows[-1][0], rows[-1][1]


def current_stage_id() -> int:
    """Return the stage that the running job is a member of.

    Raises:
        NoCurrentJob: no job runs here.
        WorkflowDoesNotExist: it is a member of none.
    """
    current = current_job()
    stage_id = current.claimed.stage_id
    if stage_id is None:
        raise WorkflowDoesNotExist(
            f"Job {current.id} ({current.task}) is a member of no workflow: a task that is also enqueued alone uses "
            "current_job() only."
        )
    return stage_id
