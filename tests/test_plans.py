"""The hot statements find their rows through their index, whatever the statistics say."""

import json

import pytest

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.lifecycle.claim import claim
from django_pgqueue.lifecycle.sql import sized, statement

FILL = """
INSERT INTO pgqueue_jobs (task, status, run_at, lease_token, worker_id, lease_until)
SELECT
    'x', kind, now() + CASE kind WHEN 'scheduled' THEN interval '1 day' ELSE interval '-1 min' END,
    CASE kind WHEN 'running' THEN 7 ELSE 0 END, CASE kind WHEN 'running' THEN 1 + mod(number, 50) ELSE 0 END,
    now() + interval '1 day'
FROM generate_series(1, %(number)s) AS number, unnest(%(kinds)s::text[]) AS kind
RETURNING 1
"""


@pytest.fixture(params=["statistics taken", "vacuumed while empty"])
def analyze(request, queue, sql):
    """Take statistics when called; or never, after a vacuum that found the table empty, as an idle queue's does.

    From the latter the planner expects no row at all, until somebody takes statistics anew.
    """
    if request.param == "statistics taken":
        return lambda: queue.autocommit().execute("ANALYZE pgqueue_jobs")
    fill(queue, 20_000, "queued", "running", "scheduled")
    sql("DELETE FROM pgqueue_jobs")
    queue.autocommit().execute("VACUUM pgqueue_jobs")
    return lambda: None


def fill(queue, number, *kinds):
    queue.rows(FILL, {"number": number, "kinds": list(kinds)})


def explain(queue, text, parameters) -> list[dict]:
    """Run EXPLAIN ANALYZE, roll its effects back, return all nodes of the plan."""
    connection = queue.autocommit()
    try:
        with queue.transaction():  # with the planner settings that workers use
            [(plan,)] = queue.rows(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}", parameters)
            raise InterruptedError
    except InterruptedError:
        assert connection.closed, "which rolls back"
    nodes = []

    def walk(node):
        nodes.append(node)
        for child in node.get("Plans", ()):
            walk(child)

    walk(plan[0]["Plan"])
    return nodes


def scans_of_jobs(nodes) -> list[dict]:
    return [
        node for node in nodes if node.get("Relation Name") == "pgqueue_jobs" and node["Node Type"] != "ModifyTable"
    ]


def test_claim_is_an_ordered_scan_of_the_claim_index_that_stops_at_its_limit(queue, analyze):
    fill(queue, 30_000, "queued", "scheduled", "running")
    analyze()
    parameters = {"queue": "default", "worker_id": 1, "lease_token": 9}
    nodes = explain(queue, sized("claim", 100), parameters)
    kinds = [node["Node Type"] for node in nodes]
    assert "Seq Scan" not in kinds, json.dumps(nodes, indent=1)
    assert not [kind for kind in kinds if "Sort" in kind]
    [index_scan] = [node for node in nodes if node.get("Index Name") == "pgqueue_jobs_claim"]
    assert index_scan["Node Type"] == "Index Scan"
    assert index_scan["Actual Rows"] == 100
    assert index_scan["Shared Hit Blocks"] + index_scan["Shared Read Blocks"] < 300


def test_claim_does_not_see_running_and_scheduled_rows(queue, analyze):
    fill(queue, 30_000, "scheduled", "running")
    fill(queue, 10, "queued")
    analyze()
    nodes = explain(queue, sized("claim", 100), {"queue": "default", "worker_id": 1, "lease_token": 9})
    [index_scan] = [node for node in nodes if node.get("Index Name") == "pgqueue_jobs_claim"]
    assert index_scan["Actual Rows"] == 10
    assert index_scan["Shared Hit Blocks"] + index_scan["Shared Read Blocks"] < 50


@pytest.mark.parametrize("name", ["finish", "archive", "retry", "release", "dead_letter"])
@pytest.mark.parametrize("running_at_analyze", [0, 30_000])
def test_ack_touches_only_its_own_rows(queue, analyze, name, running_at_analyze):
    """The statistics are taken when nothing runs, or when 100,000 do; either way 100,000 run when it matters."""
    fill(queue, 30_000, "queued")
    if running_at_analyze:
        fill(queue, running_at_analyze, "running")
        analyze()
    else:
        analyze()
        fill(queue, 30_000, "running")
    enqueue_many(app.noop.using(priority=100), [()] * 500)
    jobs = claim(queue, "default", limit=500, worker_id=77)
    assert len(jobs) == 500
    parameters = {
        "ids": [job.id for job in jobs],
        "lease_tokens": [job.lease_token for job in jobs],
        "results": f"[{','.join(['null'] * 500)}]",
        "run_seconds": [0.1] * 500,
        "delays": [1.0] * 500,
        "errors": ["{}"] * 500,
        "reasons": ["exhausted"] * 500,
        "by": None,
    }
    nodes = explain(queue, statement(name), parameters)
    for scan in scans_of_jobs(nodes):
        assert scan["Node Type"] in ("Index Scan", "Tid Scan", "Index Only Scan"), json.dumps(scan, indent=1)
        assert scan["Actual Rows"] * scan["Actual Loops"] <= 500
        assert scan.get("Rows Removed by Filter", 0) == 0
        assert scan.get("Index Name", "pgqueue_jobs_pkey") == "pgqueue_jobs_pkey"


def test_promote_reads_only_due_rows(queue, analyze):
    fill(queue, 30_000, "queued", "scheduled")
    analyze()
    nodes = explain(queue, statement("promote"), {})
    assert "Seq Scan" not in [node["Node Type"] for node in nodes]
    for scan in scans_of_jobs(nodes):
        assert scan["Actual Rows"] == 0


def test_reaper_reads_one_entry_for_each_living_worker(queue, analyze, sql):
    fill(queue, 30_000, "running")
    sql(
        "INSERT INTO pgqueue_workers (id, supervisor_id, pid, host, version, concurrency, lease_until) "
        "SELECT id, 1, 1, 'h', '1', 8, now() + interval '1 hour' FROM generate_series(1, 50) AS id"
    )
    analyze()
    nodes = explain(queue, statement("lost_leases"), {})
    root = nodes[0]
    assert root["Actual Rows"] == 0
    assert root["Shared Hit Blocks"] + root["Shared Read Blocks"] < 1000, json.dumps(nodes, indent=1)


def test_looking_for_queues_reads_one_entry_each(queue, analyze):
    fill(queue, 30_000, "queued", "running")
    app.noop.using(queue="mail").enqueue()
    analyze()
    root = explain(queue, statement("ready_queues"), {})[0]
    assert root["Actual Rows"] == 2
    assert root["Shared Hit Blocks"] + root["Shared Read Blocks"] < 50


def test_looking_at_the_served_queues_reads_one_entry_each(queue, analyze):
    fill(queue, 30_000, "queued", "running")
    app.noop.using(queue="mail").enqueue()
    analyze()
    root = explain(queue, statement("ready_of"), {"queues": ["none", "mail", "default"]})[0]
    assert root["Actual Rows"] == 2
    assert root["Shared Hit Blocks"] + root["Shared Read Blocks"] < 50


@pytest.mark.parametrize("name", ["standing", "reap"])
def test_reaping_touches_only_its_own_rows(queue, analyze, name):
    fill(queue, 30_000, "queued", "running")
    enqueue_many(app.noop.using(priority=100), [()] * 500)
    analyze()
    jobs = claim(queue, "default", limit=500, worker_id=77)
    fences = {"ids": [job.id for job in jobs], "lease_tokens": [job.lease_token for job in jobs]}
    nodes = explain(queue, statement(name), fences | {"errors": ["{}"] * 500})
    assert nodes[0]["Actual Rows"] == 500
    for scan in scans_of_jobs(nodes):
        assert scan["Actual Rows"] * scan["Actual Loops"] <= 500
        assert scan.get("Rows Removed by Filter", 0) == 0
