"""Metrics for Prometheus, and the access to them."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connections, transaction
from django.test import Client, RequestFactory, override_settings
from prometheus_client import CollectorRegistry, generate_latest

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.contrib.prometheus import QueueCollector, count_enqueued, families, view
from django_pgqueue.contrib.prometheus import page as pages
from django_pgqueue.contrib.prometheus.families import OF_TABLES, OF_WORKERS, observed
from django_pgqueue.contrib.prometheus.worker import WorkerCollector
from django_pgqueue.insights import overview
from django_pgqueue.insights.overview import OverviewData, SharedReading
from django_pgqueue.jobs.counters import CLAIMED, ENQUEUED, ProcessCounters
from django_pgqueue.jobs.stats import BOUNDS, RUN_BUCKETS, RUN_SECONDS, SUCCEEDED
from django_pgqueue.models import Queue
from django_pgqueue.signals import job_enqueued
from django_pgqueue.worker.metrics import CommandCounters, CommandMetrics, on_enqueued
from tests.support.scraping import Sheet, must_lint, parsed
from tests.support.staff import user_with
from tests.support.waiting import PATIENCE_SECONDS

TOKEN = "a-token-that-is-not-guessed"
PATH = "/metrics/pgqueue/"


def sheet_of(*collectors) -> Sheet:
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return parsed(generate_latest(registry).decode())


# Of a worker


def figures(made: CommandCounters, **more) -> CommandMetrics:
    known = {"processes": 2, "slots": 16, "busy": 3, "pass_ages": {"heartbeat": 1.0}}
    return CommandMetrics(sums=made.sums(), **(known | more))


def succeeded(made: CommandCounters) -> dict:
    return {kind: row[SUCCEEDED] for kind, row in made.sums().rows.items()}


def test_what_a_process_has_counted_stays_when_it_has_ended():
    made = CommandCounters()
    first, second = made.made(), made.made()
    for meter, number in ((first, 5), (second, 2)):
        meter.row("a", "x")[SUCCEEDED] += number
        meter.turned(0.002, claimed=number, acked=0)
    before = made.sums()
    made.retire(first)
    assert made.sums() == before
    second.row("a", "x")[SUCCEEDED] += 1
    assert succeeded(made) == {("a", "x"): 8}
    assert made.sums().histograms[CLAIMED][0] == 7


def test_sums_are_told_under_the_same_names_for_ever():
    """With more tasks than are told apart, some share a name; none of them changes it when its process ends."""
    made = CommandCounters(most=4)
    processes = [made.made() for _ in range(3)]
    for number, meter in enumerate(processes):
        for task in range(3):
            meter.row("a", f"{number}.{task}")[SUCCEEDED] += 1
    before = succeeded(made)
    assert len(before) == 5
    assert before["", ""] == 5
    for meter in reversed(processes):
        made.retire(meter)
        assert succeeded(made) == before


def test_buckets_are_told_as_prometheus_wants_them():
    assert observed((0.5, 1.0), [1, 2, 4, 0, 0]) == [("0.5", 1), ("1.0", 3), ("+Inf", 7)]


def test_turns_are_told_by_what_they_did():
    made = CommandCounters()
    meter = made.made()
    for claimed, acked in ((0, 0), (7, 0), (None, 3), (20, 30), (None, 0)):
        meter.turned(0.003, claimed=claimed, acked=acked)
    sheet = sheet_of(WorkerCollector(lambda: figures(made)))
    assert {does: sheet.of("pgqueue_turn_seconds_count", does=does) for does in ("claim", "ack", "both")} == {
        "claim": 2,
        "ack": 1,
        "both": 1,
    }
    assert sheet.of("pgqueue_turn_seconds_bucket", does="claim", le="0.0025") == 0
    assert sheet.of("pgqueue_turn_seconds_bucket", does="claim", le="0.005") == 2
    assert (sheet.of("pgqueue_claimed_jobs_sum"), sheet.of("pgqueue_claimed_jobs_count")) == (27, 3)
    assert sheet.of("pgqueue_claimed_jobs_bucket", le="0.0") == 1
    assert (sheet.of("pgqueue_acked_jobs_sum"), sheet.of("pgqueue_acked_jobs_count")) == (33, 2)


@pytest.mark.django_db
def test_everything_that_is_told_has_the_name_and_type_of_the_list():
    """Whatever queues and tasks are called."""
    made = CommandCounters()
    row = made.made().row('"quoted"\n', "Aufgabe ü 🦆")
    row[SUCCEEDED], row[RUN_SECONDS], row[RUN_BUCKETS + len(BOUNDS)] = 1, 10**6, 1
    Queue.objects.create(name='back\\slash "x"')
    collectors = (QueueCollector(), WorkerCollector(lambda: figures(made)))
    sheet = sheet_of(*collectors)
    assert sheet.kinds == {name.name: name.kind for name in (*OF_TABLES, *OF_WORKERS)}
    assert sheet.of("pgqueue_run_seconds_bucket", queue='"quoted"\n', task="Aufgabe ü 🦆", le="+Inf") == 1
    assert sheet.of("pgqueue_run_seconds_bucket", queue='"quoted"\n', task="Aufgabe ü 🦆", le="14400.0") == 0
    assert sheet.of("pgqueue_workers", queue='back\\slash "x"') == 0
    labels = {name.name: set(name.labels) for name in (*OF_TABLES, *OF_WORKERS)}
    for family in (family for collector in collectors for family in collector.collect()):
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == labels[family.name]
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    must_lint(generate_latest(registry).decode())


@pytest.fixture
def counted(monkeypatch):
    """Count what is enqueued during a test."""
    monkeypatch.setattr(job_enqueued, "receivers", list(job_enqueued.receivers))
    numbers: list[tuple[str, str, int]] = []
    on_enqueued(lambda *what: numbers.append(what))
    return numbers


@pytest.mark.django_db(transaction=True)
def test_jobs_count_as_enqueued_when_they_are_committed(counted):
    enqueue_many(app.noop.using(queue="a"), [()] * 3)
    with transaction.atomic():
        app.record.enqueue("kept")
        with pytest.raises(RuntimeError), transaction.atomic():
            app.record.enqueue("gone")
            raise RuntimeError
        assert counted == [("a", app.noop.name, 3)]
    assert counted == [("a", app.noop.name, 3), ("default", app.record.name, 1)]


@pytest.mark.django_db(transaction=True)
def test_jobs_count_at_once_where_autocommit_is_off(counted):
    transaction.set_autocommit(False)
    try:
        app.noop.enqueue()
        assert counted == [("default", app.noop.name, 1)]
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


@pytest.mark.django_db(transaction=True)
def test_counting_opens_no_connection(counted):
    """A worker's housekeeping announces jobs that it has enqueued on a connection of its own."""
    named = {"ids": [1], "queue": "default", "task": app.noop.name, "database": "default"}

    def announce_elsewhere() -> None:
        job_enqueued.send(app.noop.name, **named)
        assert connections["default"].connection is None

    with ThreadPoolExecutor(1) as pool:
        pool.submit(announce_elsewhere).result()
    assert counted == [("default", app.noop.name, 1)]


@pytest.mark.django_db(transaction=True)
def test_a_project_counts_what_it_enqueues_in_its_own_registry(counted):
    registry = CollectorRegistry()
    count_enqueued(registry)
    enqueue_many(app.noop, [()] * 4)
    sheet = parsed(generate_latest(registry).decode())
    assert sheet.of("pgqueue_enqueued_total", queue="default", task=app.noop.name) == 4


def test_copy_of_a_process_counts_nothing():
    meter = ProcessCounters()
    meter.enqueued("a", "x", 2)
    meter.disown()
    meter.enqueued("a", "x", 40)
    [(_, _, row)] = meter.rows()
    assert row[ENQUEUED] == 2


# Of the tables


@pytest.mark.django_db
def test_number_that_is_a_lower_bound_says_so(monkeypatch):
    monkeypatch.setattr(overview, "CAPS", (3,))
    enqueue_many(app.noop, [()] * 5)
    sheet = sheet_of(QueueCollector())
    told = [sheet.of(name, queue="default", status="queued") for name in ("pgqueue_jobs", "pgqueue_jobs_capped")]
    assert told == [3, 1]
    assert sheet.of("pgqueue_jobs_capped", queue="default", status="running") == 0


def test_registering_reads_no_table():
    """Nor would a database be needed: a test without one fails if it is asked."""
    CollectorRegistry(auto_describe=True).register(QueueCollector())


# The view


@pytest.fixture
def away(monkeypatch):
    """Have the tables fail, and the look of another test be forgotten."""

    def fail() -> None:
        raise OperationalError("away")

    registry = CollectorRegistry()
    registry.register(QueueCollector(shared=SharedReading(fail)))
    monkeypatch.setattr(pages, "_registry", lambda _: registry)


@pytest.fixture(autouse=True)
def _fresh():
    pages._registry.cache_clear()


def bearing(token: str) -> dict:
    return {"headers": {"Authorization": f"Bearer {token}"}}


@pytest.mark.django_db
def test_view_tells_staff_who_may_see_the_overview():
    Queue.objects.create(name="mail")
    assert Client().get(PATH).status_code == user_with("view_job", "view_queue").get(PATH).status_code == 403
    response = user_with("view_overview").get(PATH)
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "no-store" in response["Cache-Control"]
    sheet = parsed(response.content.decode())
    assert sheet.of("pgqueue_up") == 1
    assert sheet.of("pgqueue_jobs", queue="mail", status="queued") == 0


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("wanted", "given", "status"),
    [
        (TOKEN, TOKEN, 200),
        (TOKEN, TOKEN[:-1], 403),
        (TOKEN, "ü", 403),
        (TOKEN, "", 403),
        (None, "", 403),
        (None, "None", 403),
    ],
)
def test_view_answers_a_client_that_knows_the_token(client, wanted, given, status):
    with override_settings(PGQUEUE={"METRICS_TOKEN": wanted}):
        assert client.get(PATH, **bearing(given)).status_code == status


@pytest.mark.django_db
def test_view_needs_neither_users_nor_a_login():
    """As where neither sessions nor users are installed, or all users have to log in."""
    request = RequestFactory().get(PATH, **bearing(TOKEN))
    assert not hasattr(request, "user")
    assert view(request).status_code == 403
    with override_settings(PGQUEUE={"METRICS_TOKEN": TOKEN}):
        assert view(request).status_code == 200
    assert view.login_required is False


@pytest.mark.django_db
def test_view_only_reads():
    assert user_with("view_overview").post(PATH).status_code == 405


@pytest.mark.django_db
@pytest.mark.usefixtures("away")
def test_view_says_that_the_tables_cannot_be_read():
    response = user_with("view_overview").get(PATH)
    assert response.status_code == 200
    assert parsed(response.content.decode()).samples == {("pgqueue_up", frozenset()): 0}


def test_view_waits_for_no_other_request_that_hangs(monkeypatch):
    """As where the server has fallen silent: each scrape would take one more thread of the project."""
    reads, is_over = threading.Event(), threading.Event()

    def hang(_: str) -> OverviewData:
        reads.set()
        is_over.wait(PATIENCE_SECONDS)
        return OverviewData(queues=(), workers=0)

    def ask() -> Sheet:
        return parsed(view(RequestFactory().get(PATH, **bearing(TOKEN))).content.decode())

    monkeypatch.setattr(families, "read_overview", hang)
    wanted = {"METRICS_TOKEN": TOKEN, "ADMIN_TIMEOUT_SECONDS": 0.1}
    with override_settings(PGQUEUE=wanted), ThreadPoolExecutor(2) as pool:
        try:
            first = pool.submit(ask)
            assert reads.wait(PATIENCE_SECONDS)
            assert pool.submit(ask).result(PATIENCE_SECONDS).of("pgqueue_up") == 0
        finally:
            is_over.set()
        assert first.result(PATIENCE_SECONDS).of("pgqueue_up") == 1


# Without prometheus_client


def test_prometheus_client_is_not_needed_without_metrics():
    code = (
        "import sys, django; sys.modules['prometheus_client'] = None; django.setup();"
        "from django_pgqueue.management.commands import pgqueue_worker; import django_pgqueue.worker.consumer;"
        "assert 'django_pgqueue.contrib.prometheus' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_SECONDS)


@pytest.mark.django_db
def test_worker_says_what_metrics_need(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("django_pgqueue.contrib.prometheus")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(CommandError, match=r"pip install 'django-pgqueue\[prometheus\]'"):
        call_command("pgqueue_worker", metrics_port=9, drain=True, verbosity=0)


@pytest.mark.django_db
def test_wrong_port_is_named():
    with pytest.raises(CommandError, match=r"--metrics-port must be 0 \(none\) to 65535, not 65536\."):
        call_command("pgqueue_worker", metrics_port=65536)
