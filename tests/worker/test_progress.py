"""Progress and metadata of running jobs, and how the consumer writes them."""

import math

import pytest
from django.db import transaction

import tests.app.tasks as app
from django_pgqueue import jobs
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.context import CurrentJob
from django_pgqueue.jobs.executor import run
from django_pgqueue.jobs.interrupts import ThreadInterrupts
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import DeathReason
from django_pgqueue.worker import progress
from tests.support.consumers import cycle

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run_one(consumer):
    """Let the consumer claim a job of which a run begins."""

    def begin(task=app.noop) -> CurrentJob:
        task.enqueue()
        cycle(consumer)
        return CurrentJob(consumer.slots.accepted[-1][1], consumer.slots.news.tell)

    return begin


def told(row) -> tuple:
    return (row.progress["done"], row.progress["total"], row.progress["message"]) if row.progress else ()


def test_first_progress_is_written_at_once_and_the_latest_after_a_pause(consumer, run_one, monkeypatch):
    current = run_one()
    current.set_progress(1, 10, "begun")
    cycle(consumer)
    row = Job.objects.get()
    assert (row.status, told(row)) == ("running", (1, 10, "begun"))
    assert (row.progress["attempt"], row.progress["at"][:4].isdigit()) == (1, True)
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 600.0)
    for done in range(2, 6):
        current.set_progress(done, 10)
        cycle(consumer)
    assert told(Job.objects.get()) == (1, 10, "begun")
    assert 0 < consumer._updates.wait_until() - current.written_at < 601
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 0.0)
    cycle(consumer)
    assert told(Job.objects.get()) == (5, 10, "")
    assert consumer._updates.wait_until() == math.inf


@pytest.mark.parametrize(
    ("outcome", "model"),
    [
        ({"fate": Fate.SUCCEEDED}, SucceededJob),
        ({"fate": Fate.REPEATED}, SucceededJob),
        ({"fate": Fate.DIED, "reason": DeathReason.EXHAUSTED, "error": {"error": "x"}}, DeadJob),
        ({"fate": Fate.RETRIED, "error": {"error": "x"}}, Job),
    ],
    ids=["succeeded", "repeated", "died", "retried"],
)
def test_last_progress_goes_before_the_outcome(consumer, run_one, monkeypatch, outcome, model):
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 600.0)
    current = run_one()
    current.set_progress(1)
    cycle(consumer)
    current.set_progress(2, 3, "last")
    current.update_metadata(a=1)
    consumer.slots.finish(**outcome)
    cycle(consumer)
    row = model.objects.get(pk=current.id)
    assert (told(row), row.metadata) == ((2, 3, "last"), {"a": 1})
    assert consumer._updates.wait_until() == math.inf
    if outcome["fate"] is Fate.REPEATED:
        follower = Job.objects.get()
        assert (follower.progress, follower.metadata) == (None, {"a": 1})


def test_many_calls_are_one_entry_and_one_ring(consumer, run_one):
    """However many there are before the consumer looks; and again once it has looked."""
    current = run_one()
    for _ in range(2):
        for done in range(1000):
            current.set_progress(done)
        assert (len(consumer._updates._told), consumer.mailbox.qsize()) == (1, 1)
        cycle(consumer)


def test_news_of_several_runs_are_one_statement(consumer, monkeypatch):
    app.noop.enqueue_many([()] * 3)
    cycle(consumer)
    sent = []
    send = consumer.database.send
    monkeypatch.setattr(consumer.database, "send", lambda text, values: sent.append(text) or send(text, values))
    for _, claimed in consumer.slots.accepted:
        CurrentJob(claimed, consumer.slots.news.tell).set_progress(claimed.id)
    cycle(consumer)
    assert sum("Write into running jobs" in text for text in sent) == 1
    assert [row.progress["done"] for row in Job.objects.order_by("id")] == list(
        Job.objects.order_by("id").values_list("id", flat=True)
    )


def test_locked_row_is_written_the_next_time(consumer, run_one, monkeypatch):
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 0.0)
    current = run_one()
    with transaction.atomic():
        Job.objects.select_for_update().get()
        current.set_progress(1)
        cycle(consumer)
    assert Job.objects.get().progress is None
    cycle(consumer)
    assert told(Job.objects.get()) == (1, None, "")


def test_last_news_wait_with_an_outcome_whose_row_is_locked(consumer, run_one, monkeypatch):
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 600.0)
    current = run_one()
    current.set_progress(1)
    with transaction.atomic():
        Job.objects.select_for_update().get()
        consumer.slots.finish()
        cycle(consumer)
    consumer._in_flight.blocked_until = 0.0
    cycle(consumer)
    assert told(SucceededJob.objects.get()) == (1, None, "")


def test_last_news_are_written_though_their_row_is_locked_until_the_outcome_is_sent(consumer, run_one, monkeypatch):
    """As it is by a caller who begins to wait for the job in this moment."""
    current = run_one()
    current.set_progress(1)
    send, other = consumer.database.send, transaction.atomic()

    def unlock_behind_the_news(text, values):
        answer = send(text, values)
        if "Write into running jobs" in text:
            rows = answer.fetchall()
            assert rows == []
            answer.fetchall = lambda: rows
            transaction.set_rollback(True)
            other.__exit__(None, None, None)
        return answer

    consumer.slots.finish()
    other.__enter__()
    Job.objects.select_for_update().get()
    with monkeypatch.context() as patch:
        patch.setattr(consumer.database, "send", unlock_behind_the_news)
        cycle(consumer)
    assert told(Job.objects.get()) == ()
    consumer._in_flight.blocked_until = 0.0
    cycle(consumer)
    assert told(SucceededJob.objects.get()) == (1, None, "")


def test_run_that_lost_its_lease_writes_nothing(consumer, run_one, sql):
    current = run_one()
    sql("UPDATE pgqueue_jobs SET lease_token = 7")
    current.set_progress(1)
    cycle(consumer)
    consumer.slots.finish()
    cycle(consumer)
    assert Job.objects.get().progress is None


def test_thread_that_goes_on_after_the_end_of_its_job_is_forgotten(consumer, run_one, monkeypatch):
    monkeypatch.setattr(progress, "PAUSE_SECONDS", 0.0)
    current = run_one()
    consumer.slots.finish()
    cycle(consumer)
    current.set_progress(1)
    cycle(consumer)
    current.set_progress(2)
    assert consumer._updates.wait_until() == math.inf
    assert SucceededJob.objects.get().progress is None


def test_task_that_goes_on_after_finish_job_is_forgotten(consumer, run_one, sql):
    """Its row is gone: there is nothing to try again until it returns."""
    current = run_one()
    sql("DELETE FROM pgqueue_jobs")
    current.ended = Outcome(current.claimed, Fate.RECORDED)
    current.set_progress(1)
    cycle(consumer)
    assert consumer._updates.wait_until() == math.inf
    current.set_progress(2)
    assert consumer._updates.wait_until() == math.inf


def test_news_that_the_database_refuses_cost_no_outcome(consumer, run_one, monkeypatch):
    current = run_one()
    current.set_progress(1)
    monkeypatch.setattr(current, "_metadata", "no json")
    consumer.slots.finish(result="5")
    cycle(consumer)
    assert SucceededJob.objects.get().result == 5


def test_news_that_come_while_others_are_refused_are_written_later(consumer, run_one, monkeypatch):
    refused, other = run_one(), run_one()
    refused.set_progress(1)
    monkeypatch.setattr(refused, "_metadata", "no json")
    send = consumer.database.send
    monkeypatch.setattr(consumer.database, "send", lambda *given: other.set_progress(2) or send(*given))
    cycle(consumer)
    assert consumer._backoff.failures == 1
    monkeypatch.undo()
    other.set_progress(3)
    consumer._backoff._retry_at = 0.0
    cycle(consumer)
    assert told(Job.objects.get(pk=other.id)) == (3, None, "")
    assert Job.objects.get(pk=refused.id).progress is None


def test_last_news_go_before_the_outcome_however_many_end_at_once(consumer, monkeypatch):
    monkeypatch.setattr(progress, "AT_ONCE", 1)
    app.noop.enqueue_many([()] * 4)
    cycle(consumer)
    for _, claimed in [*consumer.slots.accepted]:
        CurrentJob(claimed, consumer.slots.news.tell).set_progress(claimed.id)
        consumer.slots.finish()
    cycle(consumer)
    assert sorted(told(row)[0] for row in SucceededJob.objects.all()) == sorted(
        SucceededJob.objects.values_list("id", flat=True)
    )


def test_news_survive_a_database_that_is_away(consumer, run_one, monkeypatch):
    current = run_one()
    settings = consumer.database._wrapper.settings_dict
    host, settings["HOST"] = settings["HOST"], "/nowhere"
    consumer.database.close()
    current.set_progress(1)
    cycle(consumer)
    assert consumer._backoff.failures == 1
    settings["HOST"] = host
    consumer._backoff._retry_at = 0.0
    cycle(consumer)
    assert told(Job.objects.get()) == (1, None, "")


def test_turn_without_news_sends_nothing_for_them(consumer):
    assert (consumer._updates.send(consumer.database, []), consumer._updates.wait_until()) == (None, math.inf)


def test_atomic_task_leaves_its_last_news_in_what_is_kept(queue):
    app.record_atomic.enqueue()
    [claimed] = claim(queue, "default", limit=1, worker_id=1)
    current = CurrentJob(claimed)
    current.set_progress(3, 4)
    current.update_metadata(b=[1])
    outcome = run(app.record_atomic, claimed, current, ThreadInterrupts())
    assert outcome.fate is Fate.RECORDED
    row = SucceededJob.objects.get()
    assert (told(row), row.metadata) == ((3, 4, ""), {"b": [1]})


def test_next_attempt_has_the_metadata_and_says_whose_the_progress_is(consumer, run_one, sql):
    current = run_one(app.noop.using(metadata={"a": 1, "b": 2}))
    current.set_progress(9, 10)
    current.update_metadata(b=3, c={"d": None})
    assert current.metadata == {"a": 1, "b": 3, "c": {"d": None}}
    consumer.slots.finish(fate=Fate.RETRIED, error={"error": "x"})
    cycle(consumer)
    sql("UPDATE pgqueue_jobs SET status = 'queued', run_at = now()")
    cycle(consumer)
    again = CurrentJob(consumer.slots.accepted[-1][1], consumer.slots.news.tell)
    assert again.metadata == {"a": 1, "b": 3, "c": {"d": None}}
    state = jobs.get(again.id).state()
    assert (state.progress["done"], state.progress["attempt"], state.attempts) == (9, 1, 2)
    again.set_progress(1)
    cycle(consumer)
    state = jobs.get(again.id).state()
    assert (state.progress["done"], state.progress["attempt"], state.metadata) == (1, 2, again.metadata)


@pytest.mark.parametrize(("done", "total", "message"), [(0, 0, ""), (10**18, 1e18, "x" * 500), (0.5, None, "ü€🙂")])
def test_what_is_in_range_is_stored_as_it_is(consumer, run_one, done, total, message):
    run_one().set_progress(done, total, message)
    cycle(consumer)
    assert told(Job.objects.get()) == (done, total, message)
