"""Switching from another queue: who gets a call, who runs it, and what is told of it.

The other queue is a list here, in which calls lie as JSON. Ours is the real one.
"""

import asyncio
import inspect
import json
import subprocess
import sys
import threading
from io import StringIO

import pytest
from asgiref.sync import sync_to_async
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connections, transaction

import tests.app.tasks as app
from django_pgqueue import RetryLater, tasks
from django_pgqueue.contrib.cutover import Cutover, new_side, old_side
from django_pgqueue.contrib.cutover.checks import check_stages
from django_pgqueue.contrib.cutover.models import Call
from django_pgqueue.exceptions import ConfigurationError, InvalidArguments
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.executor import arun, run
from django_pgqueue.jobs.interrupts import LaneInterrupts, ThreadInterrupts
from django_pgqueue.models import FinishedJob, Job
from tests.app import contract
from tests.app.models import Mark
from tests.support.waiting import beside, eventually

pytestmark = pytest.mark.django_db(transaction=True)

BOTH = ["old_leads", "new_leads"]


class OtherQueue:
    """Calls that lie in a list until they are run, and their failures."""

    def __init__(self, func=app.act) -> None:
        self.calls: list[str] = []
        self.errors: list[Exception] = []
        self._run = old_side(func)

    def delay(self, *args, **kwargs) -> None:
        self.calls.append(json.dumps([args, kwargs]))

    def drain(self) -> int:
        done = 0
        while self.calls:
            args, kwargs = json.loads(self.calls.pop(0))
            try:
                self._run(*args, **kwargs)
            except ValueError as error:
                self.errors.append(error)
            done += 1
        return done


@pytest.fixture
def other():
    return OtherQueue()


@pytest.fixture
def stage(settings):
    def set_stage(value):
        settings.PGQUEUE_CUTOVER = value

    return set_stage


def work(queue, task=app.switched) -> int:
    """Run what is queued on our side, once each."""
    jobs = claim(queue, "default", limit=100, worker_id=1)
    ack.write(queue, [run(task, job, CurrentJob(job), ThreadInterrupts()) for job in jobs])
    return len(jobs)


def work_async(queue, task) -> None:
    async def run_all():
        border = LaneInterrupts(asyncio.get_running_loop())
        return [await arun(task, job, CurrentJob(job), border) for job in jobs]

    jobs = claim(queue, "default", limit=100, worker_id=1)
    ack.write(queue, in_a_loop(run_all()))


def in_a_loop(coroutine):
    """Run it in an event loop, and close what its thread for sync code has opened."""

    async def run_and_close():
        try:
            return await coroutine
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(run_and_close())


def ran_by_us() -> list[bool]:
    return [job_id != 0 for job_id in Mark.objects.order_by("id").values_list("job_id", flat=True)]


def report(*words) -> tuple[list[dict], str]:
    """Return the rows of the report, and what it says against flipping."""
    out, problem = StringIO(), ""
    try:
        call_command("pgqueue_cutover", "--json", *words, stdout=out)
    except CommandError as error:
        problem = str(error)
    return json.loads(out.getvalue()), problem


# Who gets a call


def test_old_side_alone_gets_calls_until_the_flag_is_set(other, queue):
    assert Cutover(new=app.switched, old=other.delay).enqueue("x") is None
    assert (other.drain(), Job.objects.count(), Call.objects.count()) == (1, 0, 0)
    assert ran_by_us() == [False]


def test_new_side_alone_gets_calls_in_the_end(other, stage, queue):
    stage("new")
    handle = Cutover(new=app.switched, old=other.delay).enqueue("x")
    assert Job.objects.get().metadata == {}
    work(queue)
    assert FinishedJob.objects.get().id == handle.id
    assert (other.calls, Call.objects.count(), ran_by_us()) == ([], 0, [True])


@pytest.mark.parametrize("value", BOTH)
def test_one_side_runs_and_the_other_notes_the_arrival(other, stage, queue, value):
    stage(value)
    job = Cutover(new=app.switched.using(metadata={"shop": 1}), old=other.delay).enqueue("x")
    assert Job.objects.get().metadata["shop"] == 1
    other.drain()
    work(queue)
    call, leads = Call.objects.get(), value.removesuffix("_leads")
    assert (call.task, call.stage, call.compares) == (app.switched.name, value, False)
    assert call.enqueued_at <= min(call.old_arrived_at, call.new_arrived_at)
    assert {"old": call.old_outcome, "new": call.new_outcome} == {"old": "", "new": "", leads: "succeeded"}
    assert ran_by_us() == [leads == "new"]
    assert FinishedJob.objects.get(pk=job.id).result == ("done x" if leads == "new" else None)


@pytest.mark.parametrize("value", ["old", *BOTH, "new"])
def test_rollback_sends_nothing_and_commit_all(other, stage, value):
    stage(value)
    cutover = Cutover(new=app.switched, old=other.delay)
    with pytest.raises(KeyError), transaction.atomic():
        cutover.enqueue("x")
        raise KeyError
    assert (other.calls, Job.objects.count(), Call.objects.count()) == ([], 0, 0)
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
    assert (other.calls, Call.objects.count()) == ([], 0)


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


def row_of(stage, **changes):
    leads = stage.removesuffix("_leads")
    others = ("old_succeeded", "old_failed", "new_succeeded", "new_failed", "compared", "differing", "missing")
    numbers = dict.fromkeys(others, 0) | {"old_arrived": 1, "new_arrived": 1, f"{leads}_succeeded": 1}
    return {"task": app.switched.name, "stage": stage, **numbers, **changes}


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


# What came of it


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


def promoted(queue) -> int:
    Job.objects.update(status="queued")
    return work(queue)


def test_old_side_raises_what_its_function_raises(other, stage):
    stage("old_leads")
    Cutover(new=app.switched, old=other.delay).enqueue("x", until=2)
    other.drain()
    assert [str(error) for error in other.errors] == ["not before attempt 2"]
    assert Call.objects.get().old_detail == "ValueError"


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


@pytest.mark.parametrize("value", BOTH)
def test_async_task_is_wrapped_likewise(other, stage, queue, value):
    stage(value)
    Cutover(new=app.aswitched, old=other.delay).enqueue("x")
    Cutover(new=app.aswitched, old=other.delay).enqueue("y", until=2)
    work_async(queue, app.aswitched)
    other.drain()
    leads = value.removesuffix("_leads")
    assert ran_by_us() == [leads == "new"] * 2
    assert sorted(Call.objects.values_list(f"{leads}_outcome", f"{leads}_detail")) == [
        ("failed", "ValueError"),
        ("succeeded", ""),
    ]
    assert Call.objects.exclude(old_arrived_at=None).exclude(new_arrived_at=None).count() == 2


def test_retry_later_is_no_outcome(other, stage, queue):
    @new_side
    def closed(label):
        raise RetryLater(60)

    stage("new_leads")
    task = tasks.Task(closed, name=app.switched.name, options=tasks.Options())
    Cutover(new=task, old=other.delay).enqueue("x")
    work(queue, task)
    call = Call.objects.get()
    assert (call.new_outcome, call.new_arrived_at is not None) == ("", True)


def test_calls_without_a_mark_just_run(other, queue):
    other.delay("from a schedule")
    other.drain()
    app.switched.enqueue("from a schedule")
    work(queue)
    assert app.switched("directly") == "done directly"
    assert ran_by_us() == [False, True, False]


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


def test_old_function_keeps_its_signature_but_for_the_mark():
    def plain(order_id: int, *, fast: bool = False) -> None: ...

    def open_to_all(order_id: int, **options: bool) -> None: ...

    def none() -> None: ...

    assert list(inspect.signature(old_side(plain)).parameters) == ["order_id", "fast", "pgqueue_cutover"]
    assert list(inspect.signature(old_side(open_to_all)).parameters) == ["order_id", "pgqueue_cutover", "options"]
    assert list(inspect.signature(old_side(none)).parameters) == ["pgqueue_cutover"]
    assert str(inspect.signature(new_side(plain))) == str(inspect.signature(plain))


# Both run, and are compared


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


# The report


def test_call_is_missing_until_it_has_arrived_and_ended(other, stage, queue):
    stage("new_leads")
    Cutover(new=app.switched, old=other.delay).enqueue("x")
    assert report() == ([row_of("new_leads", sent=1, old_arrived=0, new_arrived=0, new_succeeded=0)], "")
    missing = "Do not flip yet: 1 missing."
    assert report("--missing-after", "0s")[1] == missing
    other.drain()
    assert report("--missing-after", "0s")[1] == missing
    Call.objects.update(new_arrived_at=Call.objects.get().enqueued_at)
    assert report("--missing-after", "0s")[1] == missing
    work(queue)
    assert report("--missing-after", "0s") == ([row_of("new_leads", sent=1)], "")


def test_report_for_people(other, stage, queue):
    out = StringIO()
    call_command("pgqueue_cutover", stdout=out)
    assert out.getvalue() == "No calls yet.\n"
    stage("old_leads")
    Cutover(new=app.switched, old=other.delay).enqueue("x", until=2)
    work(queue)
    other.drain()
    out = StringIO()
    call_command("pgqueue_cutover", app.switched.name, stdout=out)
    head, row = out.getvalue().splitlines()
    assert head.split("  ")[0] == "task"
    assert row.split() == [app.switched.name, "old_leads", "1", "1", "0", "1", "1", "0", "0", "0", "0", "0"]


def test_task_of_which_nothing_is_known_is_no_reason_to_flip(transactional_db):
    with pytest.raises(CommandError, match=r"No call of shop.tasks.resize has gone to both sides"):
        call_command("pgqueue_cutover", "shop.tasks.resize", stdout=StringIO())


def test_exit_code_tells_a_deploy_script(other, stage, transactional_db):
    stage("old_leads")
    Cutover(new=app.switched, old=other.delay).enqueue("x")
    with pytest.raises(CommandError) as problem:
        call_command("pgqueue_cutover", "--missing-after", "0s", stdout=StringIO())
    assert problem.value.returncode == 1


def test_prune_removes_old_calls(other, stage, sql, monkeypatch):
    monkeypatch.setattr("django_pgqueue.contrib.cutover.report.SLICE", 2)
    stage("old_leads")
    for number in range(6):
        Cutover(new=app.switched, old=other.delay).enqueue(str(number))
    keep = Call.objects.order_by("enqueued_at").last().pk
    sql("UPDATE pgqueue_cutover_calls SET enqueued_at = now() - interval '8 days' WHERE id <> %s", keep)
    out = StringIO()
    call_command("pgqueue_cutover", "--prune", "7d", stdout=out)
    assert out.getvalue() == "Calls removed: 5.\n"
    assert Call.objects.get().pk == keep


def test_report_says_when_there_is_no_table(transactional_db, monkeypatch):
    def fail(*_):
        raise DatabaseError('relation "pgqueue_cutover_calls" does not exist\nLINE 1')

    monkeypatch.setattr("django_pgqueue.contrib.cutover.management.commands.pgqueue_cutover.counts", fail)
    with pytest.raises(CommandError, match="does not exist"):
        call_command("pgqueue_cutover")


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
