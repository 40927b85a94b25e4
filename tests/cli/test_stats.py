"""The figures of pgqueue_stats: counted from real rows, and as JSON."""

import datetime as dt
import json

import pytest
from django.db import connection, transaction

import tests.app.tasks as app
from django_pgqueue.cli.stats import snapshot
from django_pgqueue.insights import overview
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Queue, Stat, Worker
from tests.support.plans import nodes_of
from tests.support.stats_command import cells, count, run, told, up_to_one_second
from tests.support.worker_rows import forget_others, worker

pytestmark = pytest.mark.django_db(transaction=True)


def test_json_tells_numbers(queue, sql):
    forget_others(sql)
    worker(concurrency=4)
    app.noop.enqueue_many([()] * 3)
    claim(queue, "default", limit=1, worker_id=Worker.objects.get().pk)
    buckets = up_to_one_second(600)
    count(sql, succeeded=600, lost=3, stale=2, wait_seconds=300.0, wait_buckets=buckets, run_buckets=buckets)
    said = told()
    assert said["workers"] == {"commands": 1, "processes": 1, "slots": 4, "busy": 1}
    assert dt.datetime.fromisoformat(said["at"]).tzinfo is not None
    assert said["findings"] == []
    seconds = said["window_seconds"]
    assert 300 <= seconds <= 361
    [default] = said["queues"]
    assert default["counts"] == {"succeeded": 600, "failed": 0, "retried": 0, "died": 0, "lost": 3, "stale": 2}
    assert default["per_minute"]["succeeded"] == pytest.approx(600 * 60 / seconds, rel=1e-3)
    assert default["wait_seconds"] == {"mean": 0.5, "p50": 0.75, "p95": 0.975, "p99": 0.995}
    assert default["run_seconds"]["mean"] == 0.0
    assert default["empty_in_seconds"] == pytest.approx(2 * seconds / 600, rel=1e-3)
    assert {name: default[name] for name in ("queued", "running", "dead", "workers", "at_least")} == {
        "queued": 2,
        "running": 1,
        "dead": 0,
        "workers": 1,
        "at_least": [],
    }
    assert default["oldest_runnable_seconds"] >= 0
    assert default["waiting_p99_seconds"] >= 0
    assert "tasks" not in default


def test_tasks_are_told_below_their_queue_the_one_that_took_most_time_first(sql):
    Queue.objects.create(name="mail")
    count(sql, "mail", "quick", succeeded=10, run_seconds=1.0)
    count(sql, "mail", "slow", succeeded=1, run_seconds=60.0, run_buckets=[0] * 14 + [1])
    names = [cells(line)[0] for line in run("--tasks").splitlines()[-3:]]
    assert names == ["mail", "slow", "quick"]
    [mail] = told("--tasks")["queues"]
    assert [task["name"] for task in mail["tasks"]] == ["slow", "quick"]
    assert mail["tasks"][0]["run_seconds"]["p50"] == 45.0


def test_numbers_that_stopped_counting_say_so(monkeypatch):
    monkeypatch.setattr(overview, "CAPS", (3,))
    app.noop.enqueue_many([()] * 5)
    assert "3+" in cells(run("--queue", "default").splitlines()[-1])
    [default] = told()["queues"]
    assert (default["queued"], default["at_least"]) == (3, ["queued"])


def test_no_statement_reads_a_table_of_jobs_to_its_end(queue, sql):
    """A tenth of what is there is more than enough for whatever is counted up to a limit."""
    statements = []

    def record(execute, text, parameters, many, context):
        statements.append((str(text), parameters))
        return execute(text, parameters, many, context)

    sql(
        "INSERT INTO pgqueue_jobs (task, queue, run_at, status) "
        "SELECT 't', 'default', now() - interval '1 hour', 'queued' FROM generate_series(1, 50000)"
    )
    sql("ANALYZE pgqueue_jobs")
    with connection.execute_wrapper(record):
        snapshot()
    read = 0
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off")
        for text, parameters in statements:
            if "pgqueue_jobs" in text and text.lstrip().startswith(("SELECT", "WITH", "--")):
                cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", parameters)
                [(plan,)] = cursor.fetchall()
                plan = plan if isinstance(plan, list) else json.loads(plan)
                read += sum(
                    node["Actual Rows"] * node["Actual Loops"]
                    for node in nodes_of(plan)
                    if node.get("Relation Name") == "pgqueue_jobs"
                )
    assert 10_000 < read < 30_000


def test_what_was_not_counted_has_no_percentile(sql):
    Queue.objects.create(name="idle")
    Stat.objects.all().delete()
    [idle] = told()["queues"]
    assert idle["wait_seconds"] == {"mean": None, "p50": None, "p95": None, "p99": None}
    assert idle["empty_in_seconds"] == 0.0
