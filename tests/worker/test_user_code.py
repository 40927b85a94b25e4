"""Code of the project that maintenance calls, and that does not return: everything else goes on."""

import logging
import threading
from datetime import timedelta

import pytest
from django.db.models.functions import Now

import tests.app.tasks as app
from django_pgqueue import registry
from django_pgqueue.keys import KeysBy
from django_pgqueue.models import DeadJob, Job, Schedule
from django_pgqueue.signals import announce, job_died, job_purged, sent_elsewhere
from django_pgqueue.worker import user_code
from django_pgqueue.worker.config import WorkerConfig
from django_pgqueue.worker.supervisor import Supervisor
from tests.support.waiting import PATIENCE_SECONDS, eventually

RECORD = "tests.app.tasks.record"


@pytest.fixture
def house(transactional_db):
    """The maintenance of a command without processes, in a thread that the test starts."""
    supervisor = Supervisor(WorkerConfig())
    supervisor.pool.close()
    yield supervisor
    supervisor.finish()


@pytest.fixture
def limits():
    """What a function of the project waits for, until the test opens it."""
    made = threading.Event()
    yield made
    made.set()


def expired() -> int:
    job_id = app.noop.using(expires=60).enqueue().id
    Job.objects.filter(pk=job_id).update(expires_at=Now())
    return job_id


def test_receiver_that_does_not_return_keeps_maintenance_from_nothing(house, limits):
    told = []

    def receive(event, **_):
        limits.wait(PATIENCE_SECONDS)
        told.append((event.id, threading.current_thread().name))

    job_died.connect(receive)
    try:
        first = expired()
        house._maintenance_loop.start()
        eventually(DeadJob.objects.filter(pk=first).exists)
        due = app.noop.using(delay=timedelta(seconds=0.5)).enqueue().id
        eventually(Job.objects.filter(pk=due, status="queued").exists)
        assert told == []
        limits.set()
        eventually(lambda: told)
        assert told == [(first, "pgqueue-signals")]
    finally:
        job_died.disconnect(receive)


def test_last_signals_are_sent_before_the_command_ends(house, limits):
    told = []

    def receive(event, **_):
        limits.wait(PATIENCE_SECONDS)
        told.append(event.id)

    job_died.connect(receive)
    try:
        first = expired()
        house._maintenance_loop.start()
        eventually(DeadJob.objects.filter(pk=first).exists)
        threading.Timer(0.1, limits.set).start()
        house.finish()
        assert told == [first]
    finally:
        job_died.disconnect(receive)


def test_key_that_is_never_computed_keeps_maintenance_from_nothing(house, limits, monkeypatch, caplog):
    """Its schedule is passed over, and again while the function of an earlier tick has not returned."""
    monkeypatch.setattr(user_code, "KEY_SECONDS", 0.2)
    by, calls = registry.get(RECORD).keys_by, []

    def compute(label):
        if label == "stuck":
            calls.append(label)
            limits.wait(PATIENCE_SECONDS)
        return label

    registry.get(RECORD).keys_by = KeysBy(unique=compute)
    try:
        make = Schedule.objects.create
        stuck = make(name="a", task=RECORD, args=["stuck"], every_seconds=3600, next_at=Now())
        house._maintenance_loop.start()
        eventually(Schedule.objects.filter(pk=stuck.id, last_error__contains="not returned within 0.2 s").exists)
        Schedule.objects.filter(pk=stuck.id).update(next_at=Now())
        eventually(Schedule.objects.filter(pk=stuck.id, last_error__contains="since an earlier tick").exists)
        assert calls == ["stuck"]
        monkeypatch.setattr(user_code, "KEY_SECONDS", PATIENCE_SECONDS)  # for those that return, however late
        good = make(name="b", task=RECORD, args=["good"], every_seconds=3600, next_at=Now())
        eventually(Job.objects.filter(schedule_id=good.id).exists)
        limits.set()
        eventually(lambda: not [one for one in threading.enumerate() if one.name == "pgqueue-keys"][1:])
        Schedule.objects.filter(pk=stuck.id).update(next_at=Now())
        eventually(Job.objects.filter(schedule_id=stuck.id).exists)
    finally:
        registry.get(RECORD).keys_by = by


def test_signals_beyond_those_that_may_wait_are_dropped_and_that_is_logged(limits, monkeypatch, caplog):
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(user_code, "MOST_WAITING", 2)
    thread, began, made = user_code.UserThread("test"), threading.Event(), []
    thread.call_later(lambda: [began.set(), limits.wait(PATIENCE_SECONDS)])
    assert began.wait(PATIENCE_SECONDS)
    for number in range(4):
        thread.call_later(lambda number=number: made.append(number))
    assert not thread.close(0)
    limits.set()
    eventually(lambda: not thread._thread.is_alive())
    assert made == [0, 1]
    assert [record.getMessage() for record in caplog.records] == [
        "Receivers of signals do not keep up: 2 wait, others are dropped"
    ]


def test_signal_of_a_pass_is_sent_when_its_transactions_are_over():
    told, sent = [], []
    receive = lambda **named: told.append(named["ids"])  # noqa: E731
    job_purged.connect(receive)
    try:
        with sent_elsewhere(sent.append):
            announce(job_purged, ids=[1])
            assert (told, sent) == ([], [])
        assert told == []
        [send] = sent
        send()
        assert told == [[1]]
        announce(job_purged, ids=[2])
        assert told == [[1], [2]]
    finally:
        job_purged.disconnect(receive)


@pytest.mark.parametrize("error", [KeyError("odd"), TimeoutError("its own"), SystemExit(3)])
def test_what_a_function_of_a_key_raises_is_raised_where_it_is_waited_for(error):
    keys = user_code.KeyThread()

    def fail():
        raise error

    expected = (RuntimeError, "SystemExit: 3") if isinstance(error, SystemExit) else (type(error), str(error))
    with pytest.raises(expected[0]) as raised:
        keys.compute("a", fail)
    assert str(raised.value) == expected[1]
    assert keys.compute("a", lambda: 5) == 5
    keys.close(PATIENCE_SECONDS)
