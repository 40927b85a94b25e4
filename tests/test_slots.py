"""Slots, run in this process: whatever happens around a job, its cell comes back."""

import queue as stdlib_queue
import threading

import pytest
from django.db.backends.signals import connection_created

import tests.app.tasks as app
from django_pgqueue.base.records import Fate
from django_pgqueue.base.states import Reason
from django_pgqueue.lifecycle.claim import claim
from django_pgqueue.runtime import slots as slots_module
from django_pgqueue.runtime.marks import Marks, now
from django_pgqueue.runtime.slots import Slots
from django_pgqueue.runtime.tidy import watch_connections
from tests.app.models import Mark


@pytest.fixture
def slots(transactional_db):
    opened = []
    note = lambda connection, **_: opened.append(connection)  # noqa: E731 - dispatchers compare by identity
    connection_created.connect(note)
    watch_connections()
    marks = Marks()
    marks.extend(now() + 600)
    yield Slots(2, marks, stdlib_queue.SimpleQueue())
    connection_created.disconnect(note)
    for connection in opened:
        if connection.connection is not None and threading.get_ident() != connection._thread_ident:
            connection.connection.close()  # its thread waits for jobs and would keep it open


@pytest.fixture
def give(queue, slots):
    """Enqueue a job of a task, claim it, and hand it to the slots."""

    def run(task, cell=0):
        task.enqueue()
        [job] = claim(queue, "default", limit=1, worker_id=1)
        slots.accept(cell, job)
        return job

    return run


@pytest.mark.parametrize("task", [app.cancel_itself, app.leave_a_cancel_behind])
def test_job_that_leaves_a_cancel_behind_ends_all_the_same(slots, give, task):
    job = give(task)
    cell, outcome = slots.outbox.get(timeout=10)
    assert (cell, outcome.job, slots._running) == (0, job, {})
    assert Mark.objects.filter(job_id=job.id).exists(), "it was in user code, and in the lane's thread"
    give(app.noop_async, cell=0)
    assert slots.outbox.get(timeout=10)[1].fate is Fate.SUCCEEDED, "the lane goes on"


def test_cancel_that_comes_before_user_code_is_not_lost(slots, give, monkeypatch):
    """While the connections of a lane that was idle are being checked, as with a server that does not answer."""
    checking, checked = threading.Event(), threading.Event()
    give(app.arecord)
    assert slots.outbox.get(timeout=10)[1].fate is Fate.SUCCEEDED
    monkeypatch.setattr(slots_module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(slots_module, "check_connections", lambda: checking.set() or checked.wait(10))
    job = give(app.sleep_for_ever)
    assert checking.wait(10)
    slots.cancel(job.id)
    checked.set()
    outcome = slots.outbox.get(timeout=10)[1]
    assert (outcome.fate, outcome.reason) == (Fate.DIED, Reason.KILLED)


@pytest.mark.parametrize("task", [app.noop, app.noop_async])
def test_cache_that_cannot_be_made_does_not_stop_the_slots(slots, give, settings, task):
    settings.CACHES = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "unused": {"BACKEND": "tests.test_slots.Unmade"},
    }
    give(task)
    assert slots.outbox.get(timeout=10)[1].fate is Fate.SUCCEEDED


class Unmade:
    """A cache backend whose library is not installed."""

    def __init__(self, *_):
        raise ImportError("no such library")


def test_lane_asks_its_thread_only_once_whether_it_is_tidy(slots, give, monkeypatch):
    """Going to another thread and back takes longer than most jobs."""
    calls = []
    call = slots_module.Lane.call
    monkeypatch.setattr(slots_module.Lane, "call", lambda lane, what: calls.append(what.__name__) or call(lane, what))
    slots.concurrency = 1
    for _ in range(3):
        give(app.arecord)
        assert slots.outbox.get(timeout=10)[1].fate is Fate.SUCCEEDED
    assert calls == ["_meet"]
