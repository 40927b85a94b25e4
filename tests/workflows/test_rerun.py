"""Stages of a workflow that keeps its calls are run again, and all that come after them."""

import datetime as dt
import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import Error, connection, transaction
from django.db.models import F

from django_pgqueue import PREVIOUS, Limit, batch, chain, current_workflow, task, workflow, workflows
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.exceptions import InvalidOption, InvalidWorkflow, WorkflowDoesNotExist
from django_pgqueue.maintenance.stages import fail_late
from django_pgqueue.models import DeadJob, Job, KeptCall, Stage, StageAddition, StageEdge, StageResult, Workflow
from django_pgqueue.signals import job_enqueued
from django_pgqueue.testing import run_jobs
from django_pgqueue.workflows import rerun as module
from tests.app.models import Mark
from tests.app.tasks import die_unless, mark, record
from tests.support.waiting import eventually

pytestmark = pytest.mark.django_db


def labels() -> list[str]:
    """Return what has run since the last call."""
    found = list(Mark.objects.order_by("id").values_list("label", flat=True))
    Mark.objects.all().delete()
    return found


def allow(label: str) -> None:
    Mark.objects.create(job_id=0, attempt=0, pid=0, label=label)


@task
def count() -> int:
    """Return another number each time."""
    mark("count")
    return Mark.objects.filter(label="count").count()


@task
def total(before: int) -> None:
    mark(f"total {before} {list(current_workflow().results('count'))}")


@task
def spread(number: int) -> None:
    """Add as many members to the own stage, and one to that behind it."""
    mark(f"spread {number}")
    current = current_workflow()
    if number:
        current.add_many([spread.bind(0)] * number)
        current.add(record.bind("behind"), stage="behind")


@task
def begin_child(label: str) -> None:
    with workflow("child", child=True, on_death="stop", keep_calls=True) as flow:
        flow.add(die_unless.bind(label))


def three(**options):
    """Begin three stages in a row, and one beside them."""
    with workflow("three", keep_calls=True, **options) as flow:
        first = flow.add(record.bind("a"), name="a")
        second = flow.add_many([record.bind("b")] * 2, after=first, name="b")
        flow.add(record.bind("c"), after=second, name="c")
        flow.add(record.bind("side"), name="side")
    return flow.handle


def test_stage_and_all_after_it_run_again():
    handle = three()
    run_jobs()
    labels()
    before = set(Job.objects.values_list("id", flat=True))
    assert handle.rerun("b", by="anna") == 3
    state = handle.state()
    assert (state.status, state.ended_at) == ("open", None)
    assert [stage.status for stage in state.stages] == ["ended", "open", "blocked", "ended"]
    assert [stage.rerun_by for stage in state.stages] == [None, "anna", "anna", None]
    assert [(stage.members, stage.live) for stage in state.stages] == [(1, 0), (2, 2), (1, 1), (1, 0)]
    assert not before.intersection(Job.objects.values_list("id", flat=True))
    run_jobs()
    assert labels() == ["b", "b", "c"]
    assert handle.status() == "succeeded"
    assert handle.rerun(handle.state().stage("a").id) == 4
    run_jobs()
    assert labels() == ["a", "b", "b", "c"]


def test_workflow_that_failed_goes_on_from_the_stage_that_died():
    with workflow("w", on_death="stop", keep_calls=True) as flow:
        first = flow.add(record.bind("a"), name="a")
        second = flow.add(die_unless.bind("cause"), after=first, name="b")
        flow.add(record.bind("c"), after=second, name="c")
        flow.add(record.bind("alarm"), after=second, when="died", name="alarm")
    run_jobs(errors="collect")
    assert (labels(), flow.handle.status()) == (["a", "alarm"], "failed")
    allow("cause")
    assert flow.handle.rerun("b") == 3
    assert not DeadJob.objects.exists()
    run_jobs()
    assert labels() == ["cause", "cause", "c"] or labels() == []
    state = flow.handle.state()
    assert (state.status, state.stage("alarm").status) == ("succeeded", "skipped")


def test_stage_that_is_stuck_runs_again_and_not_only_its_dead_members():
    handle = batch([record.bind("a"), die_unless.bind("cause")], then=record.bind("b"), keep_calls=True).enqueue()
    run_jobs(errors="collect")
    assert (labels(), handle.state().is_stuck) == (["a"], True)
    allow("cause")
    assert handle.rerun("members") == 3
    run_jobs()
    assert labels()[-1] == "b"
    assert (handle.status(), DeadJob.objects.count(), Job.objects.count()) == ("succeeded", 0, 0)


def test_stages_after_it_see_the_results_of_the_last_run_only():
    handle = chain(count.bind(), total.bind(PREVIOUS), keep_calls=True).enqueue()
    run_jobs()
    handle.rerun("count")
    assert not StageResult.objects.exists()
    run_jobs()
    assert labels() == ["count", "total 1 [1]", "count", "total 2 [2]"]


def test_result_of_a_stage_that_does_not_run_again_stays():
    handle = chain(count.bind(), total.bind(PREVIOUS), keep_calls=True).enqueue()
    run_jobs()
    handle.rerun("total")
    run_jobs()
    assert labels() == ["count", "total 1 [1]", "total 1 [1]"]


def test_members_that_were_added_are_made_by_those_that_add_them():
    with workflow("tree", keep_calls=True) as flow:
        first = flow.add(spread.bind(2), name="spread")
        flow.add_many([], after=first, name="behind")
    run_jobs()
    assert labels() == ["spread 2", "spread 0", "spread 0", "behind"]
    assert flow.handle.rerun("behind") == 1
    run_jobs()
    assert labels() == ["behind"]
    assert flow.handle.rerun("spread") == 1
    run_jobs()
    assert labels() == ["spread 2", "spread 0", "spread 0", "behind"]
    assert [(stage.members, stage.done) for stage in flow.handle.state().stages] == [(3, 3), (1, 1)]


def test_members_that_other_code_has_added_are_made_again():
    handle = batch([], then=record.bind("then"), sealed=False, keep_calls=True).enqueue()
    handle.add_many([record.bind("a"), record.bind("b")], stage="members")
    handle.seal("members")
    run_jobs()
    labels()
    assert handle.rerun("members") == 3
    run_jobs()
    assert sorted(labels()) == ["a", "b", "then"]
    assert handle.state().stage("members").members == 2


def test_workflow_that_was_killed_goes_on():
    handle = three()
    handle.kill(by="anna")
    with pytest.raises(InvalidWorkflow, match=r"not over when it was ended, .*: name 'a', 'side' as well"):
        handle.rerun("b")
    with pytest.raises(InvalidWorkflow, match="name 'side' as well"):
        handle.rerun("a")
    assert handle.status() == "killed"
    assert handle.rerun("a", "side") == 5
    run_jobs()
    assert sorted(labels()) == ["a", "b", "b", "c", "side"]
    state = handle.state()
    assert (state.status, state.ended_by) == ("succeeded", "")


def late():
    """Begin three stages in a row, and one beside them, and let the deadline pass."""
    handle = three(deadline=600)
    an_hour = dt.timedelta(hours=1)
    Workflow.objects.update(begun_at=F("begun_at") - an_hour, deadline_at=F("deadline_at") - an_hour)
    assert fail_late(CallerConnection("default")) == 1
    run_jobs()
    Job.objects.all().delete()
    return handle


def test_workflow_that_was_late_goes_on_with_all_that_was_not_over():
    handle = late()
    with pytest.raises(InvalidWorkflow, match="name 'side' as well"):
        handle.rerun("a")
    handle.rerun("a", "side")
    run_jobs()
    assert (sorted(labels()), handle.status()) == (["a", "b", "b", "c", "side"], "succeeded")


def test_stages_that_were_over_when_the_workflow_was_killed_stay_as_they_are():
    handle = three()
    handle.skip("side")
    handle.kill(stage="b")
    run_jobs()
    handle.rerun("a")
    handle.kill()
    assert handle.rerun("a") == 4


def test_stage_that_was_killed_runs_again():
    handle = three()
    handle.kill(stage="a")
    run_jobs()
    assert (labels(), handle.status()) == (["side"], "failed")
    handle.rerun("a")
    run_jobs()
    assert labels() == ["a", "b", "b", "c"]
    state = handle.state()
    assert (state.status, state.stage("a").killed_by) == ("succeeded", None)


def test_stage_that_was_skipped_runs():
    handle = three()
    handle.skip("b")
    run_jobs()
    assert sorted(labels()) == ["a", "c", "side"]
    handle.rerun("b")
    run_jobs()
    assert labels() == ["b", "b", "c"]


def test_stage_before_it_that_is_not_over_is_waited_for():
    handle = three()
    handle.skip("b")
    with pytest.raises(InvalidWorkflow, match=r"'c' .* not ended"):
        handle.rerun("b")
    handle.kill(stage="c")
    assert handle.rerun("b") == 3
    assert handle.state().stage("b").status == "blocked"
    run_jobs()
    assert [label for label in labels() if label != "side"] == ["a", "b", "b", "c"]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ((), "name one"),
        (("x",), "has no stage 'x'"),
        (("a",), "'a' .* not ended"),
        (("b",), "'b' .* not opened yet"),
        (("side",), "'side' .* not ended"),
    ],
)
def test_what_cannot_run_again(stages, message):
    handle = three()
    before = list(Job.objects.order_by("id").values())
    with pytest.raises(InvalidWorkflow, match=message):
        handle.rerun(*stages)
    assert list(Job.objects.order_by("id").values()) == before


def test_only_workflows_that_keep_calls_run_again():
    handle = chain(record.bind("a")).enqueue()
    run_jobs()
    assert not KeptCall.objects.exists()
    with pytest.raises(InvalidWorkflow, match="keep_calls=True"):
        handle.rerun("record")
    with pytest.raises(WorkflowDoesNotExist):
        workflows.get(handle.id + 1).rerun("record")
    with pytest.raises(InvalidOption, match="keep_calls"):
        chain(record.bind("a"), keep_calls=1)


def test_number_of_members_is_limited(monkeypatch):
    handle = three()
    run_jobs()
    monkeypatch.setattr(module, "MOST_CALLS", 3)
    with pytest.raises(InvalidWorkflow, match="More than 3 members"):
        handle.rerun("a")
    assert handle.rerun("b") == 3


def test_workflow_of_which_calls_are_gone_does_not_run_again():
    handle = three()
    run_jobs()
    KeptCall.objects.filter(stage_id=handle.state().stage("c").id).delete()
    with pytest.raises(InvalidWorkflow, match="being removed by age"):
        handle.rerun("b")


def test_stage_without_members_has_nothing_to_run_again():
    handle = batch([], keep_calls=True).enqueue()
    with pytest.raises(InvalidWorkflow, match="have no members"):
        handle.rerun("members")


def test_stage_that_would_be_skipped_for_one_before_it_does_not_run_again():
    with workflow("w", on_death="stop", keep_calls=True) as flow:
        flow.add(record.bind("b"), after=flow.add(die_unless.bind("cause"), name="a"), name="b")
    run_jobs(errors="collect")
    with pytest.raises(InvalidWorkflow, match=r"'b' .* would be skipped"):
        flow.handle.rerun("b")
    assert (flow.handle.status(), Job.objects.count(), DeadJob.objects.count()) == ("failed", 0, 1)


def test_unique_key_of_a_member_is_taken_again():
    once = record.using(unique_key="b")
    handle = chain(record.using(unique_key="a").bind("a"), once.bind("b"), keep_calls=True).enqueue()
    run_jobs()
    labels()
    assert handle.rerun("record") == 2
    assert len(set(Job.objects.values_list("unique_key", flat=True)) - {None}) == 2
    run_jobs()
    assert labels() == ["a", "b"]
    other = once.enqueue("b")
    with pytest.raises(InvalidWorkflow, match=f"job {other.id} has the unique key"):
        handle.rerun("record")
    assert handle.status() == "succeeded"
    assert list(Job.objects.values_list("id", flat=True)) == [other.id]


def test_unique_key_of_the_workflow_is_held_by_one_that_is_open():
    handle = three(unique_key="k")
    run_jobs()
    other = three(unique_key="k")
    assert other != handle
    with transaction.atomic():
        with pytest.raises(InvalidWorkflow, match="another open workflow has its unique key"):
            handle.rerun("a")
        assert handle.status() == "succeeded"
    run_jobs()
    handle.rerun("a")
    assert three(unique_key="k") == handle


def test_deadline_that_has_passed_lies_as_far_ahead_as_at_the_start():
    handle = late()
    handle.rerun("a", "side")
    found = Workflow.objects.values_list("begun_at", "deadline_at").get()
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s - statement_timestamp()", [found[1]])
        [ahead] = cursor.fetchone()
    assert (found[1] - found[0] > dt.timedelta(hours=1), ahead <= dt.timedelta(minutes=10)) == (True, True)


def test_members_expire_as_late_as_at_the_start():
    handle = chain(record.using(expires=3600).bind("a"), keep_calls=True).enqueue()
    run_jobs()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_kept_calls SET call = call || jsonb_build_object('enqueued_at', now() - interval '1 day',"
            " 'expires_at', now() - interval '23 hours')"
        )
    handle.rerun("record")
    run_jobs()
    assert labels() == ["a", "a"]


def test_children_of_the_last_run_are_no_children_any_more():
    handle = chain(begin_child.bind("cause"), record.bind("b"), keep_calls=True).enqueue()
    run_jobs(errors="collect")
    assert handle.state().is_stuck
    allow("cause")
    handle.rerun("begin_child")
    assert Workflow.objects.filter(name="child", parent_stage_id=None).count() == 1
    run_jobs()
    assert labels()[-1] == "b"
    assert handle.status() == "succeeded"


def test_parent_goes_on_when_its_child_does():
    handle = chain(begin_child.bind("cause"), record.bind("b")).enqueue()
    run_jobs(errors="collect")
    assert handle.state().is_stuck
    allow("cause")
    workflows.get(Workflow.objects.get(name="child").pk).rerun("die_unless")
    assert not handle.state().is_stuck
    run_jobs()
    assert handle.status() == "succeeded"


@pytest.mark.parametrize("end", ["kill", "go_on"])
def test_child_that_is_rerun_after_its_parent_has_gone_on_goes_on_by_itself(end):
    handle = chain(begin_child.bind("cause"), record.bind("b"), on_death="go_on").enqueue()
    run_jobs(errors="collect")
    if end == "kill":
        handle = chain(begin_child.bind("cause"), record.bind("b")).enqueue()
        run_jobs(errors="collect")
        assert handle.kill()
    child = Workflow.objects.filter(name="child").latest("id")
    workflows.get(child.pk).rerun("die_unless")
    child.refresh_from_db()
    assert (child.status, child.parent_stage_id) == ("open", None)


def test_options_of_members_are_those_of_the_first_run():
    kept = record.using(
        queue="other",
        priority=7,
        max_attempts=3,
        tags=["x"],
        limit=Limit("label", running=1),
        metadata={"nothing": None},
    )
    handle = chain(kept.bind("a"), keep_calls=True).enqueue()
    differ = {"id", "run_at", "enqueued_at", "status"}
    before = {name: value for name, value in Job.objects.values().get().items() if name not in differ}
    run_jobs()
    handle.rerun("record")
    after = Job.objects.values().get()
    assert after["status"] == "limited"
    assert {name: value for name, value in after.items() if name not in differ} == before


def test_new_members_are_announced():
    told = []
    handle = three()
    run_jobs()

    def receive(**named):
        told.append((named["queue"], len(named["ids"])))

    job_enqueued.connect(receive)
    try:
        handle.rerun("b")
    finally:
        job_enqueued.disconnect(receive)
    assert told == [("default", 3)]


# Crashes and other callers


@pytest.mark.django_db(transaction=True)
def test_caller_whose_session_ends_at_any_statement_has_changed_nothing(other_queue):
    calls = [record.bind("b"), die_unless.bind("cause")]
    handle = chain(count.bind(), calls, record.bind("c"), keep_calls=True).enqueue()
    run_jobs(errors="collect")
    labels()
    before = all_rows()
    for number in itertools.count(1):
        left = iter(range(number - 1, -1, -1))

        def end_session(execute, *statement, left=left):
            if next(left, None) == 0:
                other_queue.rows(
                    "SELECT pg_terminate_backend(%(pid)s, 10000)", {"pid": connection.connection.info.backend_pid}
                )
            return execute(*statement)

        connection.ensure_connection()
        try:
            with connection.execute_wrapper(end_session):
                handle.rerun("count")
        except Error:
            connection.close()
            assert all_rows() == before
        else:
            connection.close()  # it was gone at the notification, behind the commit
            break
    assert number > 8, "each statement has had its turn"
    allow("cause")
    run_jobs()
    assert handle.status() == "succeeded"


def all_rows() -> list:
    models = Workflow, Stage, StageEdge, StageResult, StageAddition, KeptCall, Job, DeadJob
    return [list(model.objects.order_by("pk").values()) for model in models]


@pytest.mark.django_db(transaction=True)
def test_of_two_callers_at_once_the_second_finds_members_alive(sql):
    handle = three()
    run_jobs()

    def call() -> int:
        try:
            return handle.rerun("b")
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            handle.rerun("a")
            second = threads.submit(call)
            eventually(lambda: sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
        with pytest.raises(InvalidWorkflow, match=r"not ended|not opened"):
            second.result()
    assert handle.state().stage("a").live == 1


@pytest.mark.django_db(transaction=True)
def test_transaction_that_does_not_see_what_stages_become_is_refused():
    handle = three()
    run_jobs()
    with pytest.raises(InvalidWorkflow, match="at REPEATABLE READ"), transaction.atomic():
        connection.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        handle.rerun("b")
    assert not Job.objects.exists()
