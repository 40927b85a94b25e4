"""Workflows that producers begin: made-up graphs, whose members write a row each and look for those before them.

A row of the producer's own says in the same transaction that the workflow was begun, and what belongs to it. Some
members are added later: by a member of the same stage, or by a periodic task, which also seals the stage and retries
members that died because their workers were killed too often.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import psycopg
from django.db import connection, transaction

if TYPE_CHECKING:
    from tests.chaos.ledger import Ledger

Breaks = Iterator[tuple[int | None, str]]

QUEUE = "flows"
COUNTS, LARGE = (1, 1, 2, 5, 20), 1100
"""Numbers of members; of a large stage more than are opened at once."""

MOST_LEFT = 3000
"""Members that may lie about before no other workflow is begun."""

REPORT = "report"
"""The stage behind all others."""


# Beginning


@dataclass(slots=True)
class Stage:
    """A stage as it is drawn.

    Attributes:
        members: how many it has in the end, numbered from 0.
        late: how many of them are added when it has begun.
        adder: who adds those: ``member`` or ``mender``.
        is_atomic: its members write their row in the transaction of their success, so once.
    """

    members: int
    late: int
    adder: str
    is_atomic: bool
    after: list[str]
    when: str

    @property
    def is_sealed(self) -> bool:
        return self.adder != "mender" or not self.late


def drawn(draw: Random) -> dict[str, Stage]:
    """Return the stages of a workflow by their names, each behind some of those before it."""
    stages: dict[str, Stage] = {}
    for place in range(draw.randint(1, 5)):
        members = LARGE if draw.random() < 0.02 else draw.choice(COUNTS)
        late = draw.choice((0, 0, 0, 1, 3)) if members > 4 else 0
        after = draw.sample(sorted(stages), draw.randint(min(place, 1), min(place, 2)))
        when = draw.choice(("succeeded", "ended"))
        adder = draw.choice(("member", "mender"))
        stages[f"stage {place}"] = Stage(members, late, adder, draw.random() < 0.6, after, when)
    return stages | {REPORT: Stage(1, 0, "member", is_atomic=True, after=sorted(stages), when="succeeded")}


def begin(key: int, draw: Random) -> None:
    """Begin a workflow, unless many members are left; sometimes for nothing.

    Raises:
        django.db.Error: the database went away, perhaps after the commit.
    """
    from django_pgqueue import workflow
    from tests.chaos.models import Flow

    if _members_left() > MOST_LEFT:
        return
    stages = drawn(draw)
    with transaction.atomic():
        with workflow(f"flow {key}") as new:
            for name, stage in stages.items():
                calls = [_call(key, name, number, stages, draw) for number in range(stage.members - stage.late)]
                new.add_many(calls, after=stage.after, when=stage.when, name=name, sealed=stage.is_sealed)
        Flow.objects.create(
            key=key,
            workflow_id=new.handle.id,
            stages={name: asdict(stage) for name, stage in stages.items()},
            to_seal=[name for name, stage in stages.items() if not stage.is_sealed],
        )
        if draw.random() < 0.1:
            transaction.set_rollback(True)


def _call(key: int, name: str, number: int, stages: dict[str, Stage], draw: Random) -> Any:
    from tests.chaos import tasks

    stage = stages[name]
    before = {one: stages[one].members for one in stage.after}
    adds = stage.late if stage.adder == "member" and number == 0 else 0
    task = tasks.step if stage.is_atomic or adds else tasks.loose_step
    options: dict[str, Any] = {"priority": draw.randint(-1, 1)}
    if draw.random() < 0.05:
        options["delay"] = draw.uniform(0.1, 2)
    failures = draw.choice((1, 2)) if draw.random() < 0.03 else 0
    late = [stage.members - adds, stage.members]
    return task.using(**options).bind(key, name, number, before, {"failures": failures, "late": late})


def _members_left() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pgqueue_jobs WHERE queue = %s", [QUEUE])
        return int(cursor.fetchone()[0])


# What the tasks do


def do_step(key: int, stage: str, number: int, before: dict[str, int], how: dict[str, Any]) -> None:
    """Count the rows of members that are to have ended before, write one, and add the late members.

    Args:
        how: ``failures``: how many attempts fail; ``late``: the first number to add, and the one behind the last.
    """
    from django_pgqueue import current_job, current_workflow
    from tests.chaos.models import Step
    from tests.chaos.tasks import step

    if current_job().attempt <= how.get("failures", 0):
        raise RuntimeError("not yet")
    missing = 0
    for name, expected in before.items():
        missing += expected - Step.objects.filter(flow=key, stage=name).values("number").distinct().count()
    Step.objects.create(flow=key, stage=stage, number=number, missing=missing)
    if late := range(*how.get("late", (0, 0))):
        current_workflow().add_many([step.bind(key, stage, one, before, {}) for one in late])


def mend() -> None:
    """Add what is late and seal; retry dead members."""
    from django_pgqueue import jobs, workflows
    from django_pgqueue.models import DeadJob
    from tests.chaos.models import Flow
    from tests.chaos.tasks import step

    for key in list(Flow.objects.exclude(to_seal=[]).values_list("key", flat=True)[:20]):
        with transaction.atomic():
            flow = Flow.objects.select_for_update().get(key=key)
            handle = workflows.get(flow.workflow_id)
            for name in flow.to_seal:
                stage = Stage(**flow.stages[name])
                before = {one: flow.stages[one]["members"] for one in stage.after}
                late = range(stage.members - stage.late, stage.members)
                handle.add_many([step.bind(key, name, one, before, {}) for one in late], stage=name)
                handle.seal(name)
            flow.to_seal = []
            flow.save()
    if dead := list(DeadJob.objects.filter(queue=QUEUE).values_list("id", flat=True)[:100]):
        jobs.retry(dead, by="mender")


# Facts


@dataclass(slots=True)
class Begun:
    """A workflow that was begun, and its state at the end."""

    key: int
    stages: dict[str, Stage]
    status: str


@dataclass
class FlowFacts:
    """Everything that the checks of workflows judge by."""

    begun: dict[int, Begun] = field(default_factory=dict)
    steps: Counter[tuple[int, str, int]] = field(default_factory=Counter)
    early: list[tuple[int, str, int, int]] = field(default_factory=list)  # key, stage, number, rows that it missed

    def told(self) -> str:
        """Say how much of everything there was, for people."""
        stages = [stage for one in self.begun.values() for stage in one.stages.values()]
        return (
            f"{len(self.begun):,} of {len(stages):,} stages, {sum(stage.members for stage in stages):,} members of "
            f"which {sum(stage.late for stage in stages):,} were added later; "
            f"{self.steps.total() - len(self.steps):,} ran again"
        )


def gather_flows(database: psycopg.Connection) -> FlowFacts:
    begun = [
        Begun(key, {name: Stage(**one) for name, one in json.loads(stages).items()}, status)
        for key, stages, status in database.execute(BEGUN).fetchall()
    ]
    rows = database.execute("SELECT flow, stage, number, missing FROM chaos_step").fetchall()
    return FlowFacts(
        {one.key: one for one in begun},
        Counter((key, stage, number) for key, stage, number, _ in rows),
        [row for row in rows if row[3]],
    )


BEGUN = """
SELECT flow.key, flow.stages::text, COALESCE(workflow.status, 'gone')
FROM chaos_flow AS flow
LEFT JOIN pgqueue_workflows AS workflow ON workflow.id = flow.workflow_id
"""


# Checks


def every_member_of_a_workflow_did_its_work(ledger: "Ledger") -> Breaks:
    facts = ledger.flows
    for one in facts.begun.values():
        for name, stage in one.stages.items():
            missing = [number for number in range(stage.members) if not facts.steps[one.key, name, number]]
            if missing:
                yield None, f"workflow {one.key}: of {name} the members {missing[:10]} have done nothing"


def atomic_members_of_a_workflow_did_it_once(ledger: "Ledger") -> Breaks:
    facts = ledger.flows
    for (key, name, number), times in facts.steps.items():
        if times > 1 and key in facts.begun and _is_atomic(facts.begun[key].stages[name], number):
            yield None, f"workflow {key}: member {number} of {name} has taken effect {times} times"


def no_stage_opens_before_those_before_it_are_over(ledger: "Ledger") -> Breaks:
    for key, name, number, missing in ledger.flows.early:
        yield None, f"workflow {key}: member {number} of {name} has missed {missing} rows"


def no_workflow_is_stuck(ledger: "Ledger") -> Breaks:
    for one in ledger.flows.begun.values():
        if one.status != "succeeded":
            yield None, f"workflow {one.key} is {one.status}"


def no_workflow_runs_that_rolled_back(ledger: "Ledger") -> Breaks:
    for key in sorted({key for key, _, _ in ledger.flows.steps} - ledger.flows.begun.keys()):
        yield None, f"workflow {key} was rolled back, and has run"


def _is_atomic(stage: Stage, number: int) -> bool:
    is_adder = bool(stage.late) and stage.adder == "member" and number == 0
    return stage.is_atomic or is_adder or number >= stage.members - stage.late
