"""Outcomes are noted whatever becomes of the transaction of the task, and results are compared."""

import pytest
from django.core.management import call_command

import tests.app.tasks as app
from django_pgqueue import tasks
from django_pgqueue.contrib.cutover import Cutover, new_side
from django_pgqueue.contrib.cutover.models import Call
from django_pgqueue.models import Job
from tests.app.models import Mark
from tests.support.cutover import BOTH, OtherQueue, promoted, report, work

pytestmark = pytest.mark.django_db(transaction=True)


def test_last_outcome_of_the_side_that_leads_counts(other, stage, queue):
    stage("new_leads")
    Cutover(new=app.switched, old=other.delay).enqueue("x", until=2)
    work(queue)
    call = Call.objects.get()
    assert (call.new_outcome, call.new_detail) == ("failed", "ValueError")
    assert Job.objects.get().errors[0]["error"] == "ValueError"
    assert promoted(queue) == 1
    call.refresh_from_db()
    assert (call.new_outcome, call.new_detail) == ("succeeded", "")


def test_failure_is_noted_although_the_transaction_of_the_task_is_rolled_back(other, stage, queue):
    stage("new_leads")
    Cutover(new=app.switched_atomic, old=other.delay).enqueue("x", until=2)
    work(queue, app.switched_atomic)
    call = Call.objects.get()
    assert (call.new_outcome, call.new_arrived_at is not None, Mark.objects.count()) == ("failed", True, 0)
    Job.objects.update(status="queued")
    work(queue, app.switched_atomic)
    call.refresh_from_db()
    assert (call.new_outcome, Mark.objects.count()) == ("succeeded", 1)


def test_task_runs_whether_it_can_be_noted_or_not(other, stage, queue, caplog):
    stage("new_leads")
    Cutover(new=app.switched_atomic, old=other.delay).enqueue("pruned")
    Call.objects.all().delete()
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
    task = tasks.Task(new_side(new), name=app.switched.name, options=tasks.Options())
    other = OtherQueue(old)
    Cutover(new=task, old=other.delay, compare=True).enqueue("x")
    other.drain()
    [row], problem = report()
    assert (row["compared"], row["differing"], problem) == (0, 0, "")
    work(queue, task)
    [row], problem = report()
    assert (row["compared"], row["differing"]) == (1, not is_same)
    assert problem == ("" if is_same else "Do not flip yet: 1 differing.")
