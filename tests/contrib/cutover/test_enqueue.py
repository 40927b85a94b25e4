"""Calls go where their stage says, and each is run once."""

import subprocess
import sys
import threading

import pytest
from django.db import connections, transaction

import tests.app.tasks as app
from django_pgqueue.contrib.cutover import Cutover
from django_pgqueue.contrib.cutover.enqueue import check_stages
from django_pgqueue.contrib.cutover.models import CutoverCall
from django_pgqueue.exceptions import ConfigurationError, InvalidArguments
from django_pgqueue.models import Job, SucceededJob
from tests.app import contract
from tests.app.models import Mark
from tests.support.cutover import BOTH, in_a_loop, ran_by_us, report, row_of, work
from tests.support.waiting import beside, eventually

pytestmark = pytest.mark.django_db(transaction=True)


# Who gets a call


def test_old_side_alone_gets_calls_until_the_flag_is_set(other, queue):
    assert Cutover(new=app.switched, old=other.delay).enqueue("x") is None
    assert (other.drain(), Job.objects.count(), CutoverCall.objects.count()) == (1, 0, 0)
    assert ran_by_us() == [False]


def test_new_side_alone_gets_calls_in_the_end(other, stage, queue):
    stage("new")
    handle = Cutover(new=app.switched, old=other.delay).enqueue("x")
    assert Job.objects.get().metadata == {}
    work(queue)
    assert SucceededJob.objects.get().id == handle.id
    assert (other.calls, CutoverCall.objects.count(), ran_by_us()) == ([], 0, [True])


@pytest.mark.parametrize("value", BOTH)
def test_one_side_runs_and_the_other_notes_the_arrival(other, stage, queue, value):
    stage(value)
    job = Cutover(new=app.switched.using(metadata={"shop": 1}), old=other.delay).enqueue("x")
    assert Job.objects.get().metadata["shop"] == 1
    other.drain()
    work(queue)
    call, leads = CutoverCall.objects.get(), value.removesuffix("_leads")
    assert (call.task, call.stage, call.compares) == (app.switched.name, value, False)
    assert call.enqueued_at <= min(call.old_arrived_at, call.new_arrived_at)
    assert {"old": call.old_outcome, "new": call.new_outcome} == {"old": "", "new": "", leads: "succeeded"}
    assert ran_by_us() == [leads == "new"]
    assert SucceededJob.objects.get(pk=job.id).result == ("done x" if leads == "new" else None)


@pytest.mark.parametrize("value", ["old", *BOTH, "new"])
def test_rollback_sends_nothing_and_commit_all(other, stage, value):
    stage(value)
    cutover = Cutover(new=app.switched, old=other.delay)
    with pytest.raises(KeyError), transaction.atomic():
        cutover.enqueue("x")
        raise KeyError
    assert (other.calls, Job.objects.count(), CutoverCall.objects.count()) == ([], 0, 0)
    with transaction.atomic():
        cutover.enqueue("x")
        assert other.calls == []
    assert (len(other.calls), Job.objects.count()) == (value != "new", value != "old")


@pytest.mark.parametrize(("first", "later"), [("old_leads", "new"), ("new_leads", "old"), ("old_leads", "new_leads")])
def test_calls_under_way_keep_their_meaning_when_the_flag_is_flipped(other, stage, queue, first, later):
    stage(first)
    Cutover(new=app.switched, old=other.delay).enqueue("x")
    stage(later)
    work(queue)
    other.drain()
    assert ran_by_us() == [first == "new_leads"]


def test_arguments_that_do_not_fit_are_refused_before_anything_is_sent(other, stage):
    stage("old_leads")
    with pytest.raises(InvalidArguments):
        Cutover(new=app.switched, old=other.delay).enqueue("x", "y", "z")
    assert (other.calls, CutoverCall.objects.count()) == ([], 0)


def test_old_queue_that_cannot_be_reached_matters_only_while_it_leads(stage, caplog):
    def delay(*args, **kwargs):
        raise ConnectionError("no broker")

    stage("old_leads")
    with pytest.raises(ConnectionError):
        Cutover(new=app.switched, old=delay).enqueue("x")
    stage("new_leads")
    assert Cutover(new=app.switched, old=delay).enqueue("x")
    assert "no broker" in caplog.text
    assert Job.objects.count() == 2


@pytest.fixture
def by_hand(transactional_db):
    """Autocommit is off."""
    transaction.set_autocommit(False)
    yield
    transaction.rollback()
    transaction.set_autocommit(True)


@pytest.mark.parametrize("value", ["old", *BOTH])
def test_call_goes_out_at_once_where_the_caller_commits_by_hand(other, stage, by_hand, value):
    """Django runs no hooks then, however often one commits."""
    stage(value)
    Cutover(new=app.switched, old=other.delay).enqueue("x")
    with transaction.atomic():
        Cutover(new=app.switched, old=other.delay).enqueue("y")
    assert len(other.calls) == 2
    transaction.commit()
    assert (len(other.calls), Job.objects.count()) == (2, 0 if value == "old" else 2)


def test_old_queue_that_only_follows_does_not_matter_to_who_commits_by_hand(stage, by_hand, caplog):
    def delay(*args, **kwargs):
        raise ConnectionError("no broker")

    stage("new_leads")
    assert Cutover(new=app.switched, old=delay).enqueue("x")
    assert "no broker" in caplog.text
    stage("old_leads")
    with pytest.raises(ConnectionError):
        Cutover(new=app.switched, old=delay).enqueue("x")
    assert Job.objects.count() == 1


@pytest.mark.parametrize(("value", "sent"), [("old_leads", 2), ("new_leads", 1)])
def test_call_that_meets_its_conflict_is_run_without_a_comparison(other, stage, queue, value, sent):
    stage(value)
    cutover = Cutover(new=app.switched.using(unique_key="x"), old=other.delay)
    assert [cutover.enqueue("x").created, cutover.enqueue("x").created] == [True, False]
    assert (other.drain(), work(queue)) == (sent, 1)
    assert ran_by_us() == [False, False] if value == "old_leads" else [True]
    assert report("--missing-after", "0s") == ([row_of(value, sent=1)], "")


@pytest.mark.parametrize("value", BOTH)
def test_task_of_the_framework_is_switched_likewise(other, stage, queue, value):
    stage(value)
    job = Cutover(new=contract.switched.native, old=other.delay).enqueue("x")
    assert (other.drain(), work(queue, contract.switched.native)) == (1, 1)
    result = contract.switched.get_result(str(job.id))
    assert result.return_value == (1 if value == "new_leads" else None)
    assert ran_by_us() == [value == "new_leads"]
    assert report("--missing-after", "0s") == ([row_of(value, sent=1) | {"task": contract.switched.module_path}], "")


def test_enqueue_from_async_code(other, stage, queue):
    stage("new_leads")
    in_a_loop(Cutover(new=app.switched, old=other.delay).aenqueue("x"))
    assert (work(queue), other.drain(), ran_by_us()) == (1, 1, [True])


# The flag


@pytest.mark.parametrize(
    "flag",
    ["new", {app.switched.name: "new", "*": "old"}, {"*": "new"}, lambda task: {app.switched.name: "new"}[task]],
    ids=["text", "by task", "for the others", "function"],
)
def test_flag_is_for_all_or_by_task(other, stage, transactional_db, flag):
    stage(flag)
    assert check_stages() == []
    assert Cutover(new=app.switched, old=other.delay).enqueue("x") is not None


@pytest.mark.parametrize("flag", ["both", {"*": "both"}, {app.switched.name: "both"}])
def test_stage_that_there_is_not_is_found_by_the_check_and_refused(other, stage, transactional_db, flag):
    stage(flag)
    [error] = check_stages()
    assert (error.id, error.msg) == ("pgqueue_cutover.E001", "PGQUEUE_CUTOVER has 'both'.")
    with pytest.raises(ConfigurationError, match="Stages are: old, old_leads, new_leads, new"):
        Cutover(new=app.switched, old=other.delay).enqueue("x")


def test_tasks_can_be_declared_before_apps_are_loaded():
    code = """
from django_pgqueue import task
from django_pgqueue.contrib.cutover import Cutover, new_side, old_side

@task
@new_side
def new(): ...

Cutover(new=new, old=print)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# A switch from beginning to end


def test_every_call_runs_once_while_the_flag_is_flipped_through_all_stages(stage, start_worker, other):
    """With a worker of ours and one of the other queue at work all the time."""
    stages, number = ["old", *BOTH, "new"], 40
    cutover = Cutover(new=app.switched, old=other.delay)
    is_over = threading.Event()

    def drain_the_other():
        while not is_over.wait(0.01):
            other.drain()
        connections.close_all()

    start_worker("--processes", "1", "--concurrency", "2").wait_until_ready()
    with beside(drain_the_other):
        try:
            for value in stages:
                stage(value)
                for index in range(number):
                    cutover.enqueue(f"{value} {index}")
            eventually(lambda: Mark.objects.count() == len(stages) * number)
            eventually(lambda: not other.calls and not Job.objects.exists())
            eventually(lambda: report("--missing-after", "0s")[1] == "")
        finally:
            is_over.set()
    ran = {value: set(by_us(value)) for value in stages}
    assert ran == {"old": {False}, "old_leads": {False}, "new_leads": {True}, "new": {True}}
    assert Mark.objects.values("label").distinct().count() == len(stages) * number
    rows, problem = report("--missing-after", "0s")
    assert problem == ""
    assert [(row["stage"], row["sent"], row["old_succeeded"], row["new_succeeded"]) for row in rows] == [
        ("new_leads", number, 0, number),
        ("old_leads", number, number, 0),
    ]


def by_us(stage):
    shared = Mark.objects.filter(label__startswith=f"{stage} ")
    return [job_id != 0 for job_id in shared.values_list("job_id", flat=True)]
