"""Functions of both sides note what comes of marked calls, and just run the others."""

import asyncio
import inspect

import pytest
from django.core.management import call_command

import tests.app.tasks as app
from django_pgqueue import Snooze, tasks
from django_pgqueue.contrib.cutover import Cutover, new_side, old_side
from django_pgqueue.contrib.cutover.models import CutoverCall
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.executor import arun
from django_pgqueue.jobs.interrupts import LaneInterrupts
from django_pgqueue.models import Job
from tests.app.models import Mark
from tests.support.cutover import BOTH, OtherQueue, in_a_loop, promoted, ran_by_us, report, work

pytestmark = pytest.mark.django_db(transaction=True)


def work_async(queue, task) -> None:
    async def run_all():
        border = LaneInterrupts(asyncio.get_running_loop())
        return [await arun(task, job, CurrentJob(job), border) for job in jobs]

    jobs = claim(queue, "default", limit=100, worker_id=1)
    ack.write(queue, in_a_loop(run_all()))


def test_old_side_raises_what_its_function_raises(other, stage):
    stage("old_leads")
    Cutover(new=app.switched, old=other.delay).enqueue("x", until=2)
    other.drain()
    assert [str(error) for error in other.errors] == ["not before attempt 2"]
    assert CutoverCall.objects.get().old_detail == "ValueError"


@pytest.mark.parametrize("value", BOTH)
def test_async_task_is_wrapped_likewise(other, stage, queue, value):
    stage(value)
    Cutover(new=app.aswitched, old=other.delay).enqueue("x")
    Cutover(new=app.aswitched, old=other.delay).enqueue("y", until=2)
    work_async(queue, app.aswitched)
    other.drain()
    leads = value.removesuffix("_leads")
    assert ran_by_us() == [leads == "new"] * 2
    assert sorted(CutoverCall.objects.values_list(f"{leads}_outcome", f"{leads}_detail")) == [
        ("failed", "ValueError"),
        ("succeeded", ""),
    ]
    assert CutoverCall.objects.exclude(old_arrived_at=None).exclude(new_arrived_at=None).count() == 2


def test_snooze_is_no_outcome(other, stage, queue):
    @new_side
    def closed(label):
        raise Snooze(60)

    stage("new_leads")
    task = tasks.make(closed, name=app.switched.name)
    Cutover(new=task, old=other.delay).enqueue("x")
    work(queue, task)
    call = CutoverCall.objects.get()
    assert (call.new_outcome, call.new_arrived_at is not None) == ("", True)


def test_calls_without_a_mark_just_run(other, queue):
    other.delay("from a schedule")
    other.drain()
    app.switched.enqueue("from a schedule")
    work(queue)
    assert app.switched("directly") == "done directly"
    assert ran_by_us() == [False, True, False]


def test_old_function_keeps_its_signature_but_for_the_mark():
    def plain(order_id: int, *, fast: bool = False) -> None: ...

    def open_to_all(order_id: int, **options: bool) -> None: ...

    def none() -> None: ...

    assert list(inspect.signature(old_side(plain)).parameters) == ["order_id", "fast", "pgqueue_cutover"]
    assert list(inspect.signature(old_side(open_to_all)).parameters) == ["order_id", "pgqueue_cutover", "options"]
    assert list(inspect.signature(old_side(none)).parameters) == ["pgqueue_cutover"]
    assert str(inspect.signature(new_side(plain))) == str(inspect.signature(plain))


# Notes


def test_last_outcome_of_the_side_that_leads_counts(other, stage, queue):
    stage("new_leads")
    Cutover(new=app.switched, old=other.delay).enqueue("x", until=2)
    work(queue)
    call = CutoverCall.objects.get()
    assert (call.new_outcome, call.new_detail) == ("failed", "ValueError")
    assert Job.objects.get().errors[0]["error"] == "ValueError"
    assert promoted(queue) == 1
    call.refresh_from_db()
    assert (call.new_outcome, call.new_detail) == ("succeeded", "")


def test_failure_is_noted_although_the_transaction_of_the_task_is_rolled_back(other, stage, queue):
    stage("new_leads")
    Cutover(new=app.switched_atomic, old=other.delay).enqueue("x", until=2)
    work(queue, app.switched_atomic)
    call = CutoverCall.objects.get()
    assert (call.new_outcome, call.new_arrived_at is not None, Mark.objects.count()) == ("failed", True, 0)
    Job.objects.update(status="queued")
    work(queue, app.switched_atomic)
    call.refresh_from_db()
    assert (call.new_outcome, Mark.objects.count()) == ("succeeded", 1)


def test_task_runs_whether_it_can_be_noted_or_not(other, stage, queue, caplog):
    stage("new_leads")
    Cutover(new=app.switched_atomic, old=other.delay).enqueue("pruned")
    CutoverCall.objects.all().delete()
    work(queue, app.switched_atomic)
    Cutover(new=app.switched_atomic, old=other.delay).enqueue("removed")
    call_command("migrate", "pgqueue_cutover", "zero", verbosity=0)
    try:
        work(queue, app.switched_atomic)
    finally:
        call_command("migrate", "pgqueue_cutover", verbosity=0)
    assert list(Mark.objects.order_by("id").values_list("label", flat=True)) == ["pruned", "removed"]
    assert "is not noted on the new side" in caplog.text


@pytest.mark.parametrize("value", BOTH)
@pytest.mark.parametrize(
    ("functions", "is_same"),
    [
        ((lambda label: {"a": 1, "b": [label]}, lambda label: {"b": (label,), "a": 1}), True),
        ((lambda label: None, lambda label: None), True),
        ((lambda label: 1, lambda label: 2), False),
        ((lambda label: 1, lambda label: int("x")), False),
        ((lambda label: int("x"), lambda label: int("y")), True),
        ((lambda label: object(), lambda label: object()), False),
    ],
    ids=["equal", "none", "other result", "one fails", "both fail alike", "not to be compared"],
)
def test_results_of_both_sides_are_compared(stage, queue, value, functions, is_same):
    stage(value)
    old, new = functions
    task = tasks.make(new_side(new), name=app.switched.name)
    other = OtherQueue(old)
    Cutover(new=task, old=other.delay, compare=True).enqueue("x")
    other.drain()
    [row], problem = report()
    assert (row["compared"], row["differing"], problem) == (0, 0, "")
    work(queue, task)
    [row], problem = report()
    assert (row["compared"], row["differing"]) == (1, not is_same)
    assert problem == ("" if is_same else "Do not flip yet: 1 differing.")
