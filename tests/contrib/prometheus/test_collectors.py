"""Collectors: what they tell has the names, types and labels of the list, and all scrapes share a reading."""

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connections, transaction
from django.utils import timezone
from prometheus_client import CollectorRegistry, generate_latest

import tests.app.tasks as app
from django_pgqueue import batch
from django_pgqueue.contrib.prometheus import QueueCollector, collectors
from django_pgqueue.contrib.prometheus.collectors import SharedReading, TableFigures, WorkerCollector, read_tables
from django_pgqueue.contrib.prometheus.families import OF_TABLES, OF_WORKERS
from django_pgqueue.db.queries import TookTooLong
from django_pgqueue.insights import overview, workflow_info
from django_pgqueue.jobs.stats import BOUNDS, RUN_BUCKETS, RUN_SECONDS, SUCCEEDED
from django_pgqueue.models import Job, Queue, Stage, Workflow
from django_pgqueue.worker.metrics import CommandCounters
from tests.support.scraping import figures, must_lint, sheet_of
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.workflows import plain, stuck


@pytest.mark.django_db
def test_everything_that_is_told_has_the_name_and_type_of_the_list(settings):
    """Whatever queues and tasks are called."""
    made = CommandCounters()
    row = made.made().row('"quoted"\n', "Aufgabe ü 🦆")
    row[SUCCEEDED], row[RUN_SECONDS], row[RUN_BUCKETS + len(BOUNDS)] = 1, 10**6, 1
    Queue.objects.create(name='back\\slash "x"')
    Queue.objects.create(name="bounded")
    settings.PGQUEUE = {**settings.PGQUEUE, "QUEUES": {"bounded": {"max_backlog": 7}}}
    both = (QueueCollector(), WorkerCollector(lambda: figures(made)))
    sheet = sheet_of(*both)
    assert sheet.kinds == {name.name: name.kind for name in (*OF_TABLES, *OF_WORKERS)}
    assert sheet.of("pgqueue_job_run_seconds_bucket", queue='"quoted"\n', task="Aufgabe ü 🦆", le="+Inf") == 1
    assert sheet.of("pgqueue_job_run_seconds_bucket", queue='"quoted"\n', task="Aufgabe ü 🦆", le="14400.0") == 0
    assert sheet.of("pgqueue_queue_max_backlog", queue="bounded") == 7
    assert sheet.of("pgqueue_workers", queue='back\\slash "x"') == 0
    labels = {name.name: set(name.labels) for name in (*OF_TABLES, *OF_WORKERS)}
    for family in (family for collector in both for family in collector.collect()):
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == labels[family.name]
    registry = CollectorRegistry()
    for collector in both:
        registry.register(collector)
    must_lint(generate_latest(registry).decode())


@pytest.mark.django_db
def test_number_that_is_a_lower_bound_says_so(monkeypatch):
    monkeypatch.setattr(overview, "CAPS", (3,))
    app.noop.enqueue_many([()] * 5)
    sheet = sheet_of(QueueCollector())
    told = [sheet.of(name, queue="default", status="queued") for name in ("pgqueue_jobs", "pgqueue_jobs_capped")]
    assert told == [3, 1]
    assert sheet.of("pgqueue_jobs_capped", queue="default", status="running") == 0


@pytest.mark.django_db
def test_one_job_that_waits_for_long_raises_the_oldest_age_and_not_the_p99():
    hour, minute = (timezone.now() - dt.timedelta(seconds=ago) for ago in (3600, 60))
    app.noop.enqueue_many([()] * 300)
    Job.objects.update(run_at=minute, enqueued_at=minute)
    Job.objects.filter(pk=Job.objects.earliest("pk").pk).update(run_at=hour, enqueued_at=hour)
    sheet = sheet_of(QueueCollector())
    assert sheet.of("pgqueue_oldest_runnable_seconds", queue="default") >= 3600
    assert 60 <= sheet.of("pgqueue_waiting_p99_seconds", queue="default") < 3600


@pytest.mark.django_db
def test_workflows_are_counted_by_name():
    stuck(name="import")
    plain("a", name="import", deadline=3600)
    Workflow.objects.filter(pk=plain("a", name="report").id).update(deadline_at=timezone.now())
    plain("a", name="letters").kill()
    batch([], sealed=False, name="letters").enqueue()
    Stage.objects.filter(is_sealed=False).update(opened_at=timezone.now() - dt.timedelta(hours=2))
    ended, now = Workflow.objects.filter(name="letters", status="killed"), timezone.now()
    ended.update(begun_at=now - dt.timedelta(minutes=5), ended_at=now)
    old = {"begun_at": timezone.now() - dt.timedelta(days=1), "ended_at": timezone.now() - dt.timedelta(hours=2)}
    Workflow.objects.create(name="old", status="failed", **old)
    sheet = sheet_of(QueueCollector())

    def told(name: str, **labels: str) -> dict[str, float]:
        return {flow: sheet.of(name, workflow=flow, **labels) for flow in ("import", "report", "letters")}

    assert told("pgqueue_workflows_open") == {"import": 2, "report": 1, "letters": 1}
    assert told("pgqueue_workflows_stuck") == told("pgqueue_stages_stuck") == {"import": 1, "report": 0, "letters": 0}
    assert told("pgqueue_workflows_overdue") == {"import": 0, "report": 1, "letters": 0}
    assert told("pgqueue_stages_open") == {"import": 2, "report": 1, "letters": 1}
    assert told("pgqueue_stages_unsealed") == {"import": 0, "report": 0, "letters": 1}
    assert told("pgqueue_workflows_ended", status="killed") == {"import": 0, "report": 0, "letters": 1}
    assert told("pgqueue_workflow_p50_seconds") == {"import": None, "report": None, "letters": pytest.approx(300)}
    assert all(seconds > 0 for seconds in told("pgqueue_oldest_workflow_seconds").values())
    assert sheet.of("pgqueue_workflows_capped") == 0
    assert sheet.of("pgqueue_workflows_ended", workflow="old", status="failed") is None


@pytest.mark.django_db
def test_names_of_workflows_and_what_is_counted_are_bounded(monkeypatch):
    monkeypatch.setattr(workflow_info, "MOST_NAMES", 2)
    for name in ("a", "a", "a", "b", "b", "c", "d"):
        plain("x", name=name)
    sheet = sheet_of(QueueCollector())
    told = {flow: sheet.of("pgqueue_workflows_open", workflow=flow) for flow in ("a", "b", "c", "")}
    assert told == {"a": 3, "b": 2, "c": None, "": 2}
    assert sheet.of("pgqueue_workflows_capped") == 0
    monkeypatch.setattr(workflow_info, "MOST_OPEN", 4)
    sheet = sheet_of(QueueCollector())
    assert sheet.total("pgqueue_workflows_open") == sheet.total("pgqueue_stages_open") == 4
    assert sheet.of("pgqueue_workflows_capped") == 1


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_outbox_tells_what_waits_there(outbox):
    names = ("pgqueue_outbox_waiting", "pgqueue_outbox_oldest_seconds")
    sheet = sheet_of(QueueCollector())
    assert [sheet.of(name, outbox="other") for name in names] == [0, 0]
    with transaction.atomic(using=outbox):
        app.noop.enqueue_many([()] * 3)
    with connections[outbox].cursor() as cursor:
        cursor.execute("UPDATE pgqueue_outbox SET enqueued_at = now() - interval '1 hour'")
    sheet = sheet_of(QueueCollector())
    waiting, oldest = [sheet.of(name, outbox="other") for name in names]
    assert waiting == 3
    assert 3600 <= oldest < 7200


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_outbox_that_cannot_be_read_leaves_the_queues_readable(settings, caplog):
    settings.PGQUEUE = settings.PGQUEUE | {"OUTBOXES": {"other": 5}}  # has no such table
    Queue.objects.create(name="mail")
    sheet = sheet_of(QueueCollector())
    assert sheet.of("pgqueue_up") == 1
    assert sheet.of("pgqueue_workers", queue="mail") == 0
    assert sheet.of("pgqueue_outbox_waiting", outbox="other") is None
    assert "Metrics do without the outbox on 'other'" in caplog.text


def test_command_tells_what_it_has_handed_over():
    sheet = sheet_of(WorkerCollector(lambda: figures(CommandCounters(), handed_over={"default": 7})))
    assert sheet.of("pgqueue_outbox_handed_over_total", outbox="default") == 7


def test_registering_reads_no_table():
    """Nor would a database be needed: a test without one fails if it is asked."""
    CollectorRegistry(auto_describe=True).register(QueueCollector())


@pytest.mark.django_db
def test_look_is_stopped_in_time(settings, monkeypatch, sql):
    settings.PGQUEUE = {"READ_TIMEOUT_SECONDS": 0.05}
    monkeypatch.setattr(overview, "living_workers", lambda _: sql("SELECT pg_sleep(60)"))
    with pytest.raises(TookTooLong):
        read_tables()


# One look for all

NOTHING = TableFigures([], [])


@pytest.fixture
def long_seconds(monkeypatch):
    """Let what a look has found be fresh for long, however slow the test is."""
    monkeypatch.setattr(collectors, "FRESH_SECONDS", 3600.0)


def test_callers_within_a_second_get_the_same_look(monkeypatch, long_seconds):
    looks: list[int] = []
    shared = SharedReading(lambda: looks.append(1) or NOTHING)
    shared.latest()
    shared.latest()
    assert len(looks) == 1
    monkeypatch.setattr(collectors, "FRESH_SECONDS", 0.0)
    shared.latest()
    assert len(looks) == 2


def test_those_who_ask_during_a_look_wait_for_it(long_seconds):
    looks, asked, go_on = [], threading.Barrier(9, timeout=PATIENCE_SECONDS), threading.Event()

    def slow() -> TableFigures:
        looks.append(1)
        go_on.wait(PATIENCE_SECONDS)
        return NOTHING

    def ask() -> TableFigures:
        asked.wait()
        return shared.latest()

    shared = SharedReading(slow)
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(ask) for _ in range(8)]
        asked.wait()
        go_on.set()
        assert {id(answer.result(PATIENCE_SECONDS)) for answer in answers} == {id(NOTHING)}
    assert len(looks) == 1


def test_trouble_is_shared_too(long_seconds):
    looks: list[int] = []

    def failing() -> TableFigures:
        looks.append(1)
        raise OperationalError("away")

    shared = SharedReading(failing)
    for _ in range(2):
        with pytest.raises(OperationalError, match="away"):
            shared.latest()
    assert len(looks) == 1


def test_no_caller_waits_for_longer_than_wanted_for_a_look_in_another_thread(long_seconds):
    go_on = threading.Event()
    threads: list[threading.Thread] = []

    def begin(looking) -> None:
        threads.append(threading.Thread(target=looking))
        threads[0].start()

    shared = SharedReading(lambda: go_on.wait(PATIENCE_SECONDS) and NOTHING, begin)
    with pytest.raises(TimeoutError):
        shared.latest(wait_seconds=0.0)
    go_on.set()
    assert shared.latest(wait_seconds=PATIENCE_SECONDS) is NOTHING
    threads[0].join(PATIENCE_SECONDS)
    assert len(threads) == 1


def test_reading_whose_thread_cannot_start_is_begun_again_by_the_next_caller():
    begins = []

    def begin(reading) -> None:
        begins.append(reading)
        if len(begins) == 1:
            raise RuntimeError("can't start new thread")
        reading()

    shared = SharedReading(lambda: NOTHING, begin)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        shared.latest()
    assert shared.latest() is NOTHING


# Several databases


def in_a_thread(reading) -> None:
    threading.Thread(target=reading, daemon=True).start()


def of_two(first: SharedReading, second: SharedReading, *, wait_seconds: float) -> dict[str, float]:
    """Scrape two databases; return whether each is up."""
    collectors_of = {
        alias: QueueCollector(shared=shared, outboxes={}, wait_seconds=wait_seconds)
        for alias, shared in (("first", first), ("second", second))
    }
    [up] = [one for one in collectors.of_each(collectors_of).collect() if one.name == "pgqueue_up"]
    return {sample.labels["database"]: sample.value for sample in up.samples}


def test_databases_are_read_at_the_same_time():
    both = threading.Barrier(2)

    def read() -> TableFigures:
        both.wait(PATIENCE_SECONDS)
        return NOTHING

    first, second = SharedReading(read, in_a_thread), SharedReading(read, in_a_thread)
    assert of_two(first, second, wait_seconds=PATIENCE_SECONDS) == {"first": 1.0, "second": 1.0}


def test_database_that_has_answered_while_another_was_waited_for_is_up(monkeypatch):
    monkeypatch.setattr(collectors, "FRESH_SECONDS", 0.0)
    go_on, looks = threading.Event(), []

    def read() -> TableFigures:
        looks.append(1)
        return NOTHING

    def silent() -> TableFigures:
        go_on.wait(PATIENCE_SECONDS)
        return NOTHING

    try:
        first, second = SharedReading(silent, in_a_thread), SharedReading(read)  # which has answered at once
        assert of_two(first, second, wait_seconds=0.5) == {"first": 0.0, "second": 1.0}
    finally:
        go_on.set()
    assert len(looks) == 1
