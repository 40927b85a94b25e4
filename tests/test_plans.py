"""The hot statements find their rows through their index, whatever the statistics say."""

import contextlib
import datetime as dt
import json

import pytest
from django.core.management import call_command

import tests.app.tasks as app
from django_pgqueue.db.connections import CallerConnection
from django_pgqueue.db.queries import sized, statement
from django_pgqueue.jobs.claim import claim
from django_pgqueue.models import Job
from tests.support.dead_rows import left_by_vacuum
from tests.support.many import enqueued_ids
from tests.support.plans import explain, fill, nodes_of
from tests.support.storage import without_autovacuum
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def _empty_files(transactional_db, sql) -> None:
    """Begin with tables of no page: what tests before have rolled back is still in them, and in their indexes.

    Nor of any statistics: autovacuum may have taken some of what those had, and a flush leaves them.
    """
    call_command("flush", interactive=False, verbosity=0)
    sql("DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class WHERE relname LIKE 'pgqueue%')")


@pytest.fixture(params=["statistics taken", "vacuumed while empty"])
def analyze(request, queue, sql):
    """Take statistics when called; or never, after a vacuum that found the table empty, as an idle queue's does.

    From the latter the planner expects no row at all, until statistics are taken anew, which autovacuum must not.
    """
    with without_autovacuum(sql):
        if request.param == "statistics taken":
            yield lambda: queue.autocommit().execute("ANALYZE pgqueue_jobs")
        else:
            fill(queue, 1000, "queued", "running", "scheduled")
            sql("DELETE FROM pgqueue_jobs")
            eventually(lambda: left_by_vacuum(sql) == 0)
            yield lambda: None


def test_claim_writes_nothing_of_the_arguments_to_the_wal(queue, sql):
    """Of a row that stays on its page it has what lies between the first byte that changes and the last."""
    sql(
        "INSERT INTO pgqueue_jobs (task, queue, args) "
        "SELECT 'x', 'q' || length, jsonb_build_array(repeat('x', length)) "
        "FROM generate_series(1, 100), unnest('{0,100}'::integer[]) AS length"
    )

    def bytes_without_whole_pages(name: str) -> int:
        """A page that is changed first after a checkpoint is written as a whole, once."""
        parameters = {"queue": name, "worker_id": 1, "lease_token": 9}
        [claimed, *_] = explain(queue, sized("claim", 100), parameters)
        assert claimed["Actual Rows"] == 100
        return 0 if claimed["WAL FPI"] else claimed["WAL Bytes"]

    short, long = (eventually(lambda name=name: bytes_without_whole_pages(name)) for name in ("q0", "q100"))
    assert (long - short) / 100 < 50


def scans_of_jobs(nodes) -> list[dict]:
    return [
        node for node in nodes if node.get("Relation Name") == "pgqueue_jobs" and node["Node Type"] != "ModifyTable"
    ]


def rows_read(scan) -> float:
    """Return how many rows a node of a plan has looked at, wanted or not."""
    return (scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"]


def pages(nodes) -> int:
    return nodes[0]["Shared Hit Blocks"] + nodes[0]["Shared Read Blocks"]


def test_statements_on_a_full_table_read_what_they_are_about(queue, analyze, sql):
    """One table for all of them, since EXPLAIN leaves it as it was: 30,000 jobs of each kind, and some on top."""
    fill(queue, 30_000, "queued", "scheduled", "running")
    sql(
        "INSERT INTO pgqueue_workers (id, supervisor_id, pid, host, version, concurrency, lease_until) "
        "SELECT id, 1, 1, 'h', '1', 8, now() + interval '1 hour' FROM generate_series(1, 50) AS id"
    )
    for priority in (-7, 7):
        app.noop.using(queue="mail", priority=priority).enqueue()
    ids = enqueued_ids(app.noop.using(priority=100), [()] * 500)
    analyze()
    claim_is_an_ordered_scan_of_the_claim_index_that_stops_at_its_limit(queue)
    looking_at_awaited_jobs_reads_those_only(queue, ids)
    promote_reads_only_due_rows(queue)
    reaper_reads_one_entry_for_each_living_worker(queue)
    looking_for_queues_reads_one_entry_each(queue)
    looking_at_the_served_queues_reads_one_entry_each(queue)
    looking_for_the_oldest_job_reads_one_entry_for_each_priority_of_a_queue(queue)
    reaping_touches_only_its_own_rows(queue)
    counting_queued_jobs_reads_no_others()


def claim_is_an_ordered_scan_of_the_claim_index_that_stops_at_its_limit(queue) -> None:
    parameters = {"queue": "default", "worker_id": 1, "lease_token": 9}
    nodes = explain(queue, sized("claim", 100), parameters)
    kinds = [node["Node Type"] for node in nodes]
    assert "Seq Scan" not in kinds, json.dumps(nodes, indent=1)
    assert not [kind for kind in kinds if "Sort" in kind]
    [index_scan] = [node for node in nodes if node.get("Index Name") == "pgqueue_jobs_claim"]
    assert index_scan["Node Type"] == "Index Scan"
    assert index_scan["Actual Rows"] == 100
    assert index_scan["Shared Hit Blocks"] + index_scan["Shared Read Blocks"] < 300


def looking_at_awaited_jobs_reads_those_only(queue, ids) -> None:
    for wanted in (False, True):
        nodes = explain(queue, statement("watch_jobs"), {"ids": ids, "wanted": [wanted] * 500})
        assert nodes[0]["Actual Rows"] == 500
        for scan in scans_of_jobs(nodes):
            assert scan["Node Type"] in ("Index Scan", "Tid Scan"), json.dumps(scan, indent=1)
            assert scan["Actual Rows"] * scan["Actual Loops"] <= 500


def counting_queued_jobs_reads_no_others() -> None:
    """Callers count with the planner settings of their own sessions, which are the server's."""
    for name, most in (("default", 30_500), ("mail", 2)):
        text = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement('count_queued')}"
        [(plan,)] = CallerConnection().rows(text, {"queue": name, "limit": 1000})
        nodes = nodes_of(plan)
        assert "pgqueue_jobs_claim" in [node.get("Index Name") for node in nodes], json.dumps(plan, indent=1)
        for scan in scans_of_jobs(nodes):
            assert rows_read(scan) <= most


def promote_reads_only_due_rows(queue) -> None:
    nodes = explain(queue, statement("promote"), {})
    assert "Seq Scan" not in [node["Node Type"] for node in nodes]
    for scan in scans_of_jobs(nodes):
        assert scan["Actual Rows"] == 0


def reaper_reads_one_entry_for_each_living_worker(queue) -> None:
    nodes = explain(queue, statement("expired_workers"), {"session_seconds": 1.0})
    assert nodes[0]["Actual Rows"] == 0
    assert pages(nodes) < 1000, json.dumps(nodes, indent=1)


def looking_for_queues_reads_one_entry_each(queue) -> None:
    nodes = explain(queue, statement("ready_queues"), {})
    assert nodes[0]["Actual Rows"] == 2
    assert pages(nodes) < 150, json.dumps(nodes, indent=1)


def looking_at_the_served_queues_reads_one_entry_each(queue) -> None:
    nodes = explain(queue, statement("ready_named_queues"), {"queues": ["none", "mail", "default"]})
    assert nodes[0]["Actual Rows"] == 2
    assert pages(nodes) < 150, json.dumps(nodes, indent=1)


def looking_for_the_oldest_job_reads_one_entry_for_each_priority_of_a_queue(queue) -> None:
    nodes = explain(queue, statement("oldest_runnable"), {"most": 0})
    assert pages(nodes) < 150, json.dumps(nodes, indent=1)


def reaping_touches_only_its_own_rows(queue) -> None:
    jobs = claim(queue, "default", limit=500, worker_id=77)
    fences = {"ids": [job.id for job in jobs], "lease_tokens": [job.lease_token for job in jobs]}
    for name in ("still_leased", "reap"):
        nodes = explain(
            queue, statement(name), fences | {"errors": ["{}"] * 500, "begun": [True] * 500, "is_told": False}
        )
        assert nodes[0]["Actual Rows"] == 500
        for scan in scans_of_jobs(nodes):
            assert scan["Actual Rows"] * scan["Actual Loops"] <= 500
            assert scan.get("Rows Removed by Filter", 0) == 0
    for scan in scans_of_jobs(explain(queue, statement("expired_leases"), {"worker_ids": [77]})):
        assert (scan["Node Type"], scan["Index Name"]) == ("Index Scan", "pgqueue_jobs_running")
    said = {
        "ids": fences["ids"], "attempts": [1] * 500, "kinds": ["kept"] * 500, "reasons": [None] * 500,
        "errors": [None] * 500, "snoozes": [0] * 500, "worker_id": 77,
    }  # fmt: skip
    nodes = explain(queue, statement("recorded_outcomes"), said)
    assert "Seq Scan" not in [node["Node Type"] for node in nodes]
    for scan in scans_of_jobs(nodes):
        assert scan["Actual Rows"] * scan["Actual Loops"] <= 500


def test_claim_does_not_see_running_and_scheduled_rows(queue, analyze):
    fill(queue, 10_000, "scheduled", "running")
    fill(queue, 10, "queued")
    analyze()
    nodes = explain(queue, sized("claim", 100), {"queue": "default", "worker_id": 1, "lease_token": 9})
    [index_scan] = [node for node in nodes if node.get("Index Name") == "pgqueue_jobs_claim"]
    assert index_scan["Actual Rows"] == 10
    assert index_scan["Shared Hit Blocks"] + index_scan["Shared Read Blocks"] < 150


ACKS = (
    "finish",
    "archive",
    "reserve_key",
    "archive_and_reserve_key",
    "repeat",
    "retry",
    "release",
    "dead_letter",
    "write_progress",
)


@pytest.mark.parametrize("running_at_analyze", [0, 10_000])
def test_ack_touches_only_its_own_rows(queue, analyze, running_at_analyze):
    """The statistics are taken when nothing runs, or when 10,000 do; either way 10,000 run when it matters."""
    fill(queue, 10_000, "queued")
    if running_at_analyze:
        fill(queue, running_at_analyze, "running")
        analyze()
    else:
        analyze()
        fill(queue, 10_000, "running")
    app.noop.using(priority=100).enqueue_many([()] * 500)
    jobs = claim(queue, "default", limit=500, worker_id=77)
    assert len(jobs) == 500
    parameters = {
        "ids": [job.id for job in jobs],
        "lease_tokens": [job.lease_token for job in jobs],
        "results": f"[{','.join(['null'] * 500)}]",
        "left_out": None,
        "last_progress": None,
        "run_seconds": [0.1] * 500,
        "delays": [1.0] * 500,
        "next_ats": [None] * 500,
        "history": True,
        "errors": ["{}"] * 500,
        "reasons": ["exhausted"] * 500,
        "progress": ["{}"] * 500,
        "metadata": [None] * 500,
        "by": None,
        "is_told": False,
    }
    for name in ACKS:
        for scan in scans_of_jobs(explain(queue, statement(name), parameters)):
            assert scan["Node Type"] in ("Index Scan", "Tid Scan", "Index Only Scan"), (
                name,
                json.dumps(scan, indent=1),
            )
            assert scan["Actual Rows"] * scan["Actual Loops"] <= 500
            assert scan.get("Rows Removed by Filter", 0) == 0
            assert scan.get("Index Name", "pgqueue_jobs_pkey") == "pgqueue_jobs_pkey"


def test_pruning_reads_only_reserved_that_are_over(queue, analyze):
    """Among those that stand for long, and scheduled jobs."""
    fill(queue, 10_000, "queued", "scheduled")
    fill(queue, 10, "reserved")
    queue.rows("UPDATE pgqueue_jobs SET run_at = now() + interval '1 hour' WHERE mod(id, 2) = 0 RETURNING 1", {})
    analyze()
    for name, parameters in (("prune_reserved", {}), ("pending_work", {"is_idle": True})):
        for scan in scans_of_jobs(explain(queue, statement(name), parameters)):
            assert scan["Node Type"] in ("Index Scan", "Index Only Scan", "Tid Scan")
            assert rows_read(scan) <= 10


def test_looking_for_keys_to_take_back_reads_only_jobs_that_gave_theirs_up(queue, analyze, sql):
    fill(queue, 10_000, "queued", "scheduled")
    sql("UPDATE pgqueue_jobs SET unique_key = 'k' || id, unique_until = 'start' WHERE id % 3 = 0")
    last = sql("SELECT max(id) FROM pgqueue_jobs")[0][0]
    sql(
        "INSERT INTO pgqueue_jobs (task, unique_key, unique_until) SELECT 'x', 'k' || n, 'started' "
        "FROM generate_series(%s, %s) AS n",
        *(last - 9, last),
    )
    analyze()
    for name in ("released_keys", "superseded_jobs", "reacquire_key"):
        for scan in scans_of_jobs(explain(queue, statement(name), {"after": 0, "id": last + 1})):
            assert scan["Node Type"] in ("Index Scan", "Tid Scan", "Index Only Scan"), json.dumps(scan, indent=1)
            assert rows_read(scan) <= 10


def test_meeting_conflicts_reads_only_their_rows(queue, analyze, sql):
    fill(queue, 10_000, "queued", "scheduled")
    sql("UPDATE pgqueue_jobs SET unique_key = 'k' || id, unique_until = 'end'")
    analyze()
    keys = [f"k{job_id}" for (job_id,) in sql("SELECT id FROM pgqueue_jobs ORDER BY id LIMIT 50")]
    parameters = {
        "unique_keys": keys,
        "in_transaction": True,
        "on_conflict": "later",
        "tasks": ["x"],
        "run_at": None,
        "delay_seconds": 0.0,
        "expires_at": None,
        "expires_seconds": None,
        "args": None,
        "kwargs": None,
        "tags": None,
        "metadata": "{}",
    }
    for name in ("find_unique_conflicts", "keep_from_starting", "replace", "later", "earlier", "release_expired_keys"):
        for scan in scans_of_jobs(explain(queue, statement(name), parameters)):
            assert scan["Node Type"] == "Index Scan", json.dumps(scan, indent=1)
            assert rows_read(scan) <= 50


def test_looking_for_expired_jobs_reads_no_others(queue, analyze, sql):
    fill(queue, 10_000, "queued", "scheduled")
    sql("UPDATE pgqueue_jobs SET expires_at = now() + interval '1 hour'")
    app.noop.using(expires=1).enqueue()
    sql("UPDATE pgqueue_jobs SET expires_at = now() WHERE expires_at < now() + interval '1 min'")
    analyze()
    root = explain(queue, statement("expired"), {})[0]
    assert root["Actual Rows"] == 1
    assert root["Shared Hit Blocks"] + root["Shared Read Blocks"] < 150, json.dumps(root, indent=1)


FAIR = """
INSERT INTO pgqueue_jobs (task, fair_key, run_at)
SELECT 'x', 'key ' || mod(number, %(keys)s), now() - interval '1 min' + number / %(keys)s * interval '1 microsecond'
FROM generate_series(1, %(number)s) AS number
RETURNING 1
"""


def test_turns_are_given_by_two_entries_of_indexes(queue, analyze, sql):
    """The planner of the caller's connection was not asked to prefer indexes."""
    queue.rows(FAIR, {"number": 10_000, "keys": 3})
    fill(queue, 10_000, "running", "scheduled")
    analyze()
    given = "SELECT count(*) FROM pgqueue_turns('default', 0::smallint, ARRAY['key 1', 'key 2', 'key 1'])"
    sql(given)
    [(plan,)] = sql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {given}")
    root = plan[0]["Plan"]
    assert root["Shared Hit Blocks"] + root["Shared Read Blocks"] < 40, json.dumps(root, indent=1)


def test_keys_that_stand_behind_are_found_by_an_entry_for_each_and_caught_up_by_their_first(queue, analyze):
    queue.rows(FAIR, {"number": 30_000, "keys": 100})
    fill(queue, 20_000, "running", "scheduled")
    analyze()
    root = explain(queue, statement("fair_key_heads"), {"queue": "", "fair_key": "", "rank": -1, "limit": 500})[0]
    assert root["Actual Rows"] == 100
    assert root["Shared Hit Blocks"] + root["Shared Read Blocks"] < 1000, json.dumps(root, indent=1)
    late = {"queues": ["default"], "fair_keys": ["key 1"], "ranks": [0], "lags": [dt.timedelta(seconds=1)]}
    late["run_ats"] = [Job.objects.filter(fair_key="key 1", status="queued").earliest("run_at").run_at]
    for scan in scans_of_jobs(explain(queue, statement("advance_fair_keys"), late)):
        assert scan["Actual Rows"] * scan["Actual Loops"] == 100
        assert scan.get("Rows Removed by Filter", 0) == 0


def test_promotion_gives_turns_by_entries_of_indexes(queue, analyze, sql):
    queue.rows(FAIR, {"number": 10_000, "keys": 3})
    app.noop.using(fair_key="key 1", delay=dt.timedelta(hours=1)).enqueue_many([()] * 1000)
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '1 s' WHERE status = 'scheduled'")
    analyze()
    for scan in scans_of_jobs(explain(queue, statement("promote"), {})):
        assert scan["Actual Rows"] * scan["Actual Loops"] <= 1000, json.dumps(scan, indent=1)
        assert scan.get("Rows Removed by Filter", 0) == 0


FILL_WAITING = """
INSERT INTO pgqueue_jobs (task, status, concurrency_key, concurrency_limit)
SELECT 'x', 'limited', 'key ' || mod(number, 300), 2
FROM generate_series(1, 9000) AS number
RETURNING 1
"""


@pytest.fixture
def waiting(queue, analyze):
    """Make 30 jobs wait for each of 300 keys, beside others."""
    fill(queue, 5_000, "queued", "running", "scheduled")
    queue.rows(FILL_WAITING, {})
    analyze()


def test_admission_reads_the_first_jobs_of_its_keys_only(queue, waiting):
    keys = json.dumps([f"key {number}" for number in range(200)])
    queue.rows("SELECT set_config('pgqueue.admitting', %(keys)s, false)", {"keys": keys})
    nodes = explain(queue, statement("admit_limited"), {})
    for scan in scans_of_jobs(nodes):
        assert scan["Node Type"] in ("Index Scan", "Index Only Scan", "Tid Scan"), json.dumps(scan, indent=1)
        assert scan["Actual Rows"] * scan["Actual Loops"] <= 400
        assert scan.get("Index Name") in (None, "pgqueue_jobs_limited", "pgqueue_jobs_slot")
    assert [node["Actual Rows"] for node in nodes if node["Node Type"] == "ModifyTable"] == [400]
    assert pages(nodes) < 200 * 40, json.dumps(nodes, indent=1)


def test_looking_for_keys_with_room_reads_a_few_entries_for_each(queue, waiting):
    unfinished = {"wanted": ["none"], "unwanted": [], "worker_ids": [77]}
    for name, parameters in (("sweep", {"after": "key 1", "limit": 1000}), ("is_drained", unfinished)):
        nodes = explain(queue, statement(name), parameters)
        assert "Seq Scan" not in [node["Node Type"] for node in scans_of_jobs(nodes)], name
        assert pages(nodes) < 300 * 15, json.dumps(nodes, indent=1)


def test_plain_claim_looks_once_whether_its_queue_has_limits(queue, analyze, sql):
    fill(queue, 3000, "queued")
    sql("INSERT INTO pgqueue_queues (name, paused_at) SELECT 'q' || one, now() FROM generate_series(1, 3000) AS one")
    analyze()
    nodes = explain(queue, sized("claim", 100), {"queue": "default", "worker_id": 1, "lease_token": 9})
    limits = [node for node in nodes if node.get("Relation Name") == "pgqueue_queues"]
    assert [(node["Node Type"], node["Actual Loops"]) for node in limits] == [("Index Scan", 1)]
    assert limits[0]["Shared Hit Blocks"] + limits[0]["Shared Read Blocks"] < 10


def test_limited_claim_reads_what_it_takes_and_what_runs(queue, analyze, sql):
    fill(queue, 10_000, "queued", "scheduled")
    fill(queue, 500, "running")
    sql("INSERT INTO pgqueue_queues (name, max_running) VALUES ('default', 520)")
    analyze()
    text = statement("claim_limited").replace("current_setting('pgqueue.admitting')", "'[\"default\"]'")
    nodes = explain(queue, text, {"queue": "default", "worker_id": 1, "lease_token": 9, "limit": 100})
    kinds = [node["Node Type"] for node in nodes]
    assert "Seq Scan" not in kinds
    assert not [kind for kind in kinds if "Sort" in kind]
    [claimed] = [node for node in nodes if node.get("Index Name") == "pgqueue_jobs_claim"]
    assert (claimed["Node Type"], claimed["Actual Rows"]) == ("Index Scan", 20)
    [running] = [node for node in nodes if node.get("Index Name") == "pgqueue_jobs_running"]
    assert running["Actual Rows"] == 500


SUCCEEDED = """
INSERT INTO pgqueue_succeeded_jobs (
    id, succeeded_at, enqueued_at, run_at, first_started_at, started_at, worker_id, run_seconds, priority, attempts,
    lost, queue, task, backend, args, kwargs, metadata, errors, prune_at
)
SELECT
    number, now() + mod(number, 8) * interval '1 day', now(), now(), now(), now(), 1, 0, 0, 1, 0, 'default', 'x', '',
    '[]', '{}', '{}', '[]', CASE WHEN mod(number, %(each)s) = 0 THEN now() END
FROM generate_series(1, %(number)s) AS number
RETURNING 1
"""


def scans_of_succeeded_jobs(nodes):
    scans = [node for node in nodes if node.get("Relation Name", "").startswith("pgqueue_succeeded_jobs_")]
    scans = [scan for scan in scans if scan["Node Type"] != "ModifyTable"]
    assert {scan["Node Type"] for scan in scans} == {"Index Scan"}, json.dumps(nodes, indent=1)
    return scans


def finish_with_statistics_of_less(queue, sql, *, known, number, each):
    """Finish jobs of eight days, when ANALYZE had last seen ``known``: 8 is the start of the day, a row in each."""
    if known:
        queue.rows(SUCCEEDED, {"number": known, "each": 1})
        queue.autocommit().execute("ANALYZE pgqueue_succeeded_jobs")
        sql("DELETE FROM pgqueue_succeeded_jobs")
    queue.rows(SUCCEEDED, {"number": number, "each": each})


@pytest.mark.parametrize(("known", "number", "each"), [(0, 16_000, 100), (8, 16_000, 100), (8, 8_000, 8)])
def test_pruning_reads_what_is_to_be_pruned_and_no_other_succeeded_job(queue, sql, known, number, each):
    finish_with_statistics_of_less(queue, sql, known=known, number=number, each=each)
    nodes = explain(queue, sized("prune_timed", 100), {})
    assert nodes[0]["Actual Rows"] == 100
    assert max(rows_read(scan) for scan in scans_of_succeeded_jobs(nodes)) <= 110
    days = {"days": 7, "stats_days": 7, "bulk_action_days": 30, "once_days": 30, "workflow_days": 7}
    root = explain(queue, statement("prunable"), days)[0]
    assert root["Shared Hit Blocks"] + root["Shared Read Blocks"] < 50, json.dumps(root, indent=1)


def test_purging_reads_the_jobs_it_is_given(queue, sql):
    finish_with_statistics_of_less(queue, sql, known=8, number=8_000, each=8)
    nodes = explain(queue, statement("purge_succeeded"), {"ids": list(range(1, 101))})
    assert nodes[0]["Actual Rows"] == 100
    assert max(rows_read(scan) for scan in scans_of_succeeded_jobs(nodes)) <= 100


def test_pruning_dead_jobs_reads_no_more_than_it_removes(queue, sql):
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, died_at, run_at, enqueued_at, reason, queue, task) SELECT number, "
        "now() - interval '1 year' + number * interval '1 s', now(), now(), 'killed', 'default', 'x' "
        "FROM generate_series(1, 20000) AS number"
    )
    nodes = explain(queue, sized("prune_dead", 100), {"days": 7})
    assert nodes[0]["Actual Rows"] == 100
    [scan] = [node for node in nodes if node.get("Index Name") == "pgqueue_dead_jobs_age"]
    assert rows_read(scan) == 100


def test_stretch_of_the_default_partition_is_read_by_its_pages(queue, sql):
    queue.rows(SUCCEEDED.replace("+ mod(number, 8)", "- 100"), {"number": 10_000, "each": 100})
    sql("ANALYZE pgqueue_succeeded_jobs_default")
    nodes = explain(queue, statement("prune_default"), {"retention_days": 200, "page": 64})
    [scan] = [node for node in nodes if node["Node Type"] == "Tid Range Scan"]
    assert scan["Shared Hit Blocks"] + scan["Shared Read Blocks"] <= 64


# Workflows

MEMBERS = """
INSERT INTO pgqueue_jobs (task, stage_id, status, lease_token, worker_id, lease_until)
SELECT 'x', %s << 16, 'running', 7, 1, now() + interval '1 day' FROM generate_series(1, %s)
RETURNING id
"""


def test_look_at_a_stage_reads_an_entry_or_two_of_its_index(queue, analyze, sql):
    """However many members live, and however many dead entries are at the low end of the index."""
    fill(queue, 10_000, "queued")
    members = [job_id for (job_id,) in sql(MEMBERS, 1, 20_000)]
    sql(MEMBERS, 2, 20_000)
    analyze()
    look = {"stage_ids": [1 << 16, 3 << 16], "with_deaths": [], "worker_id": 1}
    assert pages_of_a_second_look(queue, look) < 50
    sql("DELETE FROM pgqueue_jobs WHERE id = ANY (%s)", members[:-1])
    assert pages_of_a_second_look(queue, look) < 50


def pages_of_a_second_look(queue, look) -> int:
    """Return the pages that a look reads when its plans are made, which are of the catalog else."""
    with queue.transaction():
        queue.rows(statement("advance"), look)
        [(plan,)] = queue.rows(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement('advance')}", look)
    return pages(nodes_of(plan))


def test_members_are_ended_by_their_primary_keys(queue, analyze, sql):
    fill(queue, 10_000, "queued", "running")
    members = [job_id for (job_id,) in sql(MEMBERS, 1, 10_000)][:500]
    analyze()
    parameters = {
        "ids": members,
        "lease_tokens": [7] * 500,
        "results": None,
        "left_out": None,
        "run_seconds": [0.1] * 500,
        "last_progress": None,
        "history": True,
    }
    nodes = explain(queue, statement("finish_members"), parameters)
    assert nodes[0]["Actual Rows"] == 500
    for scan in scans_of_jobs(nodes):
        assert scan["Node Type"] in ("Index Scan", "Tid Scan"), json.dumps(scan, indent=1)
        assert rows_read(scan) <= 500


@pytest.fixture
def begin_many(queue, sql):
    """Begins workflows that no statistics know: an ANALYZE sees none yet, and from then on the planner expects none."""

    def begin(number: int, *, parents: bool = False) -> None:
        with queue.transaction():
            queue.rows(
                "INSERT INTO pgqueue_workflows (name, parent_stage_id) "
                "SELECT 'w', CASE WHEN %(parents)s THEN (1000000000::bigint + number) << 16 END "
                "FROM generate_series(1, %(number)s) AS number RETURNING id",
                {"number": number, "parents": parents},
            )
            sql("ANALYZE pgqueue_workflows")

    with contextlib.ExitStack() as stack:
        for table in ("pgqueue_workflows", "pgqueue_stages", "pgqueue_dead_jobs"):
            stack.enter_context(without_autovacuum(sql, table))
        yield begin


def test_sweep_reads_an_entry_or_two_for_each_open_stage(queue, analyze, sql, begin_many):
    """Of one half of them a member lives, of the other one is dead."""
    fill(queue, 10_000, "queued")
    begin_many(3000, parents=True)
    sql(
        "INSERT INTO pgqueue_stages (id, name, status) SELECT workflow.id << 16, 's', 'open' "
        "FROM pgqueue_workflows AS workflow"
    )
    sql("INSERT INTO pgqueue_jobs (task, stage_id) SELECT 'x', id FROM pgqueue_stages WHERE mod(id >> 16, 2) = 0")
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, run_at, enqueued_at, reason, queue, task, stage_id) "
        "SELECT id, now(), now(), 'killed', 'default', 'x', id FROM pgqueue_stages WHERE mod(id >> 16, 2) = 1"
    )
    analyze()
    nodes = explain(queue, statement("sweep_stages"), {"after": 0})
    assert "Seq Scan" not in [node["Node Type"] for node in nodes], json.dumps(nodes, indent=1)
    assert pages(nodes) < 15_000
    for scan in scans_of_jobs(nodes):
        assert rows_read(scan) <= 1000


def test_stage_closes_without_a_look_at_other_workflows(queue, sql, begin_many):
    begin_many(20_000, parents=True)
    [(workflow,)] = sql("SELECT min(id) + 10000 FROM pgqueue_workflows")
    stages = [workflow << 16, workflow + 1 << 16]
    sql(
        "INSERT INTO pgqueue_stages (id, name, status, is_sealed, opened_at) "
        "SELECT stage, 's', 'open', true, now() FROM unnest(%s::bigint[]) AS stage",
        stages,
    )
    with queue.transaction():
        for stage in stages:  # the first makes the plans of the functions
            parameters = {"stage_ids": [stage], "with_deaths": [stage], "worker_id": 0}
            [(plan,)] = queue.rows(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement('advance')}", parameters)
    assert pages(nodes_of(plan)) < 60
    ended = sql("SELECT id FROM pgqueue_workflows WHERE status = 'succeeded' ORDER BY id")
    assert ended == [(workflow,), (workflow + 1,)]


@pytest.mark.parametrize(
    "look",
    [("workflow_problems", {}), ("workflow_alarms", {"limit": 101}), ("workflow_counts", {"limit": 1000, "names": 9})],
    ids=["doctor", "admin", "metrics"],
)
def test_what_is_stuck_is_found_by_an_entry_or_two_for_each_open_stage(queue, analyze, sql, begin_many, look):
    """However many jobs there are, and if all open stages are stuck and none was sealed."""
    fill(queue, 10_000, "queued", "running")
    begin_many(2000)
    sql(
        "INSERT INTO pgqueue_stages (id, name, status, is_sealed, opened_at) "
        "SELECT workflow.id << 16, 's', 'open', false, now() - interval '1 day' FROM pgqueue_workflows AS workflow"
    )
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, run_at, enqueued_at, reason, queue, task, stage_id) "
        "SELECT flow.id, now(), now(), 'killed', 'default', 'x', flow.id << 16 FROM pgqueue_workflows AS flow"
    )
    analyze()
    name, parameters = look
    with queue.transaction():
        queue.rows(statement(name), parameters)  # makes the plans of the function
        [(plan,)] = queue.rows(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement(name)}", parameters)
    nodes = nodes_of(plan)
    assert pages(nodes) < 25_000
    assert not [node for node in scans_of_jobs(nodes) if node["Node Type"] == "Seq Scan"], json.dumps(nodes, indent=1)


def test_dead_members_of_open_workflows_are_passed_over_by_the_primary_key(queue, sql, begin_many):
    begin_many(20_000)
    [(first,)] = sql("SELECT min(id) FROM pgqueue_workflows")
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, died_at, run_at, enqueued_at, reason, queue, task, stage_id) "
        "SELECT number, now() - interval '1 year' + number * interval '1 s', now(), now(), 'killed', 'default', 'x', "
        "CASE WHEN number <= 100 THEN (%s + number) << 16 END FROM generate_series(1, 2000) AS number",
        first,
    )
    nodes = explain(queue, sized("prune_dead", 100), {"days": 7})
    assert nodes[0]["Actual Rows"] == 100
    assert pages(nodes) < 2000
