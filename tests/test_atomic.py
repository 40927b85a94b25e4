import sys

import pytest
from django.db import connection, transaction

import tests.app.tasks as app
from django_pgqueue.jobs import ack
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.executor import CHARGED_CONFLICTS, ConflictCounts, run
from django_pgqueue.jobs.interrupts import ThreadInterrupts
from django_pgqueue.models import FinishedJob, Job
from django_pgqueue.records import Fate
from django_pgqueue.signals import job_finished
from tests.app.models import Mark

run_module = sys.modules[run.__module__]


@pytest.fixture
def claimed(queue):
    app.record_atomic.enqueue("x")
    [job] = claim(queue, "default", limit=1, worker_id=1)
    return job


def test_effects_and_removal_are_one_transaction(claimed):
    outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    assert outcome.fate is Fate.RECORDED
    assert (Mark.objects.count(), Job.objects.count(), FinishedJob.objects.count()) == (1, 0, 1)
    assert FinishedJob.objects.get().run_seconds > 0


def test_effects_roll_back_when_the_lease_was_lost(claimed, sql):
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    assert (outcome.fate, outcome.error["error"]) == (Fate.RETRIED, "django_pgqueue.exceptions.LeaseLost")
    assert (Mark.objects.count(), Job.objects.count()) == (0, 1)


def test_effects_roll_back_when_the_task_fails(claimed, monkeypatch):
    monkeypatch.setattr(app.record_atomic, "func", lambda label: (app.mark(label), 1 / 0))
    outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    assert outcome.fate is Fate.RETRIED
    assert (Mark.objects.count(), Job.objects.filter(status="running").count()) == (0, 1)


def test_failure_after_a_commit_in_doubt_is_stale_because_the_row_is_gone(queue, claimed):
    assert run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts()).fate is Fate.RECORDED
    from django_pgqueue.records import Outcome

    receipt = ack.write(queue, [Outcome(claimed, Fate.RETRIED, error={"error": "OperationalError"})])
    assert receipt.stale == {claimed.id}
    assert FinishedJob.objects.count() == 1


def test_row_locked_by_another_session_is_waited_for_briefly_then_given_up(queue, claimed, other_queue):
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_jobs FOR UPDATE", {})
        from django_pgqueue.db.connections import CallerConnection
        from django_pgqueue.records import Outcome

        with transaction.atomic():
            outcome = Outcome(claimed, Fate.SUCCEEDED)
            assert not ack.finish_alone(CallerConnection(), outcome, patience_seconds=0.1)
    with transaction.atomic():
        assert ack.finish_alone(CallerConnection(), outcome)


def test_hook_that_raises_after_the_commit_makes_no_failure_of_a_success(queue, claimed, monkeypatch, caplog):
    ended = []

    def receiver(outcome=None, **_):
        ended.append(outcome.fate)

    def function(label):
        app.mark(label)
        transaction.on_commit(lambda: 1 / 0)

    monkeypatch.setattr(app.record_atomic, "func", function)
    job_finished.connect(receiver)
    try:
        outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    finally:
        job_finished.disconnect(receiver)
    assert (outcome.fate, ended) == (Fate.RECORDED, [Fate.RECORDED])
    assert (Mark.objects.count(), FinishedJob.objects.count()) == (1, 1)
    assert "has succeeded, but an on_commit hook of it failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert ack.write(queue, [outcome]).stale == frozenset()


@pytest.fixture
def conflict(sql, monkeypatch):
    """Let the transaction that removes a job fail, at its commit or before, with an SQLSTATE."""
    monkeypatch.setattr(run_module, "conflicts", ConflictCounts())

    def plan(state, *, is_late):
        sql(
            "CREATE FUNCTION pgqueue_fail() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'as planned' USING ERRCODE = '{state}'; END $$"
        )
        kind, when = ("CONSTRAINT TRIGGER", "DEFERRABLE INITIALLY DEFERRED") if is_late else ("TRIGGER", "")
        sql(f"CREATE {kind} fail AFTER DELETE ON pgqueue_jobs {when} FOR EACH ROW EXECUTE FUNCTION pgqueue_fail()")

    yield plan
    sql("DROP FUNCTION IF EXISTS pgqueue_fail CASCADE")


@pytest.mark.parametrize("when", [("40001", False), ("40P01", False), ("40001", True), ("40P01", True)], ids=repr)
def test_conflict_after_the_function_has_returned_is_no_attempt(queue, claimed, conflict, caplog, when):
    state, is_late = when
    conflict(state, is_late=is_late)
    outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    assert (outcome.fate, outcome.delay_seconds) == (Fate.RELEASED, 0.0)
    assert "goes back, and its attempt does not count" in caplog.text
    ack.write(queue, [outcome])
    assert list(Job.objects.values_list("status", "attempts", "errors")) == [("queued", 0, [])]
    assert Mark.objects.count() == 0


def test_tenth_conflict_in_a_row_after_the_function_has_returned_is_an_attempt(claimed, conflict):
    """As with a trigger that raises it each time; the pauses before that grow."""
    conflict("40001", is_late=True)
    outcomes = [run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts()) for _ in range(11)]
    assert [outcome.fate for outcome in outcomes] == [Fate.RELEASED] * 9 + [Fate.RETRIED] * 2
    pauses = [outcome.delay_seconds for outcome in outcomes[:9]]
    assert pauses == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0], rel=0.11)
    assert "as planned" in outcomes[-1].error["message"]
    last = claimed._replace(attempt=claimed.max_attempts)
    assert run(app.record_atomic, last, CurrentJob(last), ThreadInterrupts()).fate is Fate.DIED
    assert not run_module.conflicts._numbers, "if it is sent back, it begins anew"


@pytest.mark.parametrize("end", ["success", "failure"])
def test_conflicts_are_counted_anew_after_a_run_that_has_ended_in_another_way(claimed, conflict, monkeypatch, sql, end):
    conflict("40001", is_late=True)
    for _ in range(CHARGED_CONFLICTS - 1):
        run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    with monkeypatch.context() as patch:
        if end == "failure":
            patch.setattr(app.record_atomic, "func", lambda _: 1 / 0)
        else:
            sql("DROP TRIGGER fail ON pgqueue_jobs")
        outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts())
    assert outcome.fate is (Fate.RETRIED if end == "failure" else Fate.RECORDED)
    assert not run_module.conflicts._numbers


def test_conflicts_are_counted_of_a_limited_number_of_jobs(claimed, monkeypatch):
    monkeypatch.setattr(run_module, "REMEMBERED_CONFLICTS", 2)
    conflicts = ConflictCounts()
    numbers = [conflicts.add(claimed._replace(id=job_id)) for job_id in (1, 2, 1, 3, 1, 2)]
    assert numbers == [1, 1, 2, 1, 3, 1], "of the second job none was known any more"


@pytest.mark.parametrize("case", ["another error", "told its progress", "may start once"])
def test_other_failures_at_the_end_of_an_atomic_run_are_attempts(claimed, conflict, case):
    conflict("P0001" if case == "another error" else "40001", is_late=True)
    current = CurrentJob(claimed)
    current.has_told = case == "told its progress"
    job = claimed._replace(max_attempts=1) if case == "may start once" else claimed
    outcome = run(app.record_atomic, job, current, ThreadInterrupts())
    assert outcome.fate is (Fate.DIED if case == "may start once" else Fate.RETRIED)
    assert "as planned" in outcome.error["message"]


def test_conflict_inside_of_the_function_is_an_attempt(claimed, monkeypatch, sql):
    def function(label):
        app.mark(label)
        with connection.cursor() as cursor:
            cursor.execute("DO $$ BEGIN RAISE EXCEPTION 'as planned' USING ERRCODE = '40001'; END $$")

    monkeypatch.setattr(app.record_atomic, "func", function)
    assert run(app.record_atomic, claimed, CurrentJob(claimed), ThreadInterrupts()).fate is Fate.RETRIED


def test_run_whose_transaction_cannot_begin_is_no_attempt(queue, claimed, monkeypatch, caplog):
    """No line of the task has run; so this holds for a task that may start only once too."""
    connection.close()
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "HOST", "/nowhere")
        job = claimed._replace(max_attempts=1)
        outcome = run(app.record_atomic, job, CurrentJob(job), ThreadInterrupts())
    assert outcome.fate is Fate.RELEASED
    assert outcome.delay_seconds > 0, "it must not come back at once, again and again"
    assert "its transaction cannot begin" in caplog.text
    ack.write(queue, [outcome])
    assert list(Job.objects.values_list("status", "attempts", "errors")) == [("scheduled", 0, [])]
