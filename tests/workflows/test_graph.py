"""Chains, groups, batches and graphs, from their declaration to the end of the last stage."""

import pytest

from django_pgqueue import PREVIOUS, Limit, Unique, batch, chain, group, task, workflow
from django_pgqueue.exceptions import InvalidArguments, InvalidOption, InvalidWorkflow
from django_pgqueue.models import Job, Stage, StageEdge, StageResult, Workflow
from django_pgqueue.states import Status
from django_pgqueue.testing import run_jobs
from tests.app.models import Mark
from tests.app.tasks import add, fail, record

pytestmark = pytest.mark.django_db


def labels() -> list[str]:
    return list(Mark.objects.order_by("id").values_list("label", flat=True))


def nothing_is_there() -> bool:
    return not any(model.objects.exists() for model in (Job, Workflow, Stage, StageEdge, StageResult))


def test_chain_runs_one_call_after_the_other():
    handle = chain(record.bind("a"), record.bind("b"), record.bind("c")).enqueue()
    assert sorted(Job.objects.values_list("status", flat=True)) == [Status.BLOCKED, Status.BLOCKED, Status.QUEUED]
    run_jobs()
    assert labels() == ["a", "b", "c"]
    state = handle.state()
    assert (state.status, [stage.status for stage in state.stages]) == ("succeeded", ["ended"] * 3)


def test_chain_passes_results_on():
    chain(add.bind(1, 2), add.bind(PREVIOUS, 10), add.bind(100, second=PREVIOUS)).enqueue()
    report = run_jobs()
    assert [run.result for run in report] == [3, 13, 113]


def test_list_in_a_chain_runs_side_by_side():
    handle = chain(record.bind("a"), [record.bind("b"), record.bind("c")], record.bind("d")).enqueue()
    run_jobs()
    assert labels() == ["a", "b", "c", "d"]
    assert [stage.members for stage in handle.state().stages] == [1, 2, 1]


def test_group_collects_results():
    handle = group([add.bind(number) for number in range(5)], collect=True).enqueue()
    run_jobs()
    assert list(handle.results("members")) == [0, 1, 2, 3, 4]
    assert handle.status() == "succeeded"


def test_batch_calls_then_once():
    handle = batch(
        [record.bind(letter) for letter in "abc"], then=record.bind("then"), died=record.bind("died")
    ).enqueue()
    run_jobs()
    assert labels() == ["a", "b", "c", "then"]
    assert {stage.name: stage.status for stage in handle.state().stages} == {
        "members": "ended",
        "then": "ended",
        "died": "skipped",
    }


def test_batch_calls_died_at_the_first_death():
    handle = batch(
        [fail.using(max_attempts=1).bind(), record.bind("a")], then=record.bind("then"), died=record.bind("died")
    )
    begun = handle.enqueue()
    run_jobs(errors="collect")
    assert labels() == ["no luck", "a", "died"]
    assert begun.state().is_stuck


def test_graph_opens_each_stage_when_those_before_it_are_over():
    with workflow("diamond") as flow:
        top = flow.add(record.bind("top"))
        left = flow.add(record.bind("left"), after=top, name="left")
        right = flow.add(record.bind("right"), after=top, name="right")
        flow.add(record.bind("bottom"), after=[left, right], name="bottom")
    run_jobs()
    assert labels() == ["top", "left", "right", "bottom"]
    assert flow.handle.state().stage("bottom").after == ("left", "right")


def test_stages_may_be_named_before_they_are_added():
    with workflow("backwards") as flow:
        flow.add(record.bind("second"), after="first", name="second")
        flow.add(record.bind("first"), name="first")
    run_jobs()
    assert labels() == ["first", "second"]


def test_stage_waits_once_for_one_that_is_given_twice():
    with workflow("twice") as flow:
        first = flow.add(record.bind("first"), name="first")
        flow.add(record.bind("second"), after=[first, "first"], name="second")
    assert StageEdge.objects.count() == 1
    run_jobs()
    assert labels() == ["first", "second"]


@pytest.mark.parametrize("number", [0, 1])
def test_empty_stages_are_over_when_they_open(number):
    handle = chain(*[[]] * number, [], record.bind("after"), [], []).enqueue()
    run_jobs()
    assert labels() == ["after"]
    assert handle.status() == "succeeded"


def test_workflow_of_empty_stages_is_over_at_once():
    assert group([]).enqueue().status() == "succeeded"


def test_block_that_raises_begins_nothing():
    with pytest.raises(KeyError), workflow("broken") as flow:
        flow.add(record.bind("a"))
        raise KeyError
    assert nothing_is_there()
    with pytest.raises(InvalidWorkflow, match="has not begun"):
        _ = flow.handle


def test_workflow_that_has_begun_in_its_block_does_not_begin_at_the_end():
    with workflow("early") as flow:
        flow.add(record.bind("a"))
        handle = flow.enqueue()
    assert flow.handle == handle
    run_jobs()
    assert labels() == ["a"]


def test_handle_of_one_that_has_begun():
    flow = group([record.bind("a")])
    assert flow.enqueue() == flow.handle
    with pytest.raises(InvalidWorkflow, match="has begun already"):
        flow.enqueue()
    with pytest.raises(InvalidWorkflow, match="by its handle"):
        flow.add(record.bind("b"))


def test_circles_are_refused():
    with pytest.raises(InvalidWorkflow, match="wait for each other: 'a', 'b'"), workflow("circle") as flow:
        flow.add(record.bind("a"), name="a", after="b")
        flow.add(record.bind("b"), name="b", after="a")
        flow.add(record.bind("c"), name="c")
    assert nothing_is_there()


def test_stage_that_waits_for_itself_is_refused():
    with pytest.raises(InvalidWorkflow, match="wait for each other"), workflow("self") as flow:
        flow.add(record.bind("a"), name="a", after="a")


def test_unknown_stages_are_refused():
    with (
        pytest.raises(InvalidWorkflow, match=r"comes after 'b', which is no stage.*It has 'a'"),
        workflow("lost") as flow,
    ):
        flow.add(record.bind("a"), name="a", after="b")
    other = group([record.bind("a")])
    stage = other.add(record.bind("b"), name="b")
    with pytest.raises(InvalidWorkflow, match="no stage of the workflow"), workflow("lost") as flow:
        flow.add(record.bind("b"), name="b")
        flow.add(record.bind("a"), name="a", after=stage)
    assert nothing_is_there()


def test_names_are_made_and_checked():
    flow = group([record.bind("a")])
    assert [flow.add(record.bind("b")).name for _ in range(2)] == ["record", "record 3"]
    with pytest.raises(InvalidWorkflow, match="has a stage 'members' already"):
        flow.add(record.bind("c"), name="members")
    for name in ("", 3, "x" * 501):
        with pytest.raises(InvalidOption, match="name"):
            flow.add(record.bind("c"), name=name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "name"),
        ({"unique_key": ""}, "unique_key"),
        ({"on_death": "panic"}, "on_death is one of"),
        ({"deadline": 0}, "deadline"),
        ({"deadline": "soon"}, "deadline"),
        ({"child": 1}, "child is True or False"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(InvalidOption, match=message):
        group([record.bind("a")], **options)


def test_context_is_checked():
    with pytest.raises(InvalidWorkflow, match="JSON object"):
        group([], context=[1])
    with pytest.raises(InvalidArguments, match="context"):
        group([], context={"a": object()})


@pytest.mark.parametrize("given", [[1], [record], record.bind("a"), None])
def test_members_are_calls(given):
    with pytest.raises((InvalidWorkflow, TypeError)):
        group(given)


def test_add_takes_a_call():
    with pytest.raises(InvalidWorkflow, match=r"Write record\.bind\("):
        group([]).add(record)
    with pytest.raises(InvalidWorkflow, match="one call or more"):
        chain()
    with pytest.raises(InvalidOption, match="when is one of"):
        group([]).add(record.bind("a"), when="later")
    with pytest.raises(InvalidOption, match="sealed is True or False"):
        group([]).add_many([], sealed="no")


def test_workflow_without_stages_is_refused():
    with pytest.raises(InvalidWorkflow, match="has no stages"), workflow("nothing"):
        pass


def test_arguments_that_are_not_json_are_refused_before_anything_is_inserted():
    with pytest.raises(InvalidArguments), workflow("import") as flow:
        flow.add(record.bind("a"))
        flow.add(record.bind(object()))
    assert nothing_is_there()


@pytest.mark.parametrize(
    "calls",
    [
        lambda: [record.bind(PREVIOUS)],
        lambda: [[record.bind("a"), record.bind("b")], record.bind(PREVIOUS)],
        lambda: [record.bind("a"), [record.bind(PREVIOUS), record.bind("b")]],
    ],
)
def test_previous_is_of_one_for_one(calls):
    with pytest.raises(InvalidWorkflow, match="PREVIOUS is the result of one member"):
        chain(*calls())


def test_previous_is_of_no_stage_that_died():
    with pytest.raises(InvalidWorkflow, match="'record' opens when that before it has died"), workflow("w") as flow:
        flow.add(record.bind(PREVIOUS), after=flow.add(add.bind(1, 2)), when="died")
    assert nothing_is_there()


@task
def repeat(value: int | None) -> int | None:
    return value


def test_previous_is_none_where_there_is_no_result():
    with workflow("w", on_death="go_on") as flow:
        died = flow.add(fail.using(max_attempts=1).bind(), name="died")
        flow.add(repeat.bind(PREVIOUS), after=died, when="ended")
        skipped = flow.add(add.bind(1, 2), name="skipped")
        flow.add(repeat.bind(PREVIOUS), after=skipped)
    assert flow.handle.skip("skipped")
    report = run_jobs(errors="collect")
    assert [run.result for run in report if run.task == repeat.name] == [None, None]


def key_of_all(*values, **named) -> str:
    return f"{values}{named}"


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("unique", True),
        ("unique", "label"),
        ("unique", Unique(key_of_all)),
        ("limit", Limit(["label"], running=2)),
        ("limit", Limit(key_of_all)),
        ("fair", "label"),
        ("fair", key_of_all),
    ],
)
def test_keys_are_not_made_of_previous(option, given):
    keyed = record.using(**{option: given})
    with pytest.raises(InvalidWorkflow, match=rf"The key of {option} of .*record\.using\({option}_key=…\)"):
        chain(add.bind(1, 2), keyed.bind(PREVIOUS))
    with pytest.raises(InvalidWorkflow, match="not known yet"):
        chain(add.bind(1, 2), keyed.bind(label=PREVIOUS))
    chain(add.bind(1, 2), keyed.using(**{f"{option}_key": "k"}).bind(PREVIOUS)).enqueue()
    assert [run.result for run in run_jobs()] == [3, "recorded 3"]


@task
def add_all(*numbers: int, **named: int) -> int:
    return sum(numbers) + sum(named.values())


@pytest.mark.parametrize(("by", "call"), [("numbers", {}), ("named", {"one": PREVIOUS})])
def test_keys_are_not_made_of_previous_among_any_arguments(by, call):
    with pytest.raises(InvalidWorkflow, match="not known yet"):
        chain(add.bind(1, 2), add_all.using(unique=by).bind(*[] if call else [1, PREVIOUS], **call))


@pytest.mark.parametrize("limit", [Limit("first"), Limit()])
def test_keys_of_other_arguments_go_with_previous(limit):
    chain(add.bind(1, 2), add.using(limit=limit, unique="first", fair="first").bind(10, PREVIOUS)).enqueue()
    assert [run.result for run in run_jobs()] == [3, 13]


def test_members_on_another_database_are_refused():
    with pytest.raises(InvalidWorkflow, match="enqueued on 'other'"):
        chain(record.using(database="other").bind("a"))


def test_key_of_another_job_is_refused_and_nothing_is_made():
    holder = record.using(unique_key="k").enqueue("holder")
    with pytest.raises(InvalidWorkflow, match=rf"job {holder.id} has its unique key"), workflow("import") as flow:
        first = flow.add(record.bind("a"))
        flow.add(record.using(unique_key="k").bind("b"), after=first)
    assert list(Job.objects.values_list("id", flat=True)) == [holder.id]
    assert not Workflow.objects.exists()


def test_members_with_keys_of_their_own():
    handle = chain(
        record.using(unique_key="k").bind("a"),
        record.using(limit_key="l").bind("b"),
        record.using(fair_key="f").bind("c"),
        record.using(unique_key="m", expires=60).bind("d"),
    ).enqueue()
    run_jobs()
    assert labels() == ["a", "b", "c", "d"]
    assert handle.status() == "succeeded"


def test_rollback_takes_all_of_it(transactional_db):
    from django.db import transaction

    with pytest.raises(KeyError), transaction.atomic():
        chain(record.bind("a"), record.bind("b")).enqueue()
        raise KeyError
    assert nothing_is_there()
