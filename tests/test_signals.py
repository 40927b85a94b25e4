"""A signal for every step of a job's life, with what its page says."""

import pytest
from django.db import connection
from django.dispatch import Signal

import tests.app.tasks as app
from django_pgqueue import Unique, signals
from django_pgqueue.jobs import ack, kill, purge, retry
from django_pgqueue.jobs.claim import claim
from django_pgqueue.maintenance.expirer import expire
from django_pgqueue.maintenance.reaper import fail_overdue, settle
from django_pgqueue.maintenance.unique_keys import reacquire_keys
from django_pgqueue.models import DeadJob, Job, SucceededJob
from django_pgqueue.records import Fate, Lease, Outcome
from django_pgqueue.states import Reason
from django_pgqueue.worker.job_log import report_all
from tests.app import contract
from tests.app.models import Mark
from tests.support.claimed import job
from tests.support.doc_pages import names, reference, table
from tests.support.many import enqueued_ids
from tests.support.running import run_claimed

ALL = {name: signal for name, signal in vars(signals).items() if isinstance(signal, Signal)}
ARGUMENTS = {names(row[0])[0]: set(names(row[2])) for row in table(reference("signals").partition("\n## ")[0])}


@pytest.fixture
def heard():
    """What was sent, in its order: name, sender and arguments, which are those that the page has."""
    told, connected = [], []

    def listen(name, signal):
        def receiver(sender, **named):
            given = {key: value for key, value in named.items() if key != "signal"}
            assert set(given) == ARGUMENTS[name], name
            told.append((name, sender, given))

        signal.connect(receiver)
        connected.append((signal, receiver))

    for name, signal in ALL.items():
        listen(name, signal)
    yield told
    for signal, receiver in connected:
        signal.disconnect(receiver)


def named(heard):
    return [name for name, *_ in heard]


@pytest.mark.parametrize("task", [app.fail_until, contract.fail_until], ids=["native", "framework"])
def test_life_of_a_job_that_is_retried_and_succeeds(queue, heard, task):
    task.enqueue(2)
    run_claimed(queue)
    run_claimed(queue)
    assert named(heard) == [
        *["job_enqueued", "job_started", "job_finished", "job_retry_scheduled"],
        *["job_started", "job_finished", "job_succeeded"],
    ]
    assert {sender for _, sender, _ in heard} == {f"{task.func.__module__}.fail_until"}
    assert heard[3][2]["outcome"].fate is Fate.RETRIED


@pytest.mark.parametrize(
    ("task", "args", "last"),
    [
        (app.noop_async, (), "job_succeeded"),
        (app.record_atomic, (), "job_succeeded"),
        (app.snooze, (5,), "job_snoozed"),
        (app.discard, (), "job_died"),
        (contract.afail, (), "job_died"),
    ],
    ids=["async", "atomic", "snoozed", "discarded", "async death"],
)
def test_every_end_of_a_run_has_its_signal(queue, heard, task, args, last):
    task.enqueue(*args)
    run_claimed(queue)
    assert named(heard) == ["job_enqueued", "job_started", "job_finished", last]
    assert heard[2][2] == heard[3][2]


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


def lease(sql, attempts=1):
    sql("INSERT INTO pgqueue_jobs (task) VALUES ('t')")
    [(job_id,)] = sql(
        "UPDATE pgqueue_jobs SET status = 'running', lease_token = 9, worker_id = 5, attempts = %s RETURNING id",
        attempts,
    )
    return Lease(job_id, 9, 5, "default", attempts, 3, 0, False, "web-1 pid 7", "t", 60)


@pytest.mark.parametrize(
    ("act", "attempts_and_reason"),
    [(settle, (1, None)), (settle, (3, Reason.LOST)), (fail_overdue, (1, None)), (fail_overdue, (3, Reason.EXHAUSTED))],
)
def test_worker_that_dies_with_a_job(queue, sql, heard, act, attempts_and_reason):
    attempts, reason = attempts_and_reason
    held = lease(sql, attempts)
    act(queue, [held])
    about = {"id": held.id, "task": "t", "queue": "default", "attempt": attempts, "max_attempts": 3}
    assert heard == [("job_lost", "t", about | {"worker": "web-1 pid 7", "reason": reason})]
    act(queue, [held])
    assert len(heard) == 1, "its lease is gone"


def test_jobs_that_expire(queue, sql, heard):
    app.noop.using(expires=0.001).enqueue()
    sql("UPDATE pgqueue_jobs SET expires_at = now() - interval '1 second'")
    expire(queue)
    assert heard[1:] == [("job_expired", None, {"ids": [DeadJob.objects.get().id], "database": "default"})]
    assert not Job.objects.exists()


def test_job_that_comes_back_after_a_newer_one_with_its_key(queue, heard):
    task = app.snooze.using(unique_key="one", unique=Unique(until="start"))
    first = task.enqueue(0).id
    [held] = claim(queue, "default", limit=1, worker_id=1)
    task.enqueue(0)
    ack.write(queue, [Outcome(held, Fate.RELEASED)])
    reacquire_keys(queue)
    assert heard[2:] == [("job_superseded", None, {"ids": [first], "database": "default"})]


@pytest.mark.parametrize(("reason", "name"), [(Reason.EXPIRED, "job_expired"), (Reason.UNKNOWN_TASK, "job_died")])
def test_jobs_that_die_without_having_begun(heard, reason, name):
    report_all([Outcome(job(), Fate.DIED, reason=reason)], stale=())
    assert named(heard) == [name]
    report_all([Outcome(job(), Fate.DIED, reason=Reason.EXHAUSTED)], stale=())
    assert len(heard) == 1, "its slot has sent one"


def test_receiver_that_raises_harms_nothing(queue, caplog):
    def fail(**_):
        raise RuntimeError("a broken receiver")

    for signal in ALL.values():
        signal.connect(fail)
    try:
        ids = enqueued_ids(app.noop, [(), ()])
        assert run_claimed(queue)[0].fate is Fate.SUCCEEDED
        assert kill(ids, by="ann").dead == ids[1:]
        assert retry(ids, by="ann").ids == ids[1:]
    finally:
        for signal in ALL.values():
            signal.disconnect(fail)
    assert "a broken receiver" in caplog.text


@pytest.mark.parametrize("end", ["unknown task", "lost", "expired"])
def test_receiver_that_leaves_does_not_end_the_thread_of_a_worker(queue, sql, caplog, end):
    def leave(**_):
        raise SystemExit("a broken receiver")

    for signal in ALL.values():
        signal.connect(leave)
    try:
        if end == "unknown task":
            report_all([Outcome(job(), Fate.DIED, reason=Reason.UNKNOWN_TASK)], stale=())
        elif end == "lost":
            assert settle(queue, [lease(sql)]).returned == 1
        else:
            sql("INSERT INTO pgqueue_jobs (task, expires_at) VALUES ('t', now() - interval '1 second')")
            assert expire(queue).dead == 1
    finally:
        for signal in ALL.values():
            signal.disconnect(leave)
    assert "a broken receiver" in caplog.text


def test_connection_that_broke_fails_receivers_of_a_worker_once(queue, caplog):
    def note(ids, **_):
        Mark.objects.create(job_id=ids[0], label="expired")

    job_expired = signals.job_expired
    job_expired.connect(note)
    try:
        for number in range(3):
            queue.rows(EXPIRED, {})
            assert expire(queue).dead == 1
            if number == 0:
                pid = connection.connection.info.backend_pid
                queue.rows("SELECT pg_terminate_backend(%(pid)s)", {"pid": pid})
    finally:
        job_expired.disconnect(note)
    assert Mark.objects.count() == 2
    assert caplog.text.count("Error calling") == 1


EXPIRED = "INSERT INTO pgqueue_jobs (task, expires_at) VALUES ('t', now() - interval '1 second') RETURNING id"
