"""Families of metrics: names, types, labels, buckets, and those of the tables."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.contrib.prometheus import QueueCollector
from django_pgqueue.contrib.prometheus.families import OF_TABLES, OF_WORKERS, observed
from django_pgqueue.contrib.prometheus.page import WorkerCollector
from django_pgqueue.insights import overview
from django_pgqueue.jobs.stats import BOUNDS, RUN_BUCKETS, RUN_SECONDS, SUCCEEDED
from django_pgqueue.models import Queue
from django_pgqueue.worker.metrics import CommandCounters
from tests.support.scraping import figures, must_lint, sheet_of


def test_buckets_are_told_as_prometheus_wants_them():
    assert observed((0.5, 1.0), [1, 2, 4, 0, 0]) == [("0.5", 1), ("1.0", 3), ("+Inf", 7)]


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
