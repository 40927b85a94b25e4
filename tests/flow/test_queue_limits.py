"""Queues that are paused or limited: what claims take, and how both are set."""

import contextlib
import datetime as dt
import re
import threading

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import queues
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidLimit
from django_pgqueue.flow.concurrency import LockKind, try_lock
from django_pgqueue.flow.queue_limits import Rate, default_burst, end_pauses, rate_of, register_queues
from django_pgqueue.insights import formatting
from django_pgqueue.jobs import claim as claiming
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job, Queue
from tests.support.consumers import cycle
from tests.support.many import enqueued_ids
from tests.support.queue_limits import HOUR, finish, pass_by, take
from tests.support.waiting import PATIENCE_SECONDS, beside, eventually


def count(database, **options):
    return len(take(database, **options)[0])


# Claims


def columns(name):
    """Return what a statement returns as a list of expressions, without names of its own."""
    returned = statement(name).split("RETURNING")[1].split("\n),")[0]
    parts = re.split(r",\s(?![^()]*\))", returned.strip().rstrip(";"))
    return [re.sub(r"\s+AS \w+$", "", " ".join(part.split())) for part in parts]


def test_limited_claim_sets_and_returns_what_the_plain_one_does():
    assert columns("claim_limited") == columns("claim") == columns("claim_above")
    [plain, limited] = (
        " ".join(re.search(r"SET (status = 'running'.*?)\s+WHERE ctid", statement(name), re.DOTALL)[1].split())
        for name in ("claim", "claim_limited")
    )
    assert plain == limited


def test_plain_claim_takes_nothing_from_a_queue_with_a_limit(queue):
    app.noop.enqueue_many([()] * 3)
    for limits in ({"max_running": 5}, {"max_running": None, "rate": 5}):
        queues.limit("default", **limits)
        assert claim(queue, "default", limit=3, worker_id=1) == []
    queues.limit("default", rate=None)
    queues.pause("default", by="ann")
    assert claim(queue, "default", limit=3, worker_id=1) == []
    queues.resume("default", by="ann")
    assert len(claim(queue, "default", limit=3, worker_id=1)) == 3


def test_no_more_run_at_once_than_may(queue, other_queue):
    queues.limit("default", max_running=5)
    app.noop.enqueue_many([()] * 20)
    jobs, _ = take(queue, limit=3)
    assert len(jobs) == 3
    assert count(other_queue) == 2
    assert count(queue) == 0
    finish(queue, jobs)
    assert count(other_queue) == 3


def test_jobs_of_other_queues_do_not_count(queue):
    queues.limit("mail", max_running=2)
    app.noop.enqueue_many([()] * 5)
    app.noop.using(queue="mail").enqueue_many([()] * 5)
    assert len(claim(queue, "default", limit=5, worker_id=1)) == 5
    assert count(queue, name="mail") == 2


def test_limited_jobs_come_in_the_order_of_plain_ones(queue):
    queues.limit("default", max_running=3)
    low = app.noop.using(priority=-1).enqueue().id
    first, second = enqueued_ids(app.noop, [(), ()])
    high = app.noop.using(priority=9).enqueue().id
    jobs, _ = take(queue)
    assert [job.id for job in jobs] == [high, first, second]
    assert Job.objects.get(status="queued").id == low


def test_paused_queue_lets_no_job_in_whatever_its_limit(queue):
    queues.limit("default", max_running=5)
    app.noop.enqueue_many([()] * 5)
    queues.pause("default", by="ann", resume_at=HOUR)
    assert count(queue) == 0
    pass_by(3601)
    assert count(queue) == 5


def test_lowered_limit_lets_no_job_in_until_enough_have_ended(queue):
    queues.limit("default", max_running=4)
    app.noop.enqueue_many([()] * 8)
    jobs, _ = take(queue)
    queues.limit("default", max_running=2)
    assert count(queue) == 0
    finish(queue, jobs[:2])
    assert count(queue) == 0
    finish(queue, jobs[2:3])
    assert count(queue) == 1


def test_many_claimers_at_once_never_exceed_the_limit(transactional_db):
    queues.limit("default", max_running=3)
    ids = enqueued_ids(app.noop, [()] * 120)
    counts, failures = [], []

    def work():
        database = QueueConnection("default", "rival")
        try:
            while Job.objects.filter(pk__in=ids).exists():
                jobs, _ = take(database, limit=2)
                counts.append(Job.objects.filter(status="running").count())
                if jobs:
                    finish(database, jobs)
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            database.close()
            connection.close()

    rivals = [threading.Thread(target=work) for _ in range(6)]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join(PATIENCE_SECONDS)
    assert not failures
    assert not Job.objects.exists()
    assert max(counts) <= 3


def test_bucket_gives_its_burst_and_then_what_comes_in(queue):
    queues.limit("default", rate="10/10000s", burst=4)
    app.noop.enqueue_many([()] * 30)
    assert count(queue, limit=1) == 1
    assert count(queue) == 3
    assert count(queue) == 0
    pass_by(900)
    assert count(queue) == 0
    pass_by(1200)
    assert count(queue) == 2
    pass_by(1_000_000)
    assert count(queue) == 4, "no more fit into the bucket"


def test_clock_that_is_set_back_fills_the_bucket_and_no_more(queue):
    queues.limit("default", rate="1/1000s", burst=2)
    app.noop.enqueue_many([()] * 9)
    assert [count(queue), count(queue)] == [2, 0]
    pass_by(-3600)
    _, (has_more, token_seconds) = take(queue, limit=1)
    assert (has_more, token_seconds) == (True, 0)
    assert [count(queue), count(queue)] == [1, 0]


def test_fractions_of_tokens_are_not_lost(queue):
    queues.limit("default", rate="1/1000s", burst=2)
    app.noop.enqueue_many([()] * 5)
    counts = [count(queue)]
    for seconds in (600, 600, 850):
        pass_by(seconds)
        counts.append(count(queue))
    assert counts == [2, 0, 1, 1]


def test_tokens_are_spent_though_the_row_of_the_queue_changes_while_jobs_are_claimed(
    queue, other_queue, sql, monkeypatch
):
    """Between the snapshot of the claim and its lock, where it waits here for one more lock."""
    queues.limit("default", rate="1/1000s", burst=2)
    app.noop.enqueue_many([()] * 5)
    before, rest = statement("claim_limited").split("FROM ", maxsplit=1)
    texts = {"claim_limited": f"{before}FROM pg_advisory_xact_lock(6), {rest}"}
    monkeypatch.setattr(claiming, "statement", lambda name: texts.get(name) or statement(name))
    counts = []
    with contextlib.ExitStack() as later, other_queue.transaction():
        other_queue.rows("SELECT pg_advisory_xact_lock(6)", {})
        later.enter_context(beside(lambda: counts.append(count(queue))))
        eventually(lambda: sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
        sql("UPDATE pgqueue_queues SET max_running = 9")
    assert [*counts, count(queue)] == [2, 0]


def test_both_limits_hold(queue):
    queues.limit("default", max_running=3, rate="1/1000s", burst=2)
    app.noop.enqueue_many([()] * 9)
    first, _ = take(queue)
    assert len(first) == 2
    pass_by(5000)
    assert count(queue) == 1
    pass_by(5000)
    finish(queue, first)
    assert count(queue) == 2


def test_answer_says_whether_and_when_to_come_back(queue):
    queues.limit("default", rate="1/1000s")
    assert take(queue) == ([], (False, 0.0))
    app.noop.enqueue_many([()] * 3)
    jobs, (has_more, seconds) = take(queue)
    assert (len(jobs), has_more) == (1, True)
    assert 900 < seconds <= 1000
    queues.limit("default", rate=None, max_running=1)
    assert take(queue) == ([], (True, 0.0))


def test_session_that_is_just_counting_keeps_others_out_without_a_wait(queue, other_queue):
    queues.limit("default", max_running=5)
    app.noop.enqueue_many([()] * 5)
    with other_queue.transaction():
        assert try_lock(other_queue, LockKind.QUEUE, ["default"]).got()
        assert take(queue) == ([], (True, 0.0))
        app.noop.using(queue="mail").enqueue()
        assert len(claim(queue, "mail", limit=1, worker_id=1)) == 1, "other queues go on"
    assert count(queue) == 5


def test_open_transaction_that_changes_a_limit_is_not_waited_for(queue):
    queues.limit("default", max_running=2)
    queues.limit("mail", rate=5)
    app.noop.enqueue_many([()] * 5)
    app.noop.using(queue="mail").enqueue_many([()] * 5)
    with transaction.atomic():
        queues.limit("default", max_running=4)
        queues.limit("mail", rate=100)
        assert count(queue) == 2, "as it was before"
        assert count(queue, name="mail") == 0, "tokens cannot be spent meanwhile"
    assert count(queue) == 2
    assert count(queue, name="mail") > 0


# Actions


def test_pause_is_written_down_and_taken_back(transactional_db):
    assert queues.pause("mail", by="ann", reason="provider is down")
    row = Queue.objects.get(pk="mail")
    assert (row.paused_by, row.pause_reason, row.resume_at) == ("ann", "provider is down", None)
    assert not queues.pause("mail", by="bob", reason="still", resume_at=HOUR)
    again = Queue.objects.get(pk="mail")
    assert (again.paused_by, again.paused_at) == ("bob", row.paused_at)
    assert abs(again.resume_at - timezone.now() - HOUR) < dt.timedelta(minutes=1)
    assert queues.resume("mail", by="ann")
    assert not queues.resume("mail", by="ann")
    assert not queues.resume("unknown", by="ann")
    row = Queue.objects.get(pk="mail")
    assert (row.paused_at, row.resume_at, row.paused_by, row.pause_reason) == (None, None, "", "")


def test_pause_ends_by_the_clock_of_the_database(queue):
    app.noop.enqueue()
    queues.pause("default", by="ann", resume_at=HOUR)
    pass_by(3000)
    assert claim(queue, "default", limit=1, worker_id=1) == []
    pass_by(600)
    assert len(claim(queue, "default", limit=1, worker_id=1)) == 1
    assert queues.pause("default", by="bob", resume_at=timezone.now() + HOUR), "it had not been paused any more"
    pass_by(3700)
    assert not queues.resume("default", by="ann"), "its time had passed"


def test_changes_are_undone_with_the_callers_transaction(transactional_db):
    with contextlib.suppress(ZeroDivisionError), transaction.atomic():
        queues.pause("default", by="ann")
        queues.limit("default", max_running=1)
        raise ZeroDivisionError
    assert not Queue.objects.exists()


def test_limits_that_are_not_named_stay(transactional_db):
    queues.limit("default", max_running=5)
    queues.limit("default", rate="60/m", burst=7)
    queues.limit("default", max_running=6)
    row = Queue.objects.get()
    assert (row.max_running, row.rate_limit, row.rate_period_seconds, row.rate_burst) == (6, 60, 60.0, 7)
    queues.limit("default", rate=None)
    row = Queue.objects.get()
    assert (row.max_running, row.rate_limit, row.rate_period_seconds, row.rate_burst) == (6, None, None, None)


def test_setting_a_rate_again_does_not_fill_the_bucket(queue):
    """As a deployment does that sets its limits each time."""
    app.noop.enqueue_many([()] * 50)
    queues.limit("default", rate="1/1000s", burst=10)
    assert count(queue) == 10
    queues.limit("default", rate="1/1000s", burst=10)
    assert count(queue) == 0
    pass_by(3500)
    queues.limit("default", rate="1/2000s", burst=2)
    assert count(queue) == 2
    queues.limit("default", rate="1/2000s", burst=20)
    assert count(queue) == 0


@pytest.mark.parametrize(
    ("rate", "period", "burst"), [(100, 1, 20), (1, 1, 1), (60, 60, 1), (1000, 1, 200), (1, 3600, 1)]
)
def test_burst_is_a_fifth_of_a_second_by_default(rate, period, burst):
    assert default_burst(Rate(rate, period)) == burst


@pytest.mark.parametrize(
    ("action", "options", "message"),
    [
        (queues.pause, {"name": "", "by": "ann"}, "The name of a queue is a name of 1 to 128 characters, not ''"),
        (queues.pause, {"name": "x" * 129, "by": "ann"}, "1 to 128"),
        (queues.pause, {"by": None}, "by is a text without NUL or a user, not None"),
        (queues.pause, {"by": "ann", "reason": "\0"}, "reason is a text"),
        (queues.pause, {"by": "ann", "resume_at": -HOUR}, "a time from now of 36500 days at most"),
        (queues.pause, {"by": "ann", "resume_at": 60}, "resume_at is a datetime or a timedelta, not 60"),
        (queues.pause, {"by": "ann", "resume_at": dt.datetime(2030, 1, 1)}, "naive"),
        (queues.pause, {"by": "ann", "resume_at": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)}, "resume_at is over already"),
        (queues.pause, {"by": "ann", "resume_at": dt.datetime.max.replace(tzinfo=dt.UTC)}, "between the years"),
        (queues.resume, {"name": 5, "by": "ann"}, "1 to 128"),
        (queues.limit, {"max_running": 0}, "1 or more, or None to remove the limit. To let nothing start, pause"),
        (queues.limit, {"max_running": -1}, "max_running is a whole number from 1 to 1,000,000, or None, not -1"),
        (queues.limit, {"max_running": True}, "not True"),
        (queues.limit, {"rate": 0}, "rate is 1 or more, or None to remove the limit"),
        (queues.limit, {"rate": 0.5}, "A rate is a whole number, of jobs a second, or a text as in 100/s"),
        (queues.limit, {"rate": 5, "burst": 0}, "burst is 1 or more"),
        (queues.limit, {"max_running": 3, "burst": 5}, "A burst belongs to a rate, and there is none"),
        (queues.limit, {"rate": None, "burst": 5}, "A burst belongs to a rate, and there is none"),
        (queues.limit, {}, "Name a limit to set, or to remove by None: max_running or rate"),
        (queues.limit, {"rate": 5, "by": 7}, "by is a text without NUL or a user, not 7"),
    ],
)
def test_what_cannot_work_is_refused(transactional_db, action, options, message):
    with pytest.raises(InvalidLimit, match=re.escape(message)):
        action(**{"name": "default", **options})
    assert not Queue.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "values",
    [
        "('')",
        "('a', NULL, 0)",
        "('a', NULL, NULL, 5)",
        "('a', NULL, NULL, NULL, 1, 1)",
        "('a', NULL, NULL, 5, 'NaN', 1)",
        "('a', NULL, NULL, 5, 0, 1)",
        "('a', now())",
    ],
)
def test_database_refuses_limits_that_cannot_be(sql, values):
    names = ["name", "resume_at", "max_running", "rate_limit", "rate_period_seconds", "rate_burst"]
    names = names[: values.count(",") + 1]
    with pytest.raises(IntegrityError):
        sql(f"INSERT INTO pgqueue_queues ({', '.join(names)}) VALUES {values}")


@pytest.mark.parametrize(
    ("written", "rate"),
    [
        (100, (100, 1.0)),
        ("100/s", (100, 1.0)),
        ("60/m", (60, 60.0)),
        ("5/10s", (5, 10.0)),
        ("3/1.5h", (3, 5400.0)),
        ("1/d", (1, 86400.0)),
        ("1000000/52w", (1_000_000, 52 * 7 * 86400.0)),
    ],
)
def test_rate_is_a_number_a_second_or_a_number_in_a_period(written, rate):
    assert rate_of(written) == rate
    assert rate_of(formatting.rate(*rate)) == rate


@pytest.mark.parametrize("written", ["60", "60 / m", "/m", "60/", "60/y", "-1/s", "1.5/s", "1/1e3s", 0.5, True, None])
def test_what_is_no_rate_is_refused(written):
    with pytest.raises(InvalidLimit, match=r"A rate is a whole number, of jobs a second, or a text as in 100/s"):
        rate_of(written)


@pytest.mark.parametrize("written", [0, -1, 1_000_001, "0/s", "1000001/s", "1/0s", "1/53w"])
def test_rate_out_of_range_is_refused(written):
    with pytest.raises(InvalidLimit, match=r"A rate is 1 to 1,000,000 jobs in a period above 0 and of a year at most"):
        rate_of(written)


def test_queues_are_noted_when_they_have_jobs(queue, sql):
    for name in ("b", "a", "a"):
        app.noop.using(queue=name).enqueue()
    app.noop.using(queue="runs").enqueue()
    claim(queue, "runs", limit=1, worker_id=1)
    queues.limit("b", max_running=3)
    assert sorted(register_queues(queue)) == ["a", "runs"]
    assert register_queues(queue) == []
    assert set(Queue.objects.values_list("name", "max_running")) == {("a", None), ("b", 3), ("runs", None)}


def test_queue_whose_row_another_session_is_just_making_is_noted_later(queue):
    for name in ("a", "b"):
        app.noop.using(queue=name).enqueue()
    with transaction.atomic():
        queues.pause("a", by="ann")
        assert register_queues(queue) == ["b"]
    assert register_queues(queue) == []


def test_pauses_that_are_over_are_taken_down(queue):
    queues.pause("a", by="ann", reason="lunch", resume_at=HOUR)
    queues.pause("b", by="ann")
    queues.limit("a", max_running=3)
    assert end_pauses(queue) == []
    pass_by(3601)
    assert end_pauses(queue) == ["a"]
    assert set(Queue.objects.values_list("name", "paused_by", "pause_reason", "max_running")) == {
        ("a", "", "", 3),
        ("b", "ann", "", None),
    }


def test_queue_has_its_row_from_the_first_claim_on(consumer):
    app.noop.using(queue="new").enqueue()
    consumer.wake(["new"])
    cycle(consumer)
    assert Queue.objects.filter(name="new").exists()
