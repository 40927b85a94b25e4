"""Workflows that have begun are added to, sealed, skipped, killed and retried."""

import pytest
from django.db import connection, transaction

from django_pgqueue import PREVIOUS, batch, chain, current_job, current_workflow, group, task, workflow, workflows
from django_pgqueue.exceptions import InvalidWorkflow, NoCurrentJob, StageClosed, WorkflowDoesNotExist
from django_pgqueue.jobs import kill, purge
from django_pgqueue.jobs.retry_with import retry_with
from django_pgqueue.keys import Keys
from django_pgqueue.models import DeadJob, Job, Stage, StageAddition, Workflow
from django_pgqueue.testing import as_job, run_jobs
from tests.app.models import Mark
from tests.app.tasks import die_unless, mark, record

pytestmark = pytest.mark.django_db


def labels() -> list[str]:
    return list(Mark.objects.order_by("id").values_list("label", flat=True))


@task
def spread(number: int) -> None:
    """Add as many members to the own stage, and one to that behind it."""
    mark(f"spread {number}")
    current = current_workflow()
    if number:
        current.add_many([spread.bind(0)] * number)
        current.add(record.bind("behind"), stage="behind")


@task
def begin_child(label: str, on_death: str = "wait") -> None:
    with workflow("child", child=True, on_death=on_death) as flow:
        flow.add(die_unless.bind(label))


@task
def read_context() -> list:
    return [current_workflow().context(), list(current_workflow().results("members"))]


# Adding


def test_members_add_members_to_their_own_stage_and_behind_it():
    with workflow("tree") as flow:
        first = flow.add(spread.bind(2), name="spread")
        flow.add_many([], after=first, name="behind")
    run_jobs()
    assert labels() == ["spread 2", "spread 0", "spread 0", "behind"]
    state = flow.handle.state()
    assert state.status == "succeeded"
    assert [(stage.members, stage.done) for stage in state.stages] == [(3, 3), (1, 1)]


def test_batch_is_filled_over_several_transactions_and_sealed():
    handle = batch([], then=record.bind("then"), sealed=False).enqueue()
    for letter in "ab":
        with transaction.atomic():
            handle.add(record.bind(letter), stage="members")
    assert len(handle.add_many([record.bind("c"), record.bind("d")], stage="members")) == 2
    run_jobs()
    assert labels() == ["a", "b", "c", "d"]
    assert handle.seal("members")
    assert not handle.seal("members")
    run_jobs()
    assert labels() == ["a", "b", "c", "d", "then"]
    assert handle.state().stage("members").members == 4


def test_sealed_stages_take_no_members_from_outside():
    handle = chain(record.bind("a"), record.bind("b")).enqueue()
    with pytest.raises(StageClosed, match="is sealed"):
        handle.add(record.bind("c"), stage="record")
    assert handle.state().stage("record").members == 1


@pytest.mark.parametrize("end", ["run", "kill", "skip"])
def test_stages_that_are_over_take_no_members(end):
    handle = batch([record.bind("a")], sealed=False).enqueue()
    if end == "run":
        handle.seal("members")
        run_jobs()
    elif end == "kill":
        handle.kill()
    else:
        handle.skip("members")
    with pytest.raises(StageClosed, match=r"takes no more members: it is (ended|skipped)"):
        handle.add(record.bind("b"), stage="members")
    assert not StageAddition.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("change", ["add", "seal", "skip", "kill", "retry"])
def test_transaction_that_does_not_see_what_stages_become_is_refused(change):
    """At REPEATABLE READ it may have begun before a stage opened or closed, and would strand its member."""
    handle = batch([die_unless.bind("dead")], sealed=False).enqueue()
    run_jobs(errors="collect")
    changes = {
        "add": lambda: handle.add(record.bind("late"), stage="members"),
        "seal": lambda: handle.seal("members"),
        "skip": lambda: handle.skip("members"),
        "kill": handle.kill,
        "retry": handle.retry,
    }
    with pytest.raises(InvalidWorkflow, match="at REPEATABLE READ"), transaction.atomic():
        connection.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        changes[change]()
    assert not Job.objects.exists()
    assert handle.state().is_stuck


def test_what_cannot_be_added_changes_nothing():
    handle = batch([record.bind("a")], sealed=False).enqueue()
    record.using(unique_key="k").enqueue("holder")
    before = Job.objects.count()
    for wrong in ([record], record.bind("b"), [record.using(database="other").bind("b")]):
        with pytest.raises(InvalidWorkflow):
            handle.add_many(wrong, stage="members")
    with pytest.raises(InvalidWorkflow, match="has its unique key"):
        handle.add_many([record.bind("b"), record.using(unique_key="k").bind("c")], stage="members")
    with pytest.raises(InvalidWorkflow, match="has no stage 'pages'"):
        handle.add(record.bind("b"), stage="pages")
    assert list(handle.add_many([], stage="members")) == []
    assert (Job.objects.count(), StageAddition.objects.count()) == (before, 0)


def test_current_workflow_is_that_of_a_member():
    with pytest.raises(NoCurrentJob):
        current_workflow()
    with as_job(), pytest.raises(WorkflowDoesNotExist, match="member of no workflow"):
        current_workflow()
    handle = chain(read_context.bind(), context={"feed": 7}).enqueue()
    assert handle.kill()
    batch([record.bind("a"), record.bind("b")], then=read_context.bind(), collect=True, context={"feed": 7}).enqueue()
    assert run_jobs()[-1].result == [{"feed": 7}, ["recorded a", "recorded b"]]


# Children


def test_child_keeps_the_stage_of_its_parent_open():
    handle = chain(begin_child.bind("cause"), record.bind("after")).enqueue()
    run_jobs(errors="collect")
    assert labels() == []
    child = Workflow.objects.exclude(id=handle.id).get()
    assert child.parent_stage_id == handle.state().stages[0].id
    Mark.objects.create(job_id=0, attempt=0, pid=0, label="cause")
    assert workflows.get(child.id).retry() == 1
    run_jobs()
    assert labels() == ["cause", "after"]
    assert handle.status() == "succeeded"


@pytest.mark.parametrize(("rule", "expected"), [("stop", "failed"), ("go_on", "succeeded"), ("wait", "open")])
def test_child_that_fails_counts_as_a_dead_member(rule, expected):
    handle = chain(begin_child.bind("cause", on_death="stop"), record.bind("after"), on_death=rule).enqueue()
    run_jobs(errors="collect")
    assert handle.status() == expected
    assert labels() == (["after"] if rule == "go_on" else [])
    if rule == "wait":
        assert handle.skip("begin_child")
        run_jobs()
        assert handle.status() == "succeeded"


def test_children_are_killed_with_their_parents():
    handle = chain(begin_child.bind("cause"), record.bind("after")).enqueue()
    run_jobs(errors="collect")
    assert handle.kill(by="anna")
    assert set(Workflow.objects.values_list("status", "ended_by")) == {("killed", "anna")}


@task
def begin_shared_child(key: str) -> bool:
    return group([die_unless.bind("cause")], child=True, unique_key=key).enqueue().created


@pytest.mark.parametrize("begin", [group, lambda calls, unique_key: chain(begin_shared_child.bind(unique_key))])
def test_child_with_the_key_of_a_workflow_that_its_stage_does_not_wait_for_is_refused(begin):
    begin([record.bind("a")], unique_key="k").enqueue()
    if begin is not group:
        run_jobs(errors="collect")
    handle = chain(begin_shared_child.using(max_attempts=1).bind("k"), record.bind("after")).enqueue()
    [refused] = run_jobs(task=begin_shared_child, errors="collect")
    assert "is no child of this stage, which would not wait for it" in str(refused.error)
    assert handle.state().is_stuck


def test_members_of_one_stage_share_a_child():
    handle = chain([begin_shared_child.bind("k")] * 2, record.bind("after")).enqueue()
    assert [run.result for run in run_jobs(errors="collect").succeeded] == [True, False]
    Mark.objects.create(job_id=0, attempt=0, pid=0, label="cause")
    assert workflows.get(unique_key="k").retry() == 1
    run_jobs()
    assert handle.status() == "succeeded"


def test_child_needs_a_member_for_its_parent():
    with pytest.raises(NoCurrentJob):
        group([record.bind("a")], child=True).enqueue()
    with as_job(), pytest.raises(WorkflowDoesNotExist):
        group([record.bind("a")], child=True).enqueue()
    assert not Workflow.objects.exists()


# Killing, skipping, retrying


def test_killed_workflow_opens_nothing_and_leaves_nothing_alive():
    handle = chain([record.bind("a"), record.bind("b")], [record.bind("c")] * 3).enqueue()
    assert handle.kill(by="anna")
    assert not handle.kill()
    assert not Job.objects.exists()
    assert sorted(DeadJob.objects.values_list("reason", "killed_by")) == [("killed", "anna")] * 2
    state = handle.state()
    assert (state.status, state.ended_by) == ("killed", "anna")
    assert [stage.status for stage in state.stages] == ["skipped"] * 2
    assert run_jobs() == ()


def test_skipped_stage_lets_those_behind_it_go_on():
    handle = chain(die_unless.bind("cause"), record.bind("b")).enqueue()
    run_jobs(errors="collect")
    assert handle.state().is_stuck
    assert handle.skip("die_unless", by="anna")
    assert not handle.skip("die_unless")
    run_jobs()
    assert labels() == ["b"]
    assert handle.status() == "succeeded"


def test_stage_is_skipped_before_it_opens():
    handle = chain(record.bind("a"), [record.bind("b")] * 2, record.bind("c")).enqueue()
    assert handle.skip("record 2")
    run_jobs()
    assert labels() == ["a", "c"] or labels() == ["c", "a"]
    assert handle.status() == "succeeded"


def test_members_of_an_open_stage_that_is_skipped_are_killed():
    handle = chain([record.bind("a")] * 2, record.bind("b")).enqueue()
    assert handle.skip("record", by="anna")
    assert DeadJob.objects.filter(reason="killed", killed_by="anna").count() == 2
    run_jobs()
    assert labels() == ["b"]


@pytest.mark.parametrize("on_death", ["wait", "stop", "go_on"])
def test_stage_that_is_killed_ends_its_branch_by_the_stop_rule(on_death):
    with workflow("w", on_death=on_death) as flow:
        first = flow.add_many([record.bind("a")] * 2, name="first")
        flow.add(record.bind("then"), after=flow.add(record.bind("next"), after=first), name="then")
        flow.add(record.bind("ended"), after=first, when="ended")
        flow.add(record.bind("died"), after=first, when="died")
        flow.add(record.bind("other"), after=flow.add(record.bind("branch")))
    assert flow.handle.kill(stage="first", by="anna")
    assert not flow.handle.kill(stage="first")
    assert sorted(DeadJob.objects.values_list("reason", "killed_by")) == [("killed", "anna")] * 2
    run_jobs()
    assert sorted(labels()) == ["branch", "died", "ended", "other"]
    state = flow.handle.state()
    assert (state.status, state.stage("first").killed_by) == ("failed", "anna")
    assert [state.stage(name).status for name in ("first", "record", "then")] == ["ended", "skipped", "skipped"]
    assert state.stage("then").killed_by is None


def test_stage_that_is_killed_is_over_when_its_last_member_has_ended():
    handle = batch([kill_own_stage.bind(), record.bind("a")], then=record.bind("b"), ended=record.bind("c")).enqueue()
    run_jobs()
    assert labels() == ["refused", "c"]
    state = handle.state()
    assert (state.status, state.stage("members").status, state.stage("then").status) == ("failed", "ended", "skipped")
    assert not handle.kill(stage="members")


@task
def kill_own_stage() -> None:
    """Kill the stage under way: the job that runs is only asked to stop, and the stage waits for it."""
    current = current_workflow()
    assert current.kill(stage="members")
    state = current.state()
    assert (state.status, state.stage("members").status, state.is_stuck) == ("open", "open", False)
    assert not current.skip("members")
    with pytest.raises(StageClosed, match="it is killed"):
        current.add(record.bind("more"))
    mark("refused")


def test_stage_is_killed_before_it_opens():
    with workflow("w", on_death="go_on") as flow:
        first = flow.add(record.bind("a"), name="first")
        second = flow.add_many([record.bind("b")] * 2, after=first, name="second")
        flow.add(record.bind("c"), after=second)
        flow.add(record.bind("d"), after=second, when="died")
    assert flow.handle.kill(stage="second", by="anna")
    assert DeadJob.objects.filter(reason="killed", killed_by="anna").count() == 2
    run_jobs()
    assert sorted(labels()) == ["a", "d"]
    state = flow.handle.state()
    stage = state.stage("second")
    assert (state.status, stage.status, stage.killed_by) == ("failed", "skipped", "anna")


def test_unsealed_stage_without_members_is_over_when_it_is_killed():
    handle = batch([], then=record.bind("a"), sealed=False).enqueue()
    assert handle.kill(stage="members")
    assert handle.status() == "failed"
    with pytest.raises(InvalidWorkflow, match="has no stage 'x'"):
        handle.kill(stage="x")


def test_dead_members_of_one_stage_are_retried():
    handle = group([die_unless.bind("cause")] * 3).enqueue()
    other = group([die_unless.bind("cause")]).enqueue()
    run_jobs(errors="collect")
    Mark.objects.create(job_id=0, attempt=0, pid=0, label="cause")
    assert handle.retry(stage="members", by="anna") == 3
    run_jobs()
    assert (handle.status(), other.status()) == ("succeeded", "open")
    assert handle.retry() == 0


def test_members_of_a_stage_that_was_killed_are_not_retried_with_the_others():
    with workflow("w") as flow:
        first = flow.add(die_unless.bind("cause"), name="first")
        flow.add(record.bind("b"), after=first, name="second")
    assert flow.handle.kill(stage="second")
    run_jobs(errors="collect")
    Mark.objects.create(job_id=0, attempt=0, pid=0, label="cause")
    assert flow.handle.retry() == 1
    run_jobs()
    assert (labels(), flow.handle.status()) == (["cause"], "failed")
    assert flow.handle.retry(stage="second") == 1


def allow(label: str) -> None:
    """Let ``die_unless`` of this label succeed."""
    Mark.objects.create(job_id=0, attempt=0, pid=0, label=label)


def test_members_of_a_stage_that_was_skipped_are_not_retried_with_the_others():
    with workflow("w") as flow:
        flow.add(die_unless.bind("cause"), name="first")
        flow.add(die_unless.bind("cause"), name="second")
    run_jobs(errors="collect")
    assert flow.handle.skip("first")
    allow("cause")
    assert flow.handle.retry() == 1
    run_jobs()
    assert flow.handle.status() == "succeeded"
    assert flow.handle.retry() == 0
    assert flow.handle.retry(stage="first") == 1


def test_dead_members_of_a_workflow_that_was_killed_stay_dead():
    handle = chain([die_unless.bind("cause"), record.bind("a")], record.bind("b")).enqueue()
    run_jobs(errors="collect")
    handle.kill()
    assert handle.retry() == 0
    assert handle.retry(stage="die_unless") == 1


@pytest.mark.parametrize("rule", ["stop", "go_on"])
def test_dead_members_of_a_stage_that_has_ended_are_retried(rule):
    handle = chain([die_unless.bind("cause")], record.bind("b"), on_death=rule).enqueue()
    run_jobs(errors="collect")
    assert handle.state().is_finished
    allow("cause")
    assert handle.retry() == 1
    assert [run.result for run in run_jobs()] == ["cause"]


def test_purged_member_counts_as_done():
    handle = chain(die_unless.bind("cause"), record.bind("b")).enqueue()
    run_jobs(errors="collect")
    purge(list(DeadJob.objects.values_list("id", flat=True)))
    run_jobs()
    assert labels() == ["b"]
    assert handle.status() == "succeeded"


def test_blocked_member_that_is_killed_counts_as_dead():
    handle = chain(record.bind("a"), [record.bind("b"), record.bind("c")], record.bind("d")).enqueue()
    blocked = Job.objects.filter(status="blocked").order_by("id")
    kill([blocked[0].id], by="anna")
    run_jobs()
    assert labels() == ["a", "c"]
    assert handle.state().is_stuck


def test_member_may_kill_its_own_workflow():
    handle = chain(kill_own.bind(), record.bind("b")).enqueue()
    run_jobs(errors="collect")
    assert handle.status() == "killed"
    assert labels() == []


@task
def kill_own() -> None:
    assert current_workflow().kill(by=f"job {current_job().id}")


# Keys


def test_open_workflow_with_the_key_is_returned():
    first = chain(record.bind("a"), unique_key="import:7").enqueue()
    second = chain(record.bind("b"), unique_key="import:7").enqueue()
    assert (first.created, second.created, second == first) == (True, False, True)
    assert workflows.get(unique_key="import:7") == first
    run_jobs()
    assert labels() == ["a"]
    with pytest.raises(WorkflowDoesNotExist, match="import:7"):
        workflows.get(unique_key="import:7")
    assert chain(record.bind("b"), unique_key="import:7").enqueue().created


def test_stage_ids_are_made_of_workflow_number_and_collecting():
    with workflow("ids") as flow:
        flow.add(record.bind("a"), name="a")
        flow.add(record.bind("b"), name="b", collect=True)
    stages = list(Stage.objects.order_by("id"))
    assert [(stage.workflow_id, stage.number, stage.collects) for stage in stages] == [
        (flow.handle.id, 0, False),
        (flow.handle.id, 1, True),
    ]
    assert str(stages[0]) == f"a of workflow {flow.handle.id}"


# Retrying before a stage opens


@task
def give(value: str) -> str:
    mark(f"give {value}")
    return value


@task
def take(value: str | None) -> None:
    mark(f"take {value}")


def test_dead_member_of_a_blocked_stage_is_blocked_again_when_it_is_retried():
    handle = chain(record.bind("a"), [record.bind("b"), record.bind("c")], record.bind("d")).enqueue()
    blocked = Job.objects.filter(status="blocked").order_by("id").first()
    kill([blocked.id])
    assert handle.retry() == 1
    assert Job.objects.get(pk=blocked.id).status == "blocked"
    run_jobs()
    assert labels() == ["a", "b", "c", "d"]


def test_dead_member_of_a_blocked_stage_that_is_retried_with_other_arguments_waits_for_it():
    chain(record.bind("a"), record.bind("b")).enqueue()
    kill(list(Job.objects.filter(status="blocked").values_list("id", flat=True)))
    dead = DeadJob.objects.get()
    new = retry_with(dead.id, record, ("c",), {}, keys=Keys(), queue="default", priority=0, form="form", by="anna")
    assert Job.objects.get(pk=new.id).status == "blocked"
    run_jobs()
    assert labels() == ["a", "c"]


@pytest.mark.parametrize("is_open", [False, True])
def test_member_that_died_before_its_stage_opened_gets_the_result_before_it_when_it_is_retried(is_open):
    handle = chain(give.bind("a"), take.bind(PREVIOUS)).enqueue()
    kill(list(Job.objects.filter(status="blocked").values_list("id", flat=True)))
    if is_open:
        run_jobs()
        assert handle.state().is_stuck
    assert handle.retry() == 1
    run_jobs()
    assert labels() == ["give a", "take a"]
    assert handle.status() == "succeeded"


@pytest.mark.parametrize("is_open", [False, True])
def test_member_that_died_before_its_stage_opened_gets_the_result_also_with_other_arguments(is_open):
    handle = chain(give.bind("a"), take_two.bind(PREVIOUS, "x")).enqueue()
    kill(list(Job.objects.filter(status="blocked").values_list("id", flat=True)))
    if is_open:
        run_jobs()
        assert handle.state().is_stuck
    dead = DeadJob.objects.get()
    retry_with(dead.id, take_two, (None, "y"), {}, keys=Keys(), queue="default", priority=0, form="form", by="anna")
    run_jobs()
    assert labels() == ["give a", "take a y"]
    assert handle.status() == "succeeded"


@task
def take_two(value: str, other: str) -> None:
    record.func(f"take {value} {other}")


# Children of stages that are skipped, and of late workflows


def test_children_of_a_stage_that_is_killed_are_killed():
    handle = chain(begin_child.bind("cause"), record.bind("behind")).enqueue()
    run_jobs(errors="collect")
    assert handle.kill(stage="begin_child", by="anna")
    run_jobs()
    assert list(Workflow.objects.order_by("id").values_list("status", "ended_by")) == [
        ("failed", ""),
        ("killed", "anna"),
    ]
    assert labels() == []


def test_children_of_a_stage_that_is_skipped_are_killed():
    handle = chain(begin_child.bind("cause"), record.bind("behind")).enqueue()
    run_jobs(errors="collect")
    assert handle.skip("begin_child", by="anna")
    run_jobs()
    assert list(Workflow.objects.order_by("id").values_list("status", "ended_by")) == [
        ("succeeded", ""),
        ("killed", "anna"),
    ]
    assert labels() == ["behind"]


def test_children_of_a_stage_with_whose_skip_a_workflow_fails_are_killed():
    with workflow("parent", on_death="stop") as flow:
        flow.add(die_unless.bind("dead"))
        flow.add(begin_child.bind("cause"))
    run_jobs(errors="collect")
    assert flow.handle.skip("begin_child", by="anna")
    assert list(Workflow.objects.order_by("id").values_list("status", "ended_by")) == [
        ("failed", ""),
        ("killed", "anna"),
    ]


@task
def give_and_add(value: str) -> str:
    current_workflow().add(take.bind("other"), stage="take")
    return value


def test_members_that_are_added_keep_their_arguments_beside_one_that_takes_a_result():
    chain(give_and_add.bind("a"), take.bind(PREVIOUS)).enqueue()
    run_jobs()
    assert labels() == ["take a", "take other"]


@task
def take_any(value: str | None, other: str | None = None) -> None:
    record.func(f"take {value} {other}")


@task
def add_take_any(value: str | None, named: dict) -> str:
    current_workflow().add(take_any.bind(*([] if "value" in named else [value]), **named), stage="take_any")
    return "result"


@pytest.mark.parametrize(
    ("call", "value", "named", "argument"),
    [
        (take_any.bind(PREVIOUS), None, {}, "1"),
        (take_any.bind("a", PREVIOUS), "b", {"other": None}, None),
        (take_any.bind("a", other=PREVIOUS), "b", {"other": None}, "other"),
        (take_any.bind(PREVIOUS, other=PREVIOUS), None, {"other": None}, "1, other"),
        (take_any.bind(PREVIOUS), "b", {"other": None}, None),
        (take_any.bind(PREVIOUS), None, {"value": None}, None),
        (take_any.bind("a"), None, {}, None),
    ],
)
def test_none_is_not_added_where_it_would_become_the_result_before_it(call, value, named, argument):
    chain(add_take_any.using(max_attempts=1).bind(value, named), call).enqueue()
    [added, *_] = run_jobs(errors="collect")
    if argument:
        assert f"The argument {argument} of <Call" in str(added.error)
        assert labels() == []
    else:
        value = None if "value" in named else value
        assert f"take {value} None" in labels()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_workflow_goes_by_no_outbox(outbox):
    """A task with atomic=True does, and begins it."""
    flow = batch([record.bind("a")], sealed=False)
    begins = r"Workflows go by no outbox: this one is on 'default', inside atomic\(\) on 'other'\."
    with transaction.atomic(using=outbox), pytest.raises(InvalidWorkflow, match=begins):
        flow.enqueue()
    handle = flow.enqueue()
    with transaction.atomic(using=outbox), pytest.raises(InvalidWorkflow, match=r"on_commit\(…, using='other'\)"):
        handle.add(record.bind("b"), stage="members")
    with transaction.atomic(using=outbox), transaction.atomic():
        handle.add(record.bind("c"), stage="members")
    assert [job.args for job in Job.objects.order_by("id")] == [["a"], ["c"]]


@task
def add_none_to_own_stage(value: str) -> None:
    current_workflow().add(take_any.bind(None))


def test_none_stays_where_the_stage_is_open():
    chain(give.bind("a"), add_none_to_own_stage.bind(PREVIOUS)).enqueue()
    run_jobs()
    assert labels() == ["give a", "take None None"]
