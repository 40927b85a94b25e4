"""One look at the tables, however many ask."""

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.insights import overview
from django_pgqueue.insights.bounded import TookTooLong
from django_pgqueue.insights.overview import OverviewData, SharedReading, read_overview
from django_pgqueue.models import Job, Queue
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.worker_rows import worker

pytestmark = pytest.mark.django_db

NOTHING = OverviewData(queues=(), workers=0)


def oldest(name: str) -> float | None:
    return {line.name: line.oldest_seconds for line in read_overview().queues}[name]


def test_a_look_tells_queues_and_workers():
    worker(queues=["mail"])
    Queue.objects.create(name="mail")
    enqueue_many(app.noop, [()] * 3)
    found = read_overview()
    assert {line.name: (line.queued.value, line.workers) for line in found.queues} == {
        "default": (3, 0),
        "mail": (0, 1),
    }
    assert found.workers == 1


def test_age_counts_from_run_at_by_the_clock_of_the_database(sql):
    """Neither when the job was stored counts, nor what this machine thinks of the time."""
    Job.objects.create(task="x", queue="a", run_at=timezone.now() - dt.timedelta(hours=1))
    Job.objects.create(task="x", queue="a", run_at=timezone.now() + dt.timedelta(hours=1), priority=5)
    true = "SELECT extract(epoch FROM statement_timestamp() - min(run_at))::float FROM pgqueue_jobs"
    [(before,)], found, [(after,)] = sql(true), oldest("a"), sql(true)
    assert before <= found <= after


def test_job_that_is_due_ages_although_no_worker_is_there_to_promote_it(sql):
    job = app.noop.using(queue="a", run_at=dt.timedelta(hours=1)).enqueue()
    Queue.objects.create(name="a")
    assert oldest("a") is None
    sql("UPDATE pgqueue_jobs SET run_at = statement_timestamp() - interval '7 min' WHERE id = %s", job.id)
    assert oldest("a") >= 420


def test_reserved_does_not_age(sql):
    Queue.objects.create(name="a")
    app.noop.using(queue="a", run_at=dt.timedelta(hours=1)).enqueue()
    sql("UPDATE pgqueue_jobs SET run_at = statement_timestamp() - interval '7 min', status = 'reserved'")
    assert oldest("a") is None


def test_look_is_stopped_in_time(settings, monkeypatch, sql):
    settings.PGQUEUE = {"ADMIN_TIMEOUT_SECONDS": 0.05}
    monkeypatch.setattr(overview, "living_workers", lambda _: sql("SELECT pg_sleep(60)"))
    with pytest.raises(TookTooLong):
        read_overview()


@pytest.fixture
def long_seconds(monkeypatch):
    """Let what a look has found be fresh for long, however slow the test is."""
    monkeypatch.setattr(overview, "FRESH_SECONDS", 3600.0)


def test_callers_within_a_second_get_the_same_look(monkeypatch, long_seconds):
    looks: list[int] = []
    shared = SharedReading(lambda: looks.append(1) or NOTHING)
    shared.measures()
    shared.measures()
    assert len(looks) == 1
    monkeypatch.setattr(overview, "FRESH_SECONDS", 0.0)
    shared.measures()
    assert len(looks) == 2


def test_those_who_ask_during_a_look_wait_for_it(long_seconds):
    looks, asked, go_on = [], threading.Barrier(9, timeout=PATIENCE_SECONDS), threading.Event()

    def slow() -> OverviewData:
        looks.append(1)
        go_on.wait(PATIENCE_SECONDS)
        return NOTHING

    def ask() -> OverviewData:
        asked.wait()
        return shared.measures()

    shared = SharedReading(slow)
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(ask) for _ in range(8)]
        asked.wait()
        go_on.set()
        assert {id(answer.result(PATIENCE_SECONDS)) for answer in answers} == {id(NOTHING)}
    assert len(looks) == 1


def test_trouble_is_shared_too(long_seconds):
    looks: list[int] = []

    def failing() -> OverviewData:
        looks.append(1)
        raise OperationalError("away")

    shared = SharedReading(failing)
    for _ in range(2):
        with pytest.raises(OperationalError, match="away"):
            shared.measures()
    assert len(looks) == 1


def test_no_caller_waits_for_longer_than_wanted_for_a_look_in_another_thread(long_seconds):
    go_on = threading.Event()
    threads: list[threading.Thread] = []

    def begin(looking) -> None:
        threads.append(threading.Thread(target=looking))
        threads[0].start()

    shared = SharedReading(lambda: go_on.wait(PATIENCE_SECONDS) and NOTHING, begin)
    with pytest.raises(TimeoutError):
        shared.measures(wait_seconds=0.0)
    go_on.set()
    assert shared.measures(wait_seconds=PATIENCE_SECONDS) is NOTHING
    threads[0].join(PATIENCE_SECONDS)
    assert len(threads) == 1
