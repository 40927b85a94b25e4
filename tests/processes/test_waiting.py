"""Wait for jobs that real workers run."""

import datetime as dt
import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from asgiref.sync import async_to_sync
from django.db import connection

import tests.app.tasks as app
from django_pgqueue import jobs
from django_pgqueue.exceptions import JobFailed, JobWasKilled
from django_pgqueue.jobs import kill
from django_pgqueue.jobs import waiter as waiting
from django_pgqueue.models import Job
from tests.app.models import Mark
from tests.support import prestarted
from tests.support.many import enqueued_ids
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.workers import database_url

pytestmark = pytest.mark.django_db(transaction=True)

SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE %s AND datname = current_database()"


@pytest.fixture(autouse=True)
def _no_caller_waits_in_the_end(transactional_db):
    yield
    waiting.stop_all()


@pytest.fixture
def worker(start_worker):
    return start_worker("--concurrency=4").wait_until_ready()


@pytest.fixture
def start_python():
    """Start other processes of the same project, which run some lines of Python."""
    started = []

    def start(lines: str, **settings) -> subprocess.Popen:
        environment = {**os.environ, "DATABASE_URL": database_url(), "PGQUEUE": json.dumps(settings)}
        command = ["shell", "-v0", "-c", lines]
        process = prestarted.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process) -> str:
    output, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, errors
    return output.strip()


@pytest.mark.parametrize("notify", [True, False])
def test_wait_returns_what_the_task_returned(start_worker, settings, notify):
    """However the end is learned of."""
    settings.PGQUEUE = {"NOTIFY": notify, "POLL_SECONDS": 0.1}
    start_worker("--concurrency=4", PGQUEUE=json.dumps(settings.PGQUEUE)).wait_until_ready()
    for wait in (
        lambda handle: handle.result(PATIENCE_SECONDS),
        lambda handle: async_to_sync(handle.aresult)(PATIENCE_SECONDS),
    ):
        assert wait(app.record.enqueue("x")) == "recorded x"
        assert wait(app.arecord.enqueue("y")) == "recorded y"
        assert wait(app.noop.enqueue()) is None
        assert wait(app.record_atomic.enqueue("z")) is None
        with pytest.raises(JobFailed, match="discarded after attempt 1"):
            wait(app.discard.enqueue())


@pytest.mark.parametrize("task", [app.record_when_told, app.record_atomic_when_told])
def test_worker_announces_the_end_of_awaited_jobs(worker, settings, tmp_path, task):
    """No caller looks in between."""
    settings.PGQUEUE = {"POLL_SECONDS": 3600}
    path = tmp_path / "go"
    handles = [task.enqueue(str(path)) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        waiters = [pool.submit(handle.result, PATIENCE_SECONDS) for handle in handles]
        eventually(lambda: Job.objects.filter(has_waiters=True).count() == 3)
        path.touch()
        assert [waiter.result(PATIENCE_SECONDS) for waiter in waiters] == ["told"] * 3


def test_death_by_a_kill_is_announced(worker, settings):
    settings.PGQUEUE = {"POLL_SECONDS": 3600}
    running, later = app.asleep.enqueue(600).id, app.noop.using(delay=dt.timedelta(hours=1)).enqueue().id
    with ThreadPoolExecutor(2) as pool:
        waiters = [pool.submit(jobs.get(job_id).result, PATIENCE_SECONDS) for job_id in (running, later)]
        eventually(lambda: Job.objects.filter(has_waiters=True).count() == 2)
        eventually(Job.objects.filter(pk=running, status="running").exists)  # kill() steps over one being claimed
        kill([running, later], by="a test")
        for waiter in waiters:
            with pytest.raises(JobWasKilled, match="killed"):
                waiter.result(PATIENCE_SECONDS)


def test_processes_wait_for_the_same_job_each_for_itself(worker, start_python, tmp_path):
    path = tmp_path / "go"
    handle = app.record_when_told.enqueue(str(path))
    lines = f"from django_pgqueue import jobs; print(jobs.get({handle.id}).result({PATIENCE_SECONDS}))"
    processes = [start_python(lines, POLL_SECONDS=3600) for _ in range(2)]
    eventually(lambda: len(listeners()) == 2)
    eventually(lambda: Job.objects.filter(has_waiters=True).exists())
    path.touch()
    assert [said(process) for process in processes] == ["told", "told"]


FORK = """
import os
from django_pgqueue import jobs
first, second = (jobs.get(job_id) for job_id in {ids})
print(first.result({seconds}), flush=True)
if child := os.fork():
    assert os.waitpid(child, 0)[1] == 0
    print(second.result({seconds}), flush=True)
else:
    code = 1
    try:
        print(second.result({seconds}), flush=True)
        code = 0
    finally:
        os._exit(code)
"""


def test_process_made_by_fork_waits_for_itself(worker, start_python):
    """While the thread and the connections of the original are there, which that goes on to use."""
    ids = enqueued_ids(app.record, [("one",), ("two",)])
    assert said(start_python(FORK.format(ids=ids, seconds=PATIENCE_SECONDS))).split("\n") == [
        "recorded one",
        "recorded two",
        "recorded two",
    ]


def test_waiter_that_is_killed_leaves_nothing(worker, start_python, tmp_path):
    path = tmp_path / "go"
    handle = app.record_when_told.enqueue(str(path))
    waiter = start_python(f"from django_pgqueue import jobs; jobs.get({handle.id}).result(600)")
    eventually(lambda: Job.objects.filter(has_waiters=True).exists())
    waiter.send_signal(signal.SIGKILL)
    eventually(lambda: not listeners())
    path.touch()
    assert handle.result(PATIENCE_SECONDS) == "told"
    assert Job.objects.count() == 0


def test_job_that_waits_for_another_can_be_interrupted(worker):
    later = app.noop.using(delay=dt.timedelta(hours=1)).enqueue()
    with pytest.raises(JobFailed, match="JobTimeout"):
        app.wait_for.using(timeout=12).enqueue(later.id).result(PATIENCE_SECONDS)
    assert worker.children() == [Mark.objects.get().pid], "the process was not ended for it"


def listeners() -> list:
    with connection.cursor() as cursor:
        cursor.execute(SESSIONS, ["pgqueue waiting listener"])
        return cursor.fetchall()
