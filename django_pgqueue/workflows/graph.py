"""Build workflows: stages of calls and what each waits for; chains, groups and batches are shapes of them.

Nothing is inserted before ``enqueue()``, or the end of a ``with workflow(…)`` block, and then all of it or nothing.
"""

import contextlib
import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, Unpack

from asgiref.sync import sync_to_async

from django_pgqueue.conf import conf
from django_pgqueue.db.connections import CallerConnection, number_array, undoable
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidWorkflow, PgQueueError, StageClosed
from django_pgqueue.jobs.enqueue import Member, check_calls
from django_pgqueue.jobs.serialization import encode
from django_pgqueue.middleware import run_if_immediate
from django_pgqueue.options import check_instant
from django_pgqueue.states import LONGEST_KEY, LONGEST_NAME, MOST_STAGES, OnDeath, OpensWhen
from django_pgqueue.tasks import Call
from django_pgqueue.validation import check_flag, check_name, check_seconds, check_word, seconds_of
from django_pgqueue.workflows import members
from django_pgqueue.workflows.advance import advance
from django_pgqueue.workflows.handle import WorkflowHandle, find_open
from django_pgqueue.workflows.records import stage_id_of, workflow_id_of

MOST_TRIES = 100
"""Maximum number of tries to begin a workflow whose unique key comes and goes."""

DeathRule = Literal["wait", "stop", "go_on"]
When = Literal["succeeded", "ended", "died"]


class WorkflowOptions(TypedDict, total=False):
    """Options of a workflow, as ``workflow`` documents them."""

    unique_key: str | None
    on_death: DeathRule
    deadline: float | dt.timedelta | dt.datetime | None
    context: Mapping[str, Any] | None
    child: bool
    keep_calls: bool
    database: str | None


class Previous:
    """Stands for the result of the call before in a chain; see ``PREVIOUS``."""

    def __repr__(self) -> str:
        return "PREVIOUS"


PREVIOUS: Any = Previous()
"""As an argument of a call in a chain: what the task of the call before has returned.

None where there is no result: the call before was skipped, purged, died and the workflow went on, or returned one that
is no JSON or too large. No key of that call may be computed from it, nor by a function: it is not known when the
workflow begins.
"""


@dataclass(frozen=True, slots=True, eq=False)
class NewStage:
    """A stage of a workflow that is being built; for ``after`` of others.

    Attributes:
        name: unique in its workflow.
        calls: of its members.
    """

    name: str
    calls: Sequence[Call[Any]] = field(repr=False)
    after: tuple["NewStage | str", ...] = field(repr=False)
    when: OpensWhen = field(repr=False)
    collect: bool = field(repr=False)
    sealed: bool = field(repr=False)
    takes_previous: bool = field(repr=False)

    def calls_without_previous(self) -> Sequence[Call[Any]]:
        """Return the calls, with None in the place of each argument that is ``PREVIOUS``."""
        return [_without_previous(call)[1] for call in self.calls] if self.takes_previous else self.calls


After = NewStage | str | Iterable[NewStage | str] | None


class NewWorkflow:
    """A workflow that is being built; made by ``workflow``, ``chain``, ``group`` and ``batch``."""

    def __init__(
        self,
        name: str,
        *,
        unique_key: str | None = None,
        on_death: DeathRule = "wait",
        deadline: float | dt.timedelta | dt.datetime | None = None,
        context: Mapping[str, Any] | None = None,
        child: bool = False,
        keep_calls: bool = False,
        database: str | None = None,
    ) -> None:
        check_name("The name of a workflow", name, LONGEST_NAME)
        if unique_key is not None:
            check_name("unique_key", unique_key, LONGEST_KEY)
        check_word("on_death", on_death, tuple(OnDeath))
        check_flag("child", child)
        check_flag("keep_calls", keep_calls)
        if isinstance(deadline, dt.datetime):
            check_instant("deadline", deadline)
        elif deadline is not None:
            check_seconds("deadline", deadline)
        if context is not None and not isinstance(context, Mapping):
            raise InvalidWorkflow(f"The context of a workflow is a JSON object, not {context!r}.")
        self.name = name
        self._unique_key = unique_key
        self._on_death = OnDeath(on_death)
        self._deadline = deadline
        self._context = encode(dict(context), what="context") if context else "{}"
        self._child = child
        self._keep_calls = keep_calls
        self._database = database or conf.database_here
        self._stages: dict[str, NewStage] = {}
        self._handle: WorkflowHandle | None = None

    def __repr__(self) -> str:
        return f"<NewWorkflow {self.name}: {len(self._stages)} stages>"

    @property
    def handle(self) -> WorkflowHandle:
        """The workflow that was begun.

        Raises:
            InvalidWorkflow: it has not been begun yet.
        """
        if self._handle is None:
            raise InvalidWorkflow(
                f"The workflow {self.name!r} has not begun: it does at the end of its with block, or by enqueue()."
            )
        return self._handle

    def add(
        self,
        call: Call[Any],
        *,
        after: After = None,
        when: When = "succeeded",
        name: str | None = None,
        collect: bool = False,
    ) -> NewStage:
        """Add a stage of one member.

        One of its arguments may be ``PREVIOUS``, if it comes after one stage that has one member, and not by
        ``when="died"``.

        Args:
            call: made by ``bind``.
            after: the stages before it, one or several: as ``add`` and ``add_many`` return them, or their names. None:
                it opens at once.
            when: ``"succeeded"``: all of those have; ``"ended"``: all are over, either way; ``"died"``: a member of one
                of them has died; it opens at the first death, and once.
            name: of the stage. None: that of the function, with a number from the second one on.
            collect: whether the results of its members are kept for the others, until the workflow is pruned.

        Raises:
            InvalidWorkflow: it is no call, there is a stage of this name, or the workflow has begun.
        """
        if not isinstance(call, Call):
            raise InvalidWorkflow(f"add() takes a call: {members.instead_of_a_call(call)}")
        return self._add([call], after, when, name, collect=collect, sealed=True)

    def add_many(
        self,
        calls: Iterable[Call[Any]],
        *,
        after: After = None,
        when: When = "succeeded",
        name: str | None = None,
        collect: bool = False,
        sealed: bool = True,
    ) -> NewStage:
        """Add a stage of many members, which run side by side; of none, it is over when it opens.

        Args:
            calls: made by ``bind``, of any tasks. Tens of thousands are fine.
            sealed: False: other code may add members by the handle, and the stage stays open until ``seal``.

        The other arguments and the errors are those of ``add``.
        """
        chosen = members.check_calls(calls, "add_many()")
        return self._add(chosen, after, when, name, collect=collect, sealed=sealed)

    def _add(
        self, calls: Sequence[Call[Any]], after: After, when: str, name: str | None, *, collect: bool, sealed: bool
    ) -> NewStage:
        if self._handle is not None:
            raise InvalidWorkflow(f"The workflow {self.name!r} has begun: add members by its handle.")
        check_word("when", when, tuple(OpensWhen))
        check_flag("collect", collect)
        check_flag("sealed", sealed)
        named = self._free_name(calls) if name is None else name
        check_name("The name of a stage", named, LONGEST_NAME)
        if named in self._stages:
            raise InvalidWorkflow(
                f"The workflow {self.name!r} has a stage {named!r} already: give this one another name."
            )
        if len(self._stages) >= MOST_STAGES:
            raise InvalidWorkflow(
                f"A workflow has {MOST_STAGES:,} stages at most. Members that wait for the same stages belong to one "
                "stage: add_many()."
            )
        before = (after,) if isinstance(after, NewStage | str) else tuple(after or ())
        takes_previous = any(_takes_previous(call) for call in calls)
        stage = NewStage(named, calls, before, OpensWhen(when), collect, sealed, takes_previous)
        self._stages[named] = stage
        return stage

    def _free_name(self, calls: Sequence[Call[Any]]) -> str:
        first = calls[0].task.name.rpartition(".")[2] if calls else "stage"
        if first not in self._stages:
            return first
        number = len(self._stages) + 1
        while f"{first} {number}" in self._stages:
            number += 1
        return f"{first} {number}"

    # Checks

    def check(self) -> None:
        """Raise what ``enqueue`` would, as far as it can be known without the database."""
        for place in self._sorted():
            for task in {call.task: None for call in place.calls}:
                if task.database != self._database:
                    raise InvalidWorkflow(
                        f"All members are on the database of their workflow, {self._database!r}, and "
                        f"{task.name} is enqueued on {task.database!r}."
                    )
            check_calls(place.calls_without_previous())
            if self._source_of_previous(place) is not None:
                _check_keys(place)

    def _before(self, stage: NewStage) -> list[NewStage]:
        """Return the stages that one waits for, each once."""
        found = {}
        for one in dict.fromkeys(stage.after):
            name = one.name if isinstance(one, NewStage) else one
            known = self._stages.get(name) if isinstance(name, str) else None
            if known is None or (isinstance(one, NewStage) and known is not one):
                raise InvalidWorkflow(
                    f"The stage {stage.name!r} comes after {name!r}, which is no stage of the workflow {self.name!r}. "
                    f"It has {', '.join(map(repr, list(self._stages)[:10]))}."
                )
            found[known.name] = known
        return list(found.values())

    def _sorted(self) -> list[NewStage]:
        """Return the stages so that each comes after those before it; raise InvalidWorkflow where that cannot be."""
        waits = {stage.name: {one.name for one in self._before(stage)} for stage in self._stages.values()}
        behind: dict[str, list[str]] = {name: [] for name in waits}
        for name, before in waits.items():
            for one in before:
                behind[one].append(name)
        ready = [name for name, before in waits.items() if not before]
        for name in ready:  # grows
            for one in behind[name]:
                waits[one].discard(name)
                if not waits[one]:
                    ready.append(one)
        if len(ready) < len(waits):
            circle = sorted(set(waits).difference(ready))
            raise InvalidWorkflow(
                f"Stages of the workflow {self.name!r} wait for each other: {', '.join(map(repr, circle[:10]))}."
            )
        return [self._stages[name] for name in ready]

    def _source_of_previous(self, stage: NewStage) -> NewStage | None:
        """Return the stage whose result is an argument of a member; None: no argument is ``PREVIOUS``."""
        if not stage.takes_previous:
            return None
        before = self._before(stage)
        if len(stage.calls) != 1 or len(before) != 1 or len(before[0].calls) != 1 or not before[0].sealed:
            raise InvalidWorkflow(
                f"PREVIOUS is the result of one member, for one member behind it; not so in the stage {stage.name!r}. "
                "Members read what many have returned by current_workflow().results(stage)."
            )
        if stage.when is OpensWhen.DIED:
            raise InvalidWorkflow(
                f"The stage {stage.name!r} opens when that before it has died, so there is no result for PREVIOUS. Use "
                "when='ended': then PREVIOUS is None after a death. Or give another argument."
            )
        return before[0]

    # Beginning

    def enqueue(self) -> WorkflowHandle:
        """Begin the workflow in the caller's transaction: it exists if and only if that commits.

        All members are inserted, those of stages that wait for others as ``blocked``. Without a transaction it makes
        one of its own.

        Returns:
            The handle; of the open workflow that has the same ``unique_key``, where there is one.

        Raises:
            InvalidWorkflow: stages wait for each other or for unknown ones, there is no stage, it has begun already, a
                job has the unique key of a member, it is a child on another database than its parent, it is a child and
                an open workflow that the stage does not wait for has its key, or it would have to go by an outbox.
                Nothing was inserted.
            InvalidArguments: those of a call do not fit, or are not JSON.
            StageClosed: it is a child, and the stage of the running job has been skipped.
            WorkflowDoesNotExist: it is a child, and the running job is a member of no workflow.
            django.db.Error: as any other statement of the caller's transaction.
        """
        if self._handle is not None:
            raise InvalidWorkflow(f"The workflow {self.name!r} has begun already: as {self._handle!r}.")
        if not self._stages:
            raise InvalidWorkflow(f"The workflow {self.name!r} has no stages: add one.")
        self.check()
        members.refuse_outbox(self._database)
        with undoable(self._database):
            self._handle, ids = self._begin(CallerConnection(self._database))
        run_if_immediate(self._database, ids)
        return self._handle

    async def aenqueue(self) -> WorkflowHandle:
        """Do what ``enqueue`` does from async code, on the connection that sync code of this context uses."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)()

    def _begin(self, caller: CallerConnection) -> tuple[WorkflowHandle, list[int]]:
        parent_stage_id = self._share_parent(caller) if self._child else None
        for _ in range(MOST_TRIES):
            rows = caller.rows(statement("begin_workflow"), self._parameters(parent_stage_id))
            if rows:
                workflow_id: int = rows[0][0]
                ids = self._begin_stages(caller, workflow_id)
                return WorkflowHandle(workflow_id, self.name, caller.alias), ids
            if self._unique_key is not None and (found := find_open(caller, self._unique_key)) is not None:
                handle, awaited_by = found
                if self._child and awaited_by != parent_stage_id:
                    raise InvalidWorkflow(
                        f"Workflow {handle.id} has the unique key {self._unique_key!r} and is no child of this stage, "
                        "which would not wait for it. Give the child another key, or begin it with child=False."
                    )
                return handle, []
        raise PgQueueError(
            f"Workflows with the unique key {self._unique_key!r} came and went {MOST_TRIES} times while this one was "
            "being begun. Try again."
        )

    def _share_parent(self, caller: CallerConnection) -> int:
        parent = members.current_stage_id()
        if conf.database_here != caller.alias:
            raise InvalidWorkflow(
                f"A child is on the database of its parent, {conf.database_here!r}, and the workflow {self.name!r} on "
                f"{caller.alias!r}."
            )
        members.share(caller, workflow_id_of(parent))
        stage = members.find_stage(caller, workflow_id_of(parent), parent)
        if stage.is_closed:
            raise StageClosed(
                f"The stage {stage.name!r} of the running job is {stage.words}: no child begins in it any more."
            )
        return parent

    def _parameters(self, parent_stage_id: int | None) -> dict[str, Any]:
        is_instant = isinstance(self._deadline, dt.datetime)
        return {
            "name": self.name,
            "unique_key": self._unique_key,
            "on_death": self._on_death.value,
            "deadline_at": self._deadline if is_instant else None,
            "deadline_seconds": None if is_instant else seconds_of(self._deadline),
            "parent_stage_id": parent_stage_id,
            "context": self._context,
            "keeps_calls": self._keep_calls,
        }

    def _begin_stages(self, caller: CallerConnection, workflow_id: int) -> list[int]:
        stages = list(self._stages.values())
        sources = {source.name for stage in stages if (source := self._source_of_previous(stage))}
        ids = {
            stage.name: stage_id_of(workflow_id, number, collects=stage.collect or stage.name in sources)
            for number, stage in enumerate(stages)
        }
        edges = [(ids[before.name], ids[stage.name]) for stage in stages for before in self._before(stage)]
        rows = [self._row(stage, ids[stage.name]) for stage in stages]
        parameters = {
            "stages": json.dumps(rows),
            "from_ids": number_array([from_id for from_id, _ in edges]),
            "to_ids": number_array([to_id for _, to_id in edges]),
        }
        caller.rows(statement("begin_stages"), parameters)
        to_insert = [
            Member(call, ids[stage.name], bool(stage.after))
            for stage in stages
            for call in stage.calls_without_previous()
        ]
        names = {stage_id: name for name, stage_id in ids.items()}
        job_ids = members.insert(to_insert, names).ids if to_insert else []
        if self._keep_calls and job_ids:
            members.keep_calls(caller, job_ids)
        empty = [ids[stage.name] for stage in stages if not stage.calls and not stage.after and stage.sealed]
        if empty:
            members.announce(caller, advance(caller, empty))
        return job_ids

    def _row(self, stage: NewStage, stage_id: int) -> dict[str, Any]:
        places = [place for call in stage.calls[:1] for place in _without_previous(call)[0]]
        previous = {
            "args": [place for place in places if isinstance(place, int)],
            "kwargs": [place for place in places if isinstance(place, str)],
        }
        return {
            "id": stage_id,
            "name": stage.name,
            "is_blocked": bool(stage.after),
            "opens_when": stage.when.value,
            "is_sealed": stage.sealed,
            "members": len(stage.calls),
            "previous": previous if places else None,
        }


def _takes_previous(call: Call[Any]) -> bool:
    return any(value is PREVIOUS for value in (*call.args, *call.kwargs.values()))


def _without_previous(call: Call[Any]) -> tuple[list[int | str], Call[Any]]:
    """Return the places and names of arguments that are ``PREVIOUS``, and the call with None in their place."""
    places: list[int | str] = [place for place, value in enumerate(call.args) if value is PREVIOUS]
    places += [name for name, value in call.kwargs.items() if value is PREVIOUS]
    if not places:
        return places, call
    args = tuple(None if value is PREVIOUS else value for value in call.args)
    kwargs = {name: None if value is PREVIOUS else value for name, value in call.kwargs.items()}
    return places, Call(call.task, args, kwargs)


def _check_keys(stage: NewStage) -> None:
    """Raise InvalidWorkflow where a key would be computed from an argument that is ``PREVIOUS``."""
    [call] = stage.calls
    options = call.task.options
    for option, by, key in (
        ("unique", options.unique and options.unique_rule.by, options.unique_key),
        ("limit", options.limit and options.limit_rule.by, options.limit_key),
        ("fair", options.fair, options.fair_key),
    ):
        if by and key is None and (by is True or callable(by) or _arguments_with_previous(call).intersection(by)):
            raise InvalidWorkflow(
                f"The key of {option} of {call.task.name} in the stage {stage.name!r} is computed when the workflow "
                f"begins, of arguments with PREVIOUS, which is not known yet. Name other arguments, or give the key: "
                f"{call.task.name.rpartition('.')[2]}.using({option}_key=…).bind(…)."
            )


def _arguments_with_previous(call: Call[Any]) -> set[str]:
    bound = call.task.signature.bind(*call.args, **call.kwargs)
    return {
        parameter
        for parameter, value in bound.arguments.items()
        if value is PREVIOUS
        or (isinstance(value, tuple) and PREVIOUS in value)
        or (isinstance(value, dict) and PREVIOUS in value.values())
    }


# Shapes


@contextlib.contextmanager
def workflow(
    name: str,
    *,
    unique_key: str | None = None,
    on_death: DeathRule = "wait",
    deadline: float | dt.timedelta | dt.datetime | None = None,
    context: Mapping[str, Any] | None = None,
    child: bool = False,
    keep_calls: bool = False,
    database: str | None = None,
) -> Iterator[NewWorkflow]:
    """Build a workflow of any stages in a ``with`` block, at whose end it begins, if not by ``enqueue()`` before.

    If the block raises, nothing is inserted. The block needs no transaction; in one, the workflow is part of it.

    Args:
        name: for people, 1 to 500 characters.
        unique_key: of all open workflows with the same key there is one. 1 to 500 characters.
        on_death: ``"wait"``: a stage with a dead member stays open until that is retried, and the workflow goes on
            then; ``"stop"``: it ends, stages that wait for its success are skipped, and the workflow fails;
            ``"go_on"``: it ends as if that had succeeded.
        deadline: seconds or a timedelta from now, of a year at most, or an aware datetime: a workflow that is open then
            fails, and its members are killed.
        context: a JSON object for all members to read.
        child: begun by a member of another workflow, whose stage is not over before this one. If it fails or is killed,
            that counts as a dead member.
        keep_calls: keep a copy of each call as long as the workflow, for ``WorkflowHandle.rerun``; inserts a second row
            for each member.
        database: alias on which its members are. None: that of the running job, else ``PGQUEUE["DATABASE"]``.

    Raises:
        InvalidOption: a value is out of range or of the wrong type. The others as ``NewWorkflow.enqueue``.
    """
    new = NewWorkflow(
        name,
        unique_key=unique_key,
        on_death=on_death,
        deadline=deadline,
        context=context,
        child=child,
        keep_calls=keep_calls,
        database=database,
    )
    yield new
    if new._handle is None:  # noqa: SLF001 - of the same module
        new.enqueue()


def chain(
    *calls: Call[Any] | Sequence[Call[Any]], name: str = "chain", **options: Unpack[WorkflowOptions]
) -> NewWorkflow:
    """Return a workflow of calls that run one after the other; ``enqueue()`` begins it.

    Args:
        calls: made by ``bind``. A list of calls in place of one: they run side by side. An argument that is
            ``PREVIOUS`` is the result of the call before.
        options: as ``workflow``.

    Raises:
        InvalidWorkflow: there is none, or one is no call.
    """
    new = NewWorkflow(name, **options)
    last: NewStage | None = None
    for one in calls:
        last = new.add(one, after=last) if isinstance(one, Call) else new.add_many(one, after=last)
    if last is None:
        raise InvalidWorkflow("A chain has one call or more, as in chain(fetch.bind(1), store.bind(PREVIOUS)).")
    new.check()
    return new


def group(
    calls: Iterable[Call[Any]], *, name: str = "group", collect: bool = False, **options: Unpack[WorkflowOptions]
) -> NewWorkflow:
    """Return a workflow of calls that run side by side, its stage ``members``; ``enqueue()`` begins it.

    Args:
        calls: made by ``bind``. Of none, it has succeeded at once.
        collect: whether the results are kept, for ``results("members")`` of the handle.
        options: as ``workflow``.
    """
    new = NewWorkflow(name, **options)
    new.add_many(calls, name="members", collect=collect)
    return new


def batch(
    calls: Iterable[Call[Any]],
    *,
    then: Call[Any] | None = None,
    ended: Call[Any] | None = None,
    died: Call[Any] | None = None,
    name: str = "batch",
    collect: bool = False,
    sealed: bool = True,
    **options: Unpack[WorkflowOptions],
) -> NewWorkflow:
    """Return a workflow of calls that run side by side, with calls that follow; ``enqueue()`` begins it.

    Args:
        calls: made by ``bind``: the stage ``members``.
        then: runs once all of them have succeeded.
        ended: runs once all of them are over, either way: with ``on_death="wait"`` not before dead ones were retried.
        died: runs once the first of them has died.
        collect: whether the results are kept, for ``current_workflow().results("members")``.
        sealed: False: more are added by the handle, and it stays open until ``seal("members")``.
        options: as ``workflow``.
    """
    new = NewWorkflow(name, **options)
    first = new.add_many(calls, name="members", collect=collect, sealed=sealed)
    for when, call in (("succeeded", then), ("ended", ended), ("died", died)):
        if call is not None:
            new.add(call, after=first, when=when, name={"succeeded": "then"}.get(when, when))  # type: ignore[arg-type]
    return new
