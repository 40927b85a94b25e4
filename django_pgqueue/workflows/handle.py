"""Handle of a workflow, returned when it is begun or made of its id: its state, its results, actions on it."""

import datetime as dt
import itertools
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.utils.asyncio import async_unsafe

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidOption, InvalidWorkflow, WorkflowDoesNotExist
from django_pgqueue.jobs.handle import JobHandle, seconds_to_wait
from django_pgqueue.states import LONGEST_KEY, WorkflowStatus
from django_pgqueue.stored_values import read
from django_pgqueue.tasks import Call
from django_pgqueue.validation import By, check_name, number_of
from django_pgqueue.workflows import members
from django_pgqueue.workflows.records import MOST_WORKFLOWS, WORKFLOW_SHIFT, StageState, WorkflowState, workflow_id_of
from django_pgqueue.workflows.rerun import rerun

R = TypeVar("R")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.5
"""Interval between looks while a caller waits; each is half as long again as the last one."""


@dataclass(frozen=True, slots=True)
class WorkflowHandle:
    """A workflow that was begun, or whose id is known; two are equal if id and database are.

    Stages are given by name, or by the id of their ``StageState``. Changes are part of the caller's transaction.

    Attributes:
        id: of the workflow.
        name: as given; "" where only the id is known.
        database: the alias it is on.
        created: whether it is a new one; False: an open one had its unique key, or only the id is known.
    """

    id: int
    name: str = field(compare=False)
    database: str
    created: bool = field(default=True, compare=False)

    def state(self) -> WorkflowState:
        """Return status, stages and the numbers of their members, by two queries.

        Live and dead members are counted along an index: about 10 ms for 100,000.

        Raises:
            WorkflowDoesNotExist: it was never committed, or nothing is kept of it any more.
        """
        return state_of(CallerConnection(self.database), self.id)

    async def astate(self) -> WorkflowState:
        """Do what ``state`` does from async code."""
        return await sync_to_async(self.state, thread_sensitive=True)()

    def status(self) -> WorkflowStatus:
        """Return the status, by one query; raises as ``state``."""
        return WorkflowStatus(_row(CallerConnection(self.database), self.id)[2])

    async def astatus(self) -> WorkflowStatus:
        """Do what ``status`` does from async code."""
        return await sync_to_async(self.status, thread_sensitive=True)()

    @async_unsafe("wait() would block the event loop. Use await_end().")
    def wait(self, timeout: float | dt.timedelta) -> WorkflowState:
        """Wait until the workflow has ended, either way; return its state. Polls, every half a second in the end.

        Args:
            timeout: seconds above 0, or a timedelta.

        Raises:
            TimeoutError: it has not ended by then. It goes on.
            WorkflowDoesNotExist: as ``state``.
            InvalidOption: the timeout is not above 0.
        """
        seconds = seconds_to_wait(timeout)
        for pause in _pauses(seconds):
            if self.status() is not WorkflowStatus.OPEN:
                return self.state()
            time.sleep(pause)
        raise self._too_late(seconds)

    async def await_end(self, timeout: float | dt.timedelta) -> WorkflowState:  # noqa: ASYNC109 - as wait()
        """Do what ``wait`` does from async code."""
        import asyncio  # noqa: PLC0415 - only async callers need it

        seconds = seconds_to_wait(timeout)
        for pause in _pauses(seconds):
            if await self.astatus() is not WorkflowStatus.OPEN:
                return await self.astate()
            await asyncio.sleep(pause)
        raise self._too_late(seconds)

    def _too_late(self, seconds: float) -> TimeoutError:
        return TimeoutError(f"Workflow {self.id} has not ended within {seconds:g} s.")

    def results(self, stage: str | int) -> Iterator[Any]:
        """Loop over the results that a stage has collected so far, in the order of its members; 1,000 for each query.

        Raises:
            InvalidWorkflow: there is no such stage, or it does not collect.
        """
        caller = CallerConnection(self.database)
        found = members.find_stage(caller, self.id, stage)
        if not found.id & 1:
            raise InvalidWorkflow(
                f"The stage {found.name!r} of workflow {self.id} does not collect results: declare it by collect=True."
            )
        return results_of(caller, found.id)

    async def aresults(self, stage: str | int) -> AsyncIterator[Any]:
        """Do what ``results`` does from async code."""
        results = await sync_to_async(self.results, thread_sensitive=True)(stage)
        while slice_of_some := await sync_to_async(_next_of, thread_sensitive=True)(results):
            for result in slice_of_some:
                yield result

    def add(self, call: Call[R], *, stage: str | int) -> JobHandle[R]:
        """Add a member to a stage that is not over, as ``add_many``."""
        return self.add_many([call], stage=stage)[0]

    def add_many(self, calls: Iterable[Call[R]], *, stage: str | int) -> Sequence[JobHandle[R]]:
        """Add members to a stage that is not over, in the caller's transaction; all or none.

        A member may add to its own stage, which cannot close while it runs, and to those behind it. Other code may add
        to stages with ``sealed=False``. Until the caller's transaction ends no stage of the workflow closes.

        Raises:
            StageClosed: the stage is over, or sealed.
            InvalidWorkflow: there is no such stage, one is no call, its unique key is held by another job, or an
                argument is None where another member of the stage has ``PREVIOUS``.
            InvalidArguments: as ``enqueue_many``.
        """
        return members.add(self.id, stage, calls, database=self.database)

    def seal(self, stage: str | int) -> bool:
        """Let a stage that was declared by ``sealed=False`` close when its members have ended.

        Returns:
            Whether it was not sealed before.
        """
        return members.seal(self.id, stage, database=self.database)

    def skip(self, stage: str | int, *, by: By = "") -> bool:
        """Skip a stage: those behind it go on as if it had succeeded.

        Members that are not open yet are removed, others are killed, dead ones stay dead. Children that they have begun
        are killed. Of many the rest is killed in the background, by no name.

        Args:
            by: user who does it, or the username; kept in the history of jobs that are killed.

        Returns:
            Whether it was not over before.
        """
        return members.skip(self.id, stage, by=by, database=self.database)

    def kill(self, *, stage: str | int | None = None, by: By = "") -> bool:
        """Kill the workflow, or one stage of it, and the workflows that members have begun.

        Of the workflow nothing opens any more, and members that are not open yet are removed. The others are killed as
        by ``jobs.kill``: of more than some thousand the rest in the background, and so are more than 100 workflows, and
        those to which a transaction is adding.

        A stage that is killed takes no more members, is sealed, also for a rerun, and is over when its last one has
        ended: one that runs is asked to stop. Then those behind it that wait for its success are skipped, those for its
        end or a death open, other branches go on, and the workflow fails in the end, with each ``on_death``.

        Args:
            by: user who does it, or the username; kept in the history of jobs that are killed.

        Returns:
            Whether it was open; of a stage: whether it was not over, or killed, before.

        Raises:
            InvalidWorkflow: there is no such stage, or the transaction is at a higher level than READ COMMITTED.
        """
        if stage is not None:
            return members.kill_stage(self.id, stage, by=by, database=self.database)
        return members.end_workflow(self.id, by=by, database=self.database)

    def retry(self, *, stage: str | int | None = None, by: By = "") -> int:
        """Retry the dead members of all stages, or of one, as ``jobs.retry``. The workflow goes on by itself.

        Those of a stage that was skipped or killed, by itself or with the workflow, are retried only if it is named. A
        workflow that has ended stays as it is.

        Returns:
            The number of jobs that will run again.
        """
        return members.retry(self.id, stage=stage, by=by, database=self.database)

    def rerun(self, *stages: str | int, by: By = "") -> int:
        """Run stages again, and all that come after them: with new members, made of their calls.

        The workflow must have been begun with ``keep_calls=True``. The stages open by their rules; those after them are
        ``blocked`` until then. An ended workflow is open again; of one that was killed, or was late, all stages that
        were not over then run. A deadline that has passed lies as long ahead as it did at the start. Results that these
        stages have collected are removed, and so are their dead and blocked members. Members that members of these
        stages have added are left to those to add again, and ended children are no part of it any more. A child
        whose own parent has gone on without it goes on by itself.

        Args:
            stages: at which to begin, one or several: each has opened once, or was skipped.
            by: user who does it, or the username; kept in the state of the stage.

        Returns:
            The number of new members, 1 to 100,000.

        Raises:
            WorkflowDoesNotExist: there is no such workflow, or not any more.
            InvalidWorkflow: it keeps no calls, there is no such stage or it has not opened yet, a member or a child of
                the stages is alive, a stage that was not over when the workflow was ended would not run, one would be
                skipped for the outcome of one before it, another job has the unique key of a member or another open
                workflow that of this one, or there are more than 100,000 calls. Nothing was changed.
        """
        return rerun(self.id, stages, by=by, database=self.database)


class CurrentWorkflow(WorkflowHandle):
    """The workflow of the running job; returned by ``current_workflow``.

    Attributes:
        stage_id: the stage that the job is a member of.
    """

    __slots__ = ("stage_id",)

    stage_id: int

    def __init__(self, stage_id: int, database: str) -> None:
        super().__init__(workflow_id_of(stage_id), "", database, created=False)
        object.__setattr__(self, "stage_id", stage_id)

    def context(self) -> Any:
        """Return the context with which the workflow was begun, by one query."""
        return read(_row(CallerConnection(self.database), self.id)[-1])

    def add(self, call: Call[R], *, stage: str | int | None = None) -> JobHandle[R]:
        """Add a member to a stage, by default to that of the running job, as ``add_many``."""
        return self.add_many([call], stage=stage)[0]

    def add_many(self, calls: Iterable[Call[R]], *, stage: str | int | None = None) -> Sequence[JobHandle[R]]:
        """Add members to a stage, by default to that of the running job; see ``WorkflowHandle.add_many``."""
        return members.add(self.id, self.stage_id if stage is None else stage, calls, database=self.database)


def current_workflow() -> CurrentWorkflow:
    """Return the workflow that the running job is a member of. Sends no query.

    Raises:
        NoCurrentJob: the calling code runs for no job.
        WorkflowDoesNotExist: the job is a member of none.
    """
    return CurrentWorkflow(members.current_stage_id(), conf.database_here)


def get(
    workflow_id: int | str | None = None, *, unique_key: str | None = None, database: str | None = None
) -> WorkflowHandle:
    """Return the handle of the workflow with this id, or of the open one that has a unique key.

    By its id it sends no query, so there may be no such workflow; by the key it is one query.

    Args:
        workflow_id: a whole number, or the text of one.
        unique_key: in place of the id; as given when it was begun.
        database: the alias it is on. None: the one that its id names; without shards, and for a key, that of the
            running job, else ``PGQUEUE["DATABASE"]``.

    Raises:
        InvalidOption: the id is no whole number, or both id and key are given.
        WorkflowDoesNotExist: no open workflow has the key, the id begins with the number of no database, or it is too
            large or too small for one.
    """
    alias = database or conf.database_here
    if unique_key is not None:
        if workflow_id is not None:
            raise InvalidOption("A workflow is found by its id or by its unique key: give one of them.")
        if (found := find_open(CallerConnection(alias), unique_key)) is None:
            raise WorkflowDoesNotExist(f"No open workflow has the unique key {unique_key!r}.")
        return found[0]
    if (number := number_of(workflow_id)) is None:
        raise InvalidOption(f"The id of a workflow is a whole number, not {workflow_id!r}.")
    if not -MOST_WORKFLOWS < number < MOST_WORKFLOWS:
        raise WorkflowDoesNotExist(f"There is no workflow {number}: ids are below {MOST_WORKFLOWS}.")
    found_alias = conf.with_number(max(number, 0) >> WORKFLOW_SHIFT) if conf.shards and database is None else alias
    if found_alias is None:
        raise WorkflowDoesNotExist(f"There is no workflow {number}: its database would be none in PGQUEUE['SHARDS'].")
    return WorkflowHandle(number, "", found_alias, created=False)


async def aget(
    workflow_id: int | str | None = None, *, unique_key: str | None = None, database: str | None = None
) -> WorkflowHandle:
    """Do what ``get`` does from async code."""
    return await sync_to_async(get, thread_sensitive=True)(workflow_id, unique_key=unique_key, database=database)


def find_open(caller: CallerConnection, unique_key: str) -> tuple[WorkflowHandle, int | None] | None:
    """Return the open workflow that has a unique key, and the stage that waits for it; None: there is none."""
    check_name("unique_key", unique_key, LONGEST_KEY)
    rows = caller.rows(statement("find_workflow"), {"unique_key": unique_key})
    if not rows:
        return None
    [(workflow_id, name, parent_stage_id)] = rows
    return WorkflowHandle(workflow_id, name, caller.alias, created=False), parent_stage_id


def state_of(caller: CallerConnection, workflow_id: int) -> WorkflowState:
    """Return the state of a workflow; raise WorkflowDoesNotExist where there is none."""
    workflow = _row(caller, workflow_id)
    rows = caller.rows(statement("stage_states"), {"workflow_id": workflow_id})
    names = {stage_id: name for stage_id, name, *_ in rows}
    stages = tuple(StageState.of(row, names) for row in rows)
    return WorkflowState.of(workflow, stages)


def _row(caller: CallerConnection, workflow_id: int) -> tuple[Any, ...]:
    rows = caller.rows(statement("workflow_state"), {"id": workflow_id})
    if not rows:
        raise WorkflowDoesNotExist(f"There is no workflow {workflow_id} on {caller.alias!r}, or not any more.")
    return rows[0]


def results_of(caller: CallerConnection, stage_id: int) -> Iterator[Any]:
    """Loop over the results that a stage has collected, by one query for each thousand."""
    after = 0
    while rows := caller.rows(statement("stage_results"), {"stage_id": stage_id, "after": after}):
        for _, result in rows:
            yield read(result) if result is not None else None
        after = rows[-1][0]


def _next_of(results: Iterator[Any]) -> list[Any]:
    return list(itertools.islice(results, 1000))


def _pauses(seconds: float) -> Iterator[float]:
    """Yield the pause after each look; none after the last one, which is made when the time is over."""
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(pause * 1.5, LONGEST_PAUSE_SECONDS)
    yield 0
