"""A signal for every step of a job's life, with what its page says."""

import copy
import datetime as dt
import pickle

import pytest
from django.db import connection
from django.dispatch import Signal, receiver
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import Unique, registry, signals
from django_pgqueue.jobs import ack, kill, purge, retry
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.expirer import expire
from django_pgqueue.maintenance.reaper import fail_overdue, settle
from django_pgqueue.maintenance.unique_keys import reacquire_keys
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.records import Fate, Lease, Outcome
from django_pgqueue.signals import announce_deaths, attempt_lost, deaths, job_died
from django_pgqueue.states import DeathReason
from tests.app import contract
from tests.app.models import Mark
from tests.support.claimed import job
from tests.support.doc_pages import names, reference, table
from tests.support.many import enqueued_ids
from tests.support.running import run_claimed

ALL = {name: signal for name, signal in vars(signals).items() if isinstance(signal, Signal)}
ARGUMENTS = {names(row[0])[0]: set(names(row[2])) for row in table(reference("signals").partition("\n## event")[0])}


def test_signals_and_their_event_are_what_the_module_exports():
    assert {*signals.__all__} == {*ALL, "JobEvent"}


@pytest.fixture
def connect(monkeypatch):
    """Return what connects a receiver to a signal until the end of the test."""
    for signal in ALL.values():
        monkeypatch.setattr(signal, "receivers", list(signal.receivers))

    def connect(signal, call, **options):
        signal.connect(call, weak=False, **options)

    return connect


@pytest.fixture
def heard(connect):
    """What was sent, in its order: name, sender and arguments, which are those that the page has."""
    told = []

    def listen(name, signal):
        def receive(sender, **named):
            given = {key: value for key, value in named.items() if key != "signal"}
            assert set(given) == ARGUMENTS[name], name
            told.append((name, sender, given))

        connect(signal, receive)

    for name, signal in ALL.items():
        listen(name, signal)
    return told


@pytest.fixture
def died(connect):
    """The events of deaths."""
    events = []
    connect(job_died, lambda event, **_: events.append(event))
    return events


def named(heard):
    return [name for name, *_ in heard]


@pytest.mark.parametrize("task", [app.fail_until, contract.fail_until], ids=["native", "framework"])
def test_life_of_a_job_that_is_retried_and_succeeds(queue, heard, task):
    task.enqueue(2)
    run_claimed(queue)
    run_claimed(queue)
    assert named(heard) == [
        *["job_enqueued", "attempt_started", "attempt_ended", "job_retry_scheduled"],
        *["attempt_started", "attempt_ended", "job_succeeded"],
    ]
    assert {sender for _, sender, _ in heard} == {registry.find(f"{task.func.__module__}.fail_until")}
    event = heard[3][2]["event"]
    assert (event.outcome, event.attempt, event.args, event.kwargs) == ("retried", 1, [2], {})
    assert event.error["message"]
    assert (event.delay_seconds, event.run_seconds > 0) == (0.0, True)
    assert (heard[6][2]["event"].outcome, heard[6][2]["event"].attempt) == ("succeeded", 2)


@pytest.mark.parametrize(
    ("task", "args", "rest"),
    [
        (app.noop_async, (), ["job_succeeded"]),
        (app.record_atomic, (), ["job_succeeded"]),
        (app.snooze, (5,), ["job_snoozed"]),
        (app.discard, (), ["job_died"]),
        (contract.afail, (), ["job_died"]),
    ],
    ids=["async", "atomic", "snoozed", "discarded", "async death"],
)
def test_every_end_of_a_run_has_its_signal(queue, heard, task, args, rest):
    task.enqueue(*args)
    run_claimed(queue)
    assert named(heard) == ["job_enqueued", "attempt_started", "attempt_ended", *rest]
    assert heard[2][2]["event"] == heard[3][2]["event"]


def test_event_can_be_copied_and_pickled_and_not_changed(queue, died):
    app.discard.enqueue()
    run_claimed(queue)
    [event] = died
    event.error.clear()
    event.args.append(1)
    assert (event.error["error"], event.args) == ("django_pgqueue.exceptions.Discard", [])
    assert pickle.loads(pickle.dumps(event)) == copy.deepcopy(event) == event
    assert len({event, copy.copy(event)}) == 1


@pytest.mark.parametrize(
    "sender",
    [
        pytest.param(app.discard, id="task"),
        pytest.param(app.discard.using(priority=3), id="copy"),
        pytest.param(contract.fail, id="framework"),
        pytest.param(contract.fail.using(priority=3), id="copy of the framework"),
        pytest.param(contract.fail.native, id="native of the framework"),
    ],
)
def test_receiver_of_one_task_is_called_for_its_jobs_alone(queue, connect, sender):
    events = []
    connect(job_died, lambda event, **_: events.append(event.id), sender=sender)
    wanted = sender.using(priority=9).enqueue().id
    (contract.fail if sender.func is app.discard.func else app.discard).enqueue()
    run_claimed(queue, limit=2)
    assert events == [int(wanted)]


def test_receiver_of_a_task_hears_of_jobs_under_its_former_name(queue, sql, connect):
    events = []
    connect(job_died, lambda event, **_: events.append(event.task), sender=app.renamed)
    sql("INSERT INTO pgqueue_jobs (task, args) VALUES ('tests.app.tasks.old_name', '[1, 2, 3, 4]')")
    sql("UPDATE pgqueue_jobs SET max_attempts = 1")
    run_claimed(queue)
    sql("INSERT INTO pgqueue_jobs (task) VALUES ('tests.app.tasks.old_name')")
    kill(Job.objects.values_list("pk", flat=True), by="ann")
    assert events == ["tests.app.tasks.old_name"] * 2


def test_name_of_a_task_is_refused_as_a_sender_because_it_would_never_match():
    with pytest.raises(TypeError, match=r"sender=send_receipt, not 'tests\.app\.tasks\.discard'"):
        receiver(job_died, sender="tests.app.tasks.discard")(print)


def test_receiver_is_disconnected_by_a_copy_of_its_task(connect):
    del connect  # which puts back what was connected
    job_died.connect(print, sender=app.discard)
    assert job_died.disconnect(print, sender=app.discard.using(queue="x"))


def test_task_of_another_backend_of_the_framework_may_be_a_sender(connect):
    connect(job_died, print, sender=contract.fail.using(backend="dummy"))


def test_what_people_do_with_jobs(queue, heard):
    ids = enqueued_ids(app.noop, [(), ()])
    assert kill([*ids, 10**9], by="ann").dead == ids
    assert retry(ids[:1], by="bob").ids == ids[:1]
    purge(ids, by="cleo")
    run_claimed(queue)
    purge([SucceededJob.objects.get().id], by="cleo", succeeded=True)
    people = [(name, given) for name, sender, given in heard if sender is None]
    assert people == [
        ("job_killed", {"ids": ids, "requested": [], "by": "ann", "database": "default"}),
        ("job_retried", {"ids": ids[:1], "by": "bob", "database": "default"}),
        ("job_purged", {"ids": ids[1:], "by": "cleo", "succeeded": False, "database": "default"}),
        ("job_purged", {"ids": ids[:1], "by": "cleo", "succeeded": True, "database": "default"}),
    ]


def test_nothing_is_sent_where_nothing_was_done(db, heard):
    kill([1], by="ann")
    retry([1], by="ann")
    purge([1], by="ann")
    assert heard == []


# Deaths


def test_each_job_that_is_killed_has_died(db, died):
    ids = [app.noop.enqueue().id, app.record.using(queue="mails").enqueue(label="x").id]
    kill(ids, by="ann")
    assert [event.id for event in died] == ids
    one = died[1]
    assert (one.task, one.queue, one.attempt, one.database) == (app.record.name, "mails", 0, "default")
    assert (one.reason, one.outcome, one.args, one.kwargs) == (DeathReason.KILLED, "died", [], {"label": "x"})
    assert one.error == {**DeadJob.objects.get(pk=one.id).errors[-1]}


def test_running_job_that_is_killed_has_died_when_it_has_stopped(queue, heard, died):
    job_id = app.noop.enqueue().id
    [held] = claim(queue, "default", limit=1, worker_id=1)
    kill([job_id], by="ann")
    assert died == []
    outcome = Outcome(held, Fate.DIED, reason=DeathReason.KILLED)
    ack.write(queue, [outcome])
    announce_deaths(deaths([outcome], stale=()))
    assert [(event.id, event.reason, event.attempt) for event in died] == [(job_id, "killed", 1)]


def test_job_that_is_dead_can_be_retried_by_a_receiver(queue, connect):
    connect(job_died, lambda event, **_: retry([event.id], by="receiver"))
    job_id = app.discard.enqueue().id
    run_claimed(queue)
    assert Job.objects.get().id == job_id


def test_outcome_that_was_dropped_is_no_death():
    assert job_died.receivers or not deaths([Outcome(job(), Fate.DIED, reason=DeathReason.EXHAUSTED)], stale={1})


def lease(sql, attempts=1):
    sql("INSERT INTO pgqueue_jobs (task, args) VALUES ('t', '[7]')")
    [(job_id,)] = sql(
        "UPDATE pgqueue_jobs SET status = 'running', lease_token = 9, worker_id = 5, attempts = %s RETURNING id",
        attempts,
    )
    return Lease(job_id, 9, 5, "default", attempts, 3, 0, False, "web-1 pid 7", "t", 60)


@pytest.mark.parametrize(
    ("act", "end"),
    [
        (settle, (1, "lost", None)),
        (settle, (3, "died", DeathReason.LOST)),
        (fail_overdue, (1, "retried", None)),
        (fail_overdue, (3, "died", DeathReason.EXHAUSTED)),
    ],
)
def test_worker_that_dies_with_a_job(queue, sql, heard, act, end):
    attempts, outcome, reason = end
    held = lease(sql, attempts)
    sql("UPDATE pgqueue_jobs SET max_attempts = 3")
    act(queue, [held])
    assert named(heard) == (["attempt_lost", "job_died"] if reason else ["attempt_lost"])
    assert heard[0][2]["worker"] == "web-1 pid 7"
    for _, sender, given in heard:
        event = given["event"]
        assert sender is None, "no task is called so"
        assert (event.id, event.task, event.queue, event.args) == (held.id, "t", "default", [7])
        assert (event.attempt, event.max_attempts, event.outcome, event.reason) == (attempts, 3, outcome, reason)
        assert event.error["error"]
    number = len(heard)
    act(queue, [held])
    assert len(heard) == number, "its lease is gone"


def test_attempt_that_is_retried_after_its_process_was_ended_tells_when(queue, sql, heard):
    before = timezone.now()
    fail_overdue(queue, [lease(sql, 2)])
    [(_, _, given)] = heard
    ended_at = Job.objects.get().run_at - dt.timedelta(seconds=given["event"].delay_seconds)
    assert before <= ended_at <= timezone.now()


@pytest.mark.parametrize(("act", "reason"), [(settle, "lost"), (fail_overdue, "exhausted")])
def test_lost_attempt_that_a_job_dies_by_is_told_where_nothing_hears_of_deaths(queue, sql, connect, act, reason):
    events = []
    connect(attempt_lost, lambda event, **_: events.append(event))
    held = lease(sql, 3)
    act(queue, [held])
    assert not job_died.receivers
    assert [(event.id, event.outcome, event.reason, event.args) for event in events] == [(held.id, "died", reason, [7])]


def test_jobs_that_expire(queue, sql, heard):
    app.noop.using(expires=0.001).enqueue()
    sql("UPDATE pgqueue_jobs SET expires_at = now() - interval '1 second'")
    expire(queue)
    [(name, sender, given)] = heard[1:]
    assert (name, sender) == ("job_died", app.noop)
    event = given["event"]
    assert (event.id, event.reason, event.attempt) == (DeadJob.objects.get().id, DeathReason.EXPIRED, 0)
    assert "not started by" in event.error["message"]
    assert not Job.objects.exists()


def test_job_that_comes_back_after_a_newer_one_with_its_key(queue, died):
    task = app.snooze.using(unique_key="one", unique=Unique(until="start"))
    first = task.enqueue(0).id
    [held] = claim(queue, "default", limit=1, worker_id=1)
    newer = task.enqueue(0).id
    ack.write(queue, [Outcome(held, Fate.RELEASED)])
    reacquire_keys(queue)
    assert [(event.id, event.reason, event.error["conflict"]) for event in died] == [(first, "superseded", newer)]


@pytest.mark.parametrize(("reason", "attempt"), [(DeathReason.EXPIRED, 0), (DeathReason.UNKNOWN_TASK, 1)])
def test_jobs_that_die_without_having_begun(died, reason, attempt):
    announce_deaths(deaths([Outcome(job(), Fate.DIED, reason=reason)], stale=()))
    assert [(event.reason, event.attempt) for event in died] == [(reason, attempt)]


def test_statements_return_no_arguments_where_nothing_receives_them(queue, sql, connect):
    del connect
    queue_rows = []
    rows = queue.rows
    queue.rows = lambda *given: queue_rows.extend(found := rows(*given)) or found
    settle(queue, [lease(sql, 3)])
    del queue.rows
    assert {row[3:] for row in queue_rows} == {(None,)}


# Receivers that fail


def test_receiver_that_raises_harms_nothing(queue, connect, caplog):
    def fail(**_):
        raise RuntimeError("a broken receiver")

    for signal in ALL.values():
        connect(signal, fail)
    ids = enqueued_ids(app.noop, [(), ()])
    assert run_claimed(queue)[0].fate is Fate.SUCCEEDED
    assert kill(ids, by="ann").dead == ids[1:]
    assert retry(ids, by="ann").ids == ids[1:]
    assert "a broken receiver" in caplog.text


@pytest.mark.parametrize("end", ["unknown task", "lost", "expired"])
def test_receiver_that_leaves_does_not_end_the_thread_of_a_worker(queue, sql, connect, caplog, end):
    def leave(**_):
        raise SystemExit("a broken receiver")

    for signal in ALL.values():
        connect(signal, leave)
    if end == "unknown task":
        announce_deaths(deaths([Outcome(job(), Fate.DIED, reason=DeathReason.UNKNOWN_TASK)], stale=()))
    elif end == "lost":
        assert settle(queue, [lease(sql)]).returned == 1
    else:
        sql("INSERT INTO pgqueue_jobs (task, expires_at) VALUES ('t', now() - interval '1 second')")
        assert expire(queue).dead == 1
    assert "a broken receiver" in caplog.text


def test_connection_that_broke_fails_receivers_of_a_worker_once(queue, connect, caplog):
    connect(job_died, lambda event, **_: Mark.objects.create(job_id=event.id, label="expired"))
    for number in range(3):
        queue.rows(EXPIRED, {})
        assert expire(queue).dead == 1
        if number == 0:
            pid = connection.connection.info.backend_pid
            queue.rows("SELECT pg_terminate_backend(%(pid)s)", {"pid": pid})
    assert Mark.objects.count() == 2
    assert caplog.text.count("Error calling") == 1


EXPIRED = "INSERT INTO pgqueue_jobs (task, expires_at) VALUES ('t', now() - interval '1 second') RETURNING id"
