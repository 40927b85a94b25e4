import pytest
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue.base.records import Fate
from django_pgqueue.lifecycle import ack
from django_pgqueue.lifecycle.border import ThreadBorder
from django_pgqueue.lifecycle.claim import claim
from django_pgqueue.lifecycle.context import CurrentJob
from django_pgqueue.lifecycle.run import run
from django_pgqueue.models import FinishedJob, Job
from tests.app.models import Mark


@pytest.fixture
def claimed(queue):
    app.record_atomic.enqueue("x")
    [job] = claim(queue, "default", limit=1, worker_id=1)
    return job


def test_effects_and_removal_are_one_transaction(claimed):
    outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadBorder())
    assert outcome.fate is Fate.RECORDED
    assert (Mark.objects.count(), Job.objects.count(), FinishedJob.objects.count()) == (1, 0, 1)
    assert FinishedJob.objects.get().run_seconds > 0


def test_effects_roll_back_when_the_lease_was_lost(claimed, sql):
    sql("UPDATE pgqueue_jobs SET status = 'queued', lease_token = 0, worker_id = 0")
    outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadBorder())
    assert (outcome.fate, outcome.error["error"]) == (Fate.RETRIED, "django_pgqueue.base.exceptions.LeaseLost")
    assert (Mark.objects.count(), Job.objects.count()) == (0, 1)


def test_effects_roll_back_when_the_task_fails(claimed, monkeypatch):
    monkeypatch.setattr(app.record_atomic, "func", lambda label: (app.mark(label), 1 / 0))
    outcome = run(app.record_atomic, claimed, CurrentJob(claimed), ThreadBorder())
    assert outcome.fate is Fate.RETRIED
    assert (Mark.objects.count(), Job.objects.filter(status="running").count()) == (0, 1)


def test_failure_after_a_commit_in_doubt_is_stale_because_the_row_is_gone(queue, claimed):
    assert run(app.record_atomic, claimed, CurrentJob(claimed), ThreadBorder()).fate is Fate.RECORDED
    from django_pgqueue.base.records import Outcome

    receipt = ack.write(queue, [Outcome(claimed, Fate.RETRIED, error={"error": "OperationalError"})])
    assert receipt.stale == {claimed.id}
    assert FinishedJob.objects.count() == 1


def test_row_held_by_somebody_else_is_waited_for_briefly_then_given_up(queue, claimed, other_queue):
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_jobs FOR UPDATE", {})
        from django_pgqueue.base.records import Outcome
        from django_pgqueue.db import CallerConnection

        with transaction.atomic():
            outcome = Outcome(claimed, Fate.SUCCEEDED)
            assert not ack.finish_alone(CallerConnection(), outcome, patience_seconds=0.1)
    with transaction.atomic():
        assert ack.finish_alone(CallerConnection(), outcome)
