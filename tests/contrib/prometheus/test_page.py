"""The view of metrics for a project, its access, and the counter of jobs enqueued."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connections
from django.test import Client, RequestFactory, override_settings
from prometheus_client import CollectorRegistry, generate_latest

import tests.app.tasks as app
from django_pgqueue.contrib.prometheus import QueueCollector, collectors, count_enqueued, view
from django_pgqueue.contrib.prometheus import page as pages
from django_pgqueue.contrib.prometheus.collectors import SharedReading, TableFigures, WorkerCollector
from django_pgqueue.models import Queue
from django_pgqueue.worker.metrics import CommandCounters
from tests.support.proxy import hung
from tests.support.scraping import Sheet, figures, parsed, sheet_of
from tests.support.shards import OUTBOXES, SHARDS
from tests.support.staff import user_with
from tests.support.waiting import PATIENCE_SECONDS, eventually

TOKEN = "a-token-that-is-not-guessed"

PATH = "/metrics/pgqueue/"


@pytest.mark.django_db(transaction=True)
def test_a_project_counts_what_it_enqueues_in_its_own_registry(counted):
    registry = CollectorRegistry()
    count_enqueued(registry)
    app.noop.enqueue_many([()] * 4)
    sheet = parsed(generate_latest(registry).decode())
    assert sheet.of("pgqueue_jobs_enqueued_total", queue="default", task=app.noop.name) == 4


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

    def hang(_: str) -> TableFigures:
        reads.set()
        is_over.wait(PATIENCE_SECONDS)
        return TableFigures([], [])

    def ask() -> Sheet:
        return parsed(view(RequestFactory().get(PATH, **bearing(TOKEN))).content.decode())

    monkeypatch.setattr(collectors, "read_tables", hang)
    wanted = {"METRICS_TOKEN": TOKEN, "READ_TIMEOUT_SECONDS": 0.1}
    with override_settings(PGQUEUE=wanted), ThreadPoolExecutor(2) as pool:
        try:
            first = pool.submit(ask)
            assert reads.wait(PATIENCE_SECONDS)
            assert pool.submit(ask).result(PATIENCE_SECONDS).of("pgqueue_up") == 0
        finally:
            is_over.set()
        assert first.result(PATIENCE_SECONDS).of("pgqueue_up") == 1


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_view_of_several_databases_gives_up_a_pooler_that_answers_no_client():
    """As an outbox, too."""
    wanted = {"METRICS_TOKEN": TOKEN, "READ_TIMEOUT_SECONDS": 0.1, **SHARDS, **OUTBOXES}
    connections["other"].close()
    with override_settings(PGQUEUE=wanted), hung(connections["other"].settings_dict):
        sheet = parsed(view(RequestFactory().get(PATH, **bearing(TOKEN))).content.decode())
        assert sheet.of("pgqueue_up", database="other") == 0
        eventually(lambda: not [one for one in threading.enumerate() if one.name == "pgqueue-metrics"])


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_view_of_several_databases_keeps_no_connections(shard, settings, sql):
    settings.PGQUEUE = settings.PGQUEUE | {"METRICS_TOKEN": TOKEN, "READ_TIMEOUT_SECONDS": PATIENCE_SECONDS}
    sheet = parsed(view(RequestFactory().get(PATH, **bearing(TOKEN))).content.decode())
    assert [sheet.of("pgqueue_up", database=alias) for alias in ("default", shard)] == [1, 1]
    eventually(lambda: not sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'pgqueue metrics'"))


# Of a worker command


def test_cycles_are_told_by_what_they_did():
    made = CommandCounters()
    meter = made.made()
    for claimed, acked in ((0, 0), (7, 0), (None, 3), (20, 30), (None, 0)):
        meter.count_cycle(0.003, claimed=claimed, acked=acked)
    sheet = sheet_of(WorkerCollector(lambda: figures(made)))
    assert {
        phase: sheet.of("pgqueue_worker_cycle_seconds_count", phase=phase) for phase in ("claim", "ack", "both")
    } == {
        "claim": 2,
        "ack": 1,
        "both": 1,
    }
    assert sheet.of("pgqueue_worker_cycle_seconds_bucket", phase="claim", le="0.0025") == 0
    assert sheet.of("pgqueue_worker_cycle_seconds_bucket", phase="claim", le="0.005") == 2
    assert (sheet.of("pgqueue_claimed_jobs_sum"), sheet.of("pgqueue_claimed_jobs_count")) == (27, 3)
    assert sheet.of("pgqueue_claimed_jobs_bucket", le="0.0") == 1
    assert (sheet.of("pgqueue_acked_jobs_sum"), sheet.of("pgqueue_acked_jobs_count")) == (33, 2)
