"""State, results and waiting, by handles of workflows."""

import datetime as dt
import threading

import pytest
from asgiref.sync import async_to_sync
from django.db import connection

from django_pgqueue import WorkflowHandle, batch, chain, group, workflow, workflows
from django_pgqueue.exceptions import InvalidOption, InvalidWorkflow, WorkflowDoesNotExist
from django_pgqueue.models import StageResult
from django_pgqueue.testing import assert_enqueued, immediate, run_jobs
from django_pgqueue.workflows import handle as module
from tests.app.models import Mark
from tests.app.tasks import add, arecord, record
from tests.app.tasks import fail as fail_task
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.django_db


def test_state_tells_all_of_it():
    deadline = dt.timedelta(hours=1)
    with workflow("import", unique_key="import:1", on_death="stop", deadline=deadline, context={"feed": 1}) as flow:
        pages = flow.add_many([add.bind(1), add.bind(2)], name="pages", collect=True)
        flow.add(record.bind("index"), after=pages, name="index", when="ended")
        flow.add_many([], name="later", sealed=False)
    state = flow.handle.state()
    assert (state.name, state.unique_key, state.on_death, state.context) == ("import", "import:1", "stop", {"feed": 1})
    assert state.deadline_at - state.begun_at == deadline
    assert (state.status, state.ended_at, state.parent_stage_id, state.ended_by) == ("open", None, None, "")
    assert not state.is_finished
    first, second, third = state.stages
    assert (first.name, first.status, first.members, first.live, first.dead, first.done) == (
        "pages",
        "open",
        2,
        2,
        0,
        0,
    )
    assert (first.collects, first.is_sealed, first.after) == (True, True, ())
    assert (second.name, second.status, second.opens_when, second.after) == ("index", "blocked", "ended", ("pages",))
    assert (third.members, third.is_sealed) == (0, False)
    assert state.stage("index") == second
    with pytest.raises(KeyError, match=r"no stage 'nowhere': it has \['pages', 'index', 'later'\]"):
        state.stage("nowhere")
    run_jobs()
    first = flow.handle.state().stages[0]
    assert (first.status, first.live, first.done) == ("ended", 0, 2)
    assert first.opened_at < first.ended_at


def test_handles_are_equal_by_id_and_database():
    handle = group([record.bind("a")]).enqueue()
    assert handle == workflows.get(handle.id) == workflows.get(str(handle.id))
    assert handle == WorkflowHandle(handle.id, "other", "default")
    assert (handle.created, workflows.get(handle.id).created) == (True, False)


def test_what_is_no_workflow():
    with pytest.raises(WorkflowDoesNotExist, match="There is no workflow 17"):
        workflows.get(17).state()
    with pytest.raises(WorkflowDoesNotExist):
        workflows.get(17).status()
    with pytest.raises(InvalidOption, match="whole number"):
        workflows.get("abc")
    with pytest.raises(InvalidOption, match="give one of them"):
        workflows.get(17, unique_key="k")
    with pytest.raises(InvalidWorkflow, match="has no stage 'members'"):
        workflows.get(17).add(record.bind("a"), stage="members")
    assert not workflows.get(17).kill()
    assert workflows.get(17).retry() == 0


@pytest.mark.parametrize("number", [2**47 - 1, 2**48 + 1, 1 - 2**47, 2**63, 2**70])
def test_id_that_no_workflow_can_have_names_none(number):
    group([record.bind("a")]).enqueue()
    with pytest.raises(WorkflowDoesNotExist, match=f"There is no workflow {number}: ids are below 140737488355327"):
        workflows.get(number)


@pytest.mark.parametrize("number", [2**47 - 2, 0, -1, 2 - 2**47])
def test_id_that_is_just_in_range(number):
    handle = workflows.get(number)
    with pytest.raises(InvalidWorkflow, match="has no stage 'members'"):
        handle.add(record.bind("a"), stage="members")
    assert not handle.kill()
    assert handle.retry() == 0


def test_results_come_in_slices():
    handle = batch([add.bind(1)], collect=True, sealed=False).enqueue()
    stage_id = handle.state().stages[0].id
    numbers = range(2, 2503)
    StageResult.objects.bulk_create(StageResult(job_id=10**9 + n, stage_id=stage_id, result=n) for n in numbers)
    run_jobs()
    assert list(handle.results("members")) == [1, *numbers]
    assert list(handle.results(stage_id)) == [1, *numbers]


def test_results_are_those_of_a_stage_that_collects():
    handle = group([add.bind(1)]).enqueue()
    with pytest.raises(InvalidWorkflow, match="does not collect results"):
        handle.results("members")


def test_waiting_ends_with_the_workflow():
    handle = chain(record.bind("a"), record.bind("b")).enqueue()
    with pytest.raises(TimeoutError, match=rf"Workflow {handle.id} has not ended within 0.05 s"):
        handle.wait(0.05)
    run_jobs()
    assert handle.wait(10).status == "succeeded"
    for wrong in (0, -1, "soon"):
        with pytest.raises(InvalidOption, match="timeout"):
            handle.wait(wrong)


@pytest.mark.parametrize("wait", [WorkflowHandle.wait, async_to_sync(WorkflowHandle.await_end)])
def test_workflow_that_ends_after_the_look_before_the_last_pause_is_not_too_late(wait, monkeypatch):
    handle = chain(record.bind("a")).enqueue()
    status = WorkflowHandle.status

    def look(of: WorkflowHandle) -> str:
        seen = status(of)
        run_jobs()
        return seen

    monkeypatch.setattr(WorkflowHandle, "status", look)
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 1)
    assert wait(handle, 0.01).status == "succeeded"


@pytest.mark.django_db(transaction=True)
def test_async_callers_do_all_of_it():
    async def story():
        handle = await chain(add.bind(1), arecord.bind("a")).aenqueue()
        assert (await handle.astatus(), (await handle.astate()).status) == ("open", "open")
        assert await workflows.aget(handle.id) == handle
        with pytest.raises(TimeoutError):
            await handle.await_end(0.02)
        return handle

    handle = async_to_sync(story)()
    elsewhere = threading.Thread(target=run_elsewhere)
    elsewhere.start()

    async def end():
        return await handle.await_end(PATIENCE_SECONDS)

    assert async_to_sync(end)().status == "succeeded"
    elsewhere.join(PATIENCE_SECONDS)
    assert list(Mark.objects.values_list("label", flat=True)) == ["a"]


def run_elsewhere() -> None:
    try:
        run_jobs()
    finally:
        connection.close()


def test_async_results():
    handle = group([add.bind(n) for n in range(3)], collect=True).enqueue()
    run_jobs()

    async def read() -> list:
        return [result async for result in handle.aresults("members")]

    assert async_to_sync(read)() == [0, 1, 2]


# In tests of projects


def test_members_are_enqueued_for_assertions():
    chain(record.bind("a"), record.bind("b")).enqueue()
    assert_enqueued(record.bind("a"))
    assert assert_enqueued(record.bind("b")).status == "blocked"


def test_immediate_mode_runs_the_whole_graph():
    with immediate():
        handle = batch([record.bind("a"), record.bind("b")], then=record.bind("then")).enqueue()
        assert handle.status() == "succeeded"
    assert Mark.objects.count() == 3


def test_time_travel_reaches_delayed_members_and_deadlines():
    delayed = record.using(delay=dt.timedelta(hours=2)).bind("late")
    handle = chain(record.bind("a"), delayed, deadline=dt.timedelta(hours=3)).enqueue()
    run_jobs(until=dt.timedelta(hours=1))
    assert handle.state().stages[1].status == "open"
    run_jobs(until=dt.timedelta(hours=2, minutes=1))
    assert handle.status() == "succeeded"


def test_failing_member_raises_in_tests():
    chain(fail_task.using(max_attempts=1).bind("reason")).enqueue()
    with pytest.raises(ValueError, match="reason"):
        run_jobs()
