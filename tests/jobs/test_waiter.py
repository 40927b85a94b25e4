"""Callers wait for jobs, in this process; what a worker does is done step by step."""

import asyncio
import gc
import logging
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

import tests.app.tasks as app
from django_pgqueue import jobs
from django_pgqueue.conf import DEFAULTS
from django_pgqueue.db.connections import QueueConnection
from django_pgqueue.db.notify import notify_waiters, send_notification
from django_pgqueue.exceptions import ConfigurationError, JobFailed
from django_pgqueue.jobs import ack
from django_pgqueue.jobs import waiter as waiting
from django_pgqueue.jobs import waiter as watch
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job
from django_pgqueue.records import Fate, Outcome
from django_pgqueue.states import DeathReason
from tests.support.many import enqueued_ids
from tests.support.prestarted import MANAGE
from tests.support.results import SESSIONS, end
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.workers import database_url

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_caller_waits_in_the_end")]

NEVER = {"POLL_SECONDS": 3600}
"""A caller that has noted that it waits looks no more: only an announcement helps."""

CUT = SESSIONS.replace("pid", "pg_terminate_backend(pid, 30000)", 1)


WAITING = """
import atexit, threading
import tests.app.tasks as app

def server_goes():
    print([thread.name for thread in threading.enumerate()])

atexit.register(server_goes)
try:
    app.noop.enqueue().result(timeout=0.1)
except TimeoutError:
    print([thread.name for thread in threading.enumerate()])
"""


@pytest.fixture
def pool():
    with ThreadPoolExecutor(20) as made:
        yield made


def wait(handle, seconds=PATIENCE_SECONDS):
    try:
        return handle.result(seconds)
    finally:
        connection.close()


def are_noted(number=1) -> bool:
    return Job.objects.filter(has_waiters=True).count() == number


def test_alias_that_is_no_postgresql_is_named():
    with pytest.raises(ConfigurationError, match="'lite' is sqlite"):
        jobs.get(1, database="lite").result(PATIENCE_SECONDS)


# What ends meanwhile


def test_end_is_announced_to_callers_that_wait(queue, settings, pool):
    settings.PGQUEUE = NEVER
    handle = app.noop.enqueue()
    waiters = [pool.submit(wait, handle) for _ in range(3)]
    eventually(are_noted)
    end(queue, result='"done"')
    assert [waiter.result(PATIENCE_SECONDS) for waiter in waiters] == ["done"] * 3


def test_jobs_that_are_not_awaited_are_not_announced(queue, pool):
    with QueueConnection("default", "ear").autocommit() as ear:
        ear.execute("LISTEN pgqueue_done")
        app.noop.enqueue()
        end(queue)
        handle = app.noop.enqueue()
        waiter = pool.submit(wait, handle)
        eventually(are_noted)
        end(queue)
        waiter.result(PATIENCE_SECONDS)
        assert [notify.payload for notify in ear.notifies(timeout=PATIENCE_SECONDS, stop_after=1)] == [str(handle.id)]


def test_death_is_announced_to_callers_that_wait(queue, settings, pool):
    settings.PGQUEUE = NEVER
    waiter = pool.submit(wait, app.noop.enqueue())
    eventually(are_noted)
    end(queue, Fate.DIED, reason=DeathReason.DISCARDED, error={"error": "Discard", "message": "no such order"})
    with pytest.raises(JobFailed, match="discarded after attempt 1: Discard: no such order"):
        waiter.result(PATIENCE_SECONDS)


def test_wait_goes_on_over_retries(queue, sql, settings, pool):
    settings.PGQUEUE = NEVER
    waiter = pool.submit(wait, app.noop.enqueue())
    eventually(are_noted)
    end(queue, Fate.RETRIED, error={"error": "x"})
    assert are_noted()
    sql("UPDATE pgqueue_jobs SET status = 'queued', run_at = now()")
    end(queue, result="2")
    assert waiter.result(PATIENCE_SECONDS) == 2


def test_caller_that_waits_for_a_job_that_repeats_waits_for_this_run(queue, settings, pool):
    settings.PGQUEUE = NEVER
    waiter = pool.submit(wait, app.noop.enqueue())
    eventually(are_noted)
    end(queue, Fate.REPEATED, result="1", delay_seconds=600)
    assert waiter.result(PATIENCE_SECONDS) == 1
    assert are_noted(0)


def test_announcement_of_a_job_that_lives_again_is_no_end(queue, settings, pool):
    """It was retried before a caller looked; or another session sends any payload on the channel."""
    settings.PGQUEUE = NEVER
    handle = app.noop.enqueue()
    waiter = pool.submit(wait, handle)
    eventually(are_noted)
    send_notification(queue, [str(handle.id), "nonsense", "-7"], channel="pgqueue_done")
    end(queue, result="1")
    assert waiter.result(PATIENCE_SECONDS) == 1


def test_end_that_is_not_announced_is_found_by_looking(queue, settings, pool):
    settings.PGQUEUE = {"POLL_SECONDS": 0.1}
    waiter = pool.submit(wait, app.noop.enqueue())
    eventually(are_noted)
    end(queue, tells=False, result="1")
    assert waiter.result(PATIENCE_SECONDS) == 1


def test_without_notify_no_session_listens_and_nothing_is_noted(queue, sql, settings, pool):
    settings.PGQUEUE = {"NOTIFY": False, "POLL_SECONDS": 0.05}
    waiters = [pool.submit(wait, jobs.get(job_id)) for job_id in enqueued_ids(app.noop, [()] * 3)]
    eventually(lambda: sql(SESSIONS, "pgqueue waiting"))
    with pytest.raises(TimeoutError):
        app.noop.using(delay=3600).enqueue().result(0.5)
    assert not Job.objects.filter(has_waiters=True).exists()
    assert sql(SESSIONS, "pgqueue waiting listener") == []
    end(queue, result="1")
    assert [waiter.result(PATIENCE_SECONDS) for waiter in waiters] == [1, 1, 1]


def test_locked_row_is_noted_later_and_holds_up_no_other(queue, settings, pool):
    settings.PGQUEUE = {"POLL_SECONDS": 0.1}
    locked, free = enqueued_ids(app.noop, [()] * 2)
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=locked)
        waiters = [pool.submit(wait, jobs.get(job_id)) for job_id in (locked, free)]
        eventually(are_noted)
        assert end(queue, result="1") == [free]
        assert waiters[1].result(PATIENCE_SECONDS) == 1
        assert are_noted(0)
    eventually(are_noted)
    end(queue, result="2")
    assert waiters[0].result(PATIENCE_SECONDS) == 2


def test_many_wait_in_one_event_loop_without_a_thread_each(queue, settings):
    settings.PGQUEUE = NEVER
    ids = enqueued_ids(app.noop, [()] * 100)

    async def wait_for_all():
        waiting_for_all = [asyncio.create_task(jobs.get(job_id).aresult(PATIENCE_SECONDS)) for job_id in ids]
        await asyncio.to_thread(in_thread, lambda: eventually(lambda: are_noted(100)))
        threads = {thread.name for thread in threading.enumerate() if not thread.name.startswith("asyncio")}
        await asyncio.to_thread(in_thread, lambda: end(queue, result="1"))
        return threads, await asyncio.gather(*waiting_for_all)

    before = {thread.name for thread in threading.enumerate()}
    threads, results = asyncio.run(wait_for_all())
    assert results == [1] * 100
    assert threads - before <= {"pgqueue-waiting-default"}


def in_thread(function):
    try:
        return function()
    finally:
        connection.close()


# Trouble


@pytest.mark.parametrize("name", ["pgqueue waiting listener", "pgqueue waiting"])
def test_connection_that_is_cut_is_opened_again_and_nothing_is_missed(queue, sql, settings, pool, name):
    settings.PGQUEUE = NEVER
    waiter = pool.submit(wait, app.noop.enqueue())
    eventually(are_noted)
    [before] = sql(SESSIONS, name)
    assert sql(CUT, name) == [(True,)]
    end(queue, result="1")
    assert waiter.result(PATIENCE_SECONDS) == 1
    waiter = pool.submit(wait, app.noop.enqueue())
    eventually(are_noted)
    assert before not in eventually(lambda: sql(SESSIONS, name))
    end(queue, result="2")
    assert waiter.result(PATIENCE_SECONDS) == 2


def test_while_the_database_is_away_all_callers_wait(queue, settings, pool, monkeypatch, caplog):
    settings.PGQUEUE = {"POLL_SECONDS": 0.05}
    handle, is_away = app.noop.enqueue(), threading.Event()
    look = watch.look

    def fail(database, wanted):
        if is_away.is_set():
            database._wrapper.settings_dict["HOST"] = "/nowhere"
            database.close()
        return look(database, wanted)

    monkeypatch.setattr(watch, "look", fail)
    is_away.set()
    stays = waiting.waiter_for("default", handle.id)  # the others may have left before the test looks
    waiters = [pool.submit(wait, handle, seconds) for seconds in (0.5, 1.0)]
    eventually(lambda: "Callers of result() cannot ask the database" in caplog.text)
    for waiter in waiters:
        with pytest.raises(TimeoutError, match="not found yet"):
            waiter.result(PATIENCE_SECONDS)
    assert caplog.text.count("cannot ask the database") == 1
    assert not stays.done()


def test_error_that_waiting_does_not_mend_is_raised(queue, monkeypatch):
    def fail(database, wanted):
        database.rows("SELECT 1 / 0", {})

    monkeypatch.setattr(watch, "look", fail)
    with pytest.raises(Exception, match="division by zero"):
        app.noop.enqueue().result(PATIENCE_SECONDS)


def test_thread_that_fails_tells_all_callers_and_the_next_one_starts(queue, monkeypatch, caplog):
    handle = app.noop.enqueue()
    monkeypatch.setattr(watch, "find_many", lambda *_: 1 / 0)
    end(queue, result="1")
    with caplog.at_level(logging.ERROR), pytest.raises(ZeroDivisionError):
        handle.result(PATIENCE_SECONDS)
    assert "the next call starts another" in caplog.text
    monkeypatch.undo()
    assert handle.result(PATIENCE_SECONDS) == 1


def test_thread_that_cannot_start_fails_for_its_caller_and_is_tried_again(queue, settings, monkeypatch):
    handle = app.noop.enqueue()
    end(queue, result="1")
    settings.PGQUEUE = {"LISTEN_DATABASE": "nowhere"}
    with pytest.raises(ConfigurationError, match="'nowhere' is not in DATABASES"):
        handle.result(PATIENCE_SECONDS)
    settings.PGQUEUE = {}

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        handle.result(PATIENCE_SECONDS)
    monkeypatch.undo()
    assert handle.result(PATIENCE_SECONDS) == 1


def test_job_that_python_cannot_hold_is_waited_for_like_any_other(queue, sql, settings, pool):
    """SQL can store a number of more digits than Python reads."""
    settings.PGQUEUE = NEVER
    ids = enqueued_ids(app.noop, [()] * 2)
    waiters = [pool.submit(wait, jobs.get(job_id)) for job_id in ids]
    eventually(lambda: are_noted(2))
    sql("UPDATE pgqueue_jobs SET metadata = %s WHERE id = %s", f'{{"n": {"9" * 5000}}}', ids[0])
    claimed = claim(queue, "default", limit=2, worker_id=1)
    ack.write(queue, [Outcome(one, Fate.SUCCEEDED, result="1") for one in claimed])
    notify_waiters(queue, ids)
    assert [waiter.result(PATIENCE_SECONDS) for waiter in waiters] == [1, 1]


def test_caller_that_has_left_is_forgotten_while_others_stay(queue, settings, pool):
    settings.PGQUEUE = {"POLL_SECONDS": 0.05}
    handle = app.noop.enqueue()
    stays = pool.submit(wait, handle)
    eventually(are_noted)
    leaves = weakref.ref(waiting.waiter_for("default", handle.id))
    leaves().cancel()
    eventually(lambda: gc.collect() >= 0 and leaves() is None)
    end(queue, result="1")
    assert stays.result(PATIENCE_SECONDS) == 1


def test_test_database_can_be_dropped_when_the_last_test_has_waited():
    """The server waits for five seconds until it is not used. A caller that has left is noticed with the next look."""
    assert watch.LINGER_SECONDS + DEFAULTS["POLL_SECONDS"] < 5


def test_thread_ends_with_its_connections_when_no_caller_waits(queue, sql, monkeypatch):
    monkeypatch.setattr(watch, "LINGER_SECONDS", 0.0)
    handle = app.noop.enqueue()
    end(queue, result="1")
    for _ in range(3):
        assert handle.result(PATIENCE_SECONDS) == 1
        eventually(lambda: "pgqueue-waiting-default" not in {thread.name for thread in threading.enumerate()})
        eventually(lambda: sql(SESSIONS, "pgqueue waiting") == sql(SESSIONS, "pgqueue waiting listener") == [])


def test_thread_ends_before_a_server_that_the_process_has_started():
    """Else it would warn, at the end of each script, that the server is gone."""
    done = subprocess.run(
        [sys.executable, str(MANAGE), "shell", "-v0", "-c", WAITING],
        env={**os.environ, "DATABASE_URL": database_url()},
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    while_it_runs, at_its_end = done.stdout.splitlines()
    assert "pgqueue-waiting-default" in while_it_runs
    assert at_its_end == "['MainThread']"
    assert not done.stderr
