"""Any graph, any order of outcomes, deaths, retries, crashes, skips, kills, reruns: stages go by the rules."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_pgqueue import migrations, workflow
from django_pgqueue.exceptions import InvalidWorkflow
from django_pgqueue.jobs import ack, retry
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.stages import move_slices, sweep_stages
from django_pgqueue.models import DeadJob, Job, Stage, StageEdge
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import DeathReason
from django_pgqueue.workflows.advance import advance, ends_in
from tests.app.tasks import noop

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS = 1, 2


@st.composite
def graphs(draw) -> list[tuple[int, list[int], str, bool]]:
    """Draw stages: the number of members, the stages before, when it opens, whether it collects."""
    stages = []
    for number in range(draw(st.integers(1, 5))):
        before = draw(st.lists(st.integers(0, number - 1), max_size=2, unique=True)) if number else []
        when = draw(st.sampled_from(["succeeded", "succeeded", "ended", "died"]))
        stages.append((draw(st.integers(0, 3)), before, when, draw(st.booleans())))
    return stages


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["succeed", "succeed", "succeed", "die", "crash", "retry", "sweep", "skip", "kill", "rerun"]),
        st.integers(0, 4),
        st.sampled_from(WORKERS),
    ),
    max_size=25,
)


class Story:
    """A workflow that is driven by hand, and what its stages were at the last look."""

    def __init__(self, queue, stages, on_death) -> None:
        self.queue = queue
        self.seen: dict[int, str] = {}
        with workflow("any", on_death=on_death, keep_calls=True) as flow:
            for number, (members, before, when, collects) in enumerate(stages):
                after = [str(one) for one in before]
                flow.add_many([noop.bind()] * members, name=str(number), after=after, when=when, collect=collects)
        self.handle = flow.handle

    def end(self, fate, worker_id, *, looks=True) -> bool:
        """Let one job end; return whether there was one to claim."""
        jobs = claim(self.queue, "default", limit=1, worker_id=worker_id)
        details = {"reason": DeathReason.EXHAUSTED, "error": {"kind": "failed"}} if fate is Fate.DIED else {}
        outcomes = [Outcome(job, fate, **details) for job in jobs]
        with self.queue.transaction():
            ack.receipt(self.queue, outcomes, ack.send(self.queue, outcomes))
            if looks and (ends := dict(ends_in(outcomes))):
                advance(self.queue, ends, [one for one, died in ends.items() if died], worker_id=worker_id)
        return bool(jobs)

    def happen(self, event, number, worker_id) -> None:
        if event == "sweep":
            self.settle()
        elif event == "rerun":
            with contextlib.suppress(InvalidWorkflow):
                self.handle.rerun(str(number % Stage.objects.count()))
                self.seen.clear()
        elif event in ("skip", "kill"):
            stages = Stage.objects.order_by("id")
            name = stages[number % len(stages)].name
            self.handle.skip(name) if event == "skip" else self.handle.kill(stage=name)
        elif event == "retry":
            retry(list(DeadJob.objects.exclude(reason="killed").values_list("id", flat=True)[:1]))
        else:
            self.end(Fate.DIED if event == "die" else Fate.SUCCEEDED, worker_id, looks=event != "crash")

    def settle(self) -> None:
        """Do what maintenance does, until there is nothing left to do."""
        before = None
        while (found := sweep_stages(self.queue).found) != before:
            before = found
            while move_slices(self.queue).moved:
                pass

    def check(self) -> None:
        stages = {stage.pk: stage for stage in Stage.objects.all()}
        outcomes: dict[int, list[str | None]] = {one: [] for one in stages}
        for edge in StageEdge.objects.all():
            assert (edge.outcome is None) == (stages[edge.from_id].status in ("blocked", "open")) or (
                edge.outcome == "died" and stages[edge.to_id].opens_when == "died"
            )
            outcomes[edge.to_id].append(edge.outcome)
        for job in Job.objects.all():
            is_blocked = stages[job.stage_id].status == "blocked"
            assert (job.status == "blocked") == is_blocked or stages[job.stage_id].status == "skipped"
            assert stages[job.stage_id].status != "ended" or job.errors, "only what was retried lives on in it"
        for stage_id, stage in stages.items():
            before, opens_when = outcomes[stage_id], stage.opens_when
            if stage.status in ("open", "ended"):
                assert None not in before or opens_when == "died"
                assert opens_when != "succeeded" or set(before) <= {"succeeded"}
                assert opens_when != "died" or not before or "died" in before
            order = ["blocked", "open", "ended", "skipped"]
            assert order.index(stage.status) >= order.index(self.seen.get(stage_id, "blocked")), "it never goes back"
            self.seen[stage_id] = stage.status


@pytest.fixture(params=["", "one stage at a time"])
def _bound(request, sql):
    """Let one call decide about one stage only, in place of 500, and leave the others to maintenance."""
    file = Path(migrations.__file__).parent / "sql" / "pgqueue_settle_stage.sql"
    text = file.read_text().replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
    assert text.count(":= 500;") == 1
    if request.param:
        sql(text.replace(":= 500;", ":= 1;"))
    yield
    if request.param:
        sql(text)


@pytest.mark.usefixtures("_bound")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stages=graphs(), events=EVENTS, on_death=st.sampled_from(["wait", "stop", "go_on"]))
def test_stages_open_and_close_as_the_rules_say(queue, stages, events, on_death):
    story = Story(queue, stages, on_death)
    story.check()
    for event in events:
        story.happen(*event)
        story.check()
    story.settle()
    while story.end(Fate.SUCCEEDED, 1):
        story.settle()
        story.check()
    state = story.handle.state()
    is_waiting = on_death == "wait" and any(stage.dead for stage in state.stages if stage.status == "open")
    assert (state.status == "open") == is_waiting
    assert state.is_stuck == is_waiting
    if is_waiting:
        while story.handle.retry():
            while story.end(Fate.SUCCEEDED, 1):
                story.settle()
                story.check()
        assert story.handle.status() != "open"
    with queue.transaction():
        for table in ("jobs", "dead_jobs", "workflows", "stages", "stage_edges", "stage_results", "kept_calls"):
            queue.rows(f"WITH gone AS (DELETE FROM pgqueue_{table} RETURNING 1) SELECT count(*) FROM gone", {})
