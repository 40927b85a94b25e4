"""Each query of docs/how-to/ask-in-sql.md, and of docs/sql, answers what is shown in a shop with planted trouble."""

import csv
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from django_pgqueue.jobs.stats import BOUNDS
from tests.support.cluster import Cluster
from tests.support.storage import without_autovacuum
from tests.support.waiting import eventually

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PAGE = (DOCS / "how-to" / "ask-in-sql.md").read_text()
FILES = {path.stem: path.read_text() for path in (DOCS / "sql").glob("*.sql")}
PLANTED = (HERE / "planted.sql").read_text()

Answer = list[dict[str, str]]


def sections() -> dict[str, str]:
    """Return what stands below each heading."""
    parts = re.split(r"^#{1,3} (.+)$", PAGE, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


PREPARATION = "Before you begin"
HORIZON, TABLE = "old_snapshots", "table_size"
OF_THE_SERVER = {HORIZON, TABLE, "indexes", "partitions"}
"""What these answer differs from server to server and from day to day."""


def of_page(language: str) -> dict[str, str]:
    """Return the block in this language below each heading that has one."""
    found = {heading: blocks(text, language) for heading, text in sections().items() if heading != PREPARATION}
    return {heading: block for heading, [block] in ((heading, some) for heading, some in found.items() if some)}


def parts_of_file(text: str) -> tuple[str, str]:
    """Return a query with its comments, and the answer, which stands below it as a comment."""
    query, _, answer = text.partition(";\n\n")
    return query, "".join(f"{line.removeprefix('--').removeprefix(' ')}\n" for line in answer.splitlines())


QUERIES = of_page("sql") | {name: parts_of_file(text)[0] for name, text in FILES.items()}
SAMPLES = of_page("text") | {name: parts_of_file(text)[1] for name, text in FILES.items()}


@pytest.fixture
def shop(transactional_db, sql) -> None:
    sql(PLANTED)
    sql("UPDATE pgqueue_workers SET lease_until = now() + interval '1 hour'")  # however slow this machine is
    sql(  # and however soon a minute is over: the latest counts are those of a minute ago, from now on
        "UPDATE pgqueue_stats SET minute = minute + newest.age - interval '1 minute' "
        "FROM (SELECT now() - max(minute) AS age FROM pgqueue_stats) AS newest"
    )
    sql("ANALYZE")


@pytest.fixture
def ask(transactional_db) -> Callable[[str], Answer]:
    """Ask one query of the page; return its rows as texts, by the names of their columns."""

    def run(name: str) -> Answer:
        with connection.cursor() as cursor:
            return copied(cursor, QUERIES[name])

    return run


def copied(cursor, query: str) -> Answer:
    with cursor.copy(f"COPY ({query.rstrip().removesuffix(';')}) TO STDOUT WITH (FORMAT csv, HEADER)") as copy:
        text = b"".join(copy).decode()
    return list(csv.DictReader(io.StringIO(text)))


def shown(sample: str) -> Answer:
    """Read a table as psql prints it."""
    head, _, *rows = sample.splitlines()
    columns = [column.strip() for column in head.split("|")]
    return [dict(zip(columns, [cell.strip() for cell in row.split("|")], strict=True)) for row in rows]


def timeless(answer: Answer) -> Answer:
    """Leave out of durations what a second more or less makes of them."""
    return [{name: re.sub(r"-?(\d+ days? )?\d\d:\d\d:\d\d", "~", cell) for name, cell in row.items()} for row in answer]


def test_every_query_has_an_answer_and_every_file_is_on_the_page():
    assert len(QUERIES) >= 15
    assert set(re.findall(r"\(\.\./sql/(\w+)\.sql\)", PAGE)) == set(FILES)
    assert set(QUERIES) == set(SAMPLES)


def test_answers_that_are_shown_are_those_of_the_planted_shop(shop, ask):
    names = [name for name in QUERIES if name not in OF_THE_SERVER]
    answers = {name: timeless(ask(name)) for name in names}
    assert answers == {name: timeless(shown(SAMPLES[name])) for name in names}


def test_answers_of_the_server_have_the_columns_on_the_page(ask, sql):
    columns = {}
    for name in OF_THE_SERVER:
        with connection.cursor() as cursor:
            cursor.execute(QUERIES[name])
            columns[name] = [column.name for column in cursor.description]
    assert columns == {name: list(shown(SAMPLES[name])[0]) for name in OF_THE_SERVER}


def test_role_of_the_page_may_ask_everything_and_change_nothing(shop, sql):
    grant, protect = blocks(sections()[PREPARATION], "sql")
    sql("DROP ROLE IF EXISTS night_shift")
    sql("CREATE ROLE night_shift")
    try:
        sql(grant)
        sql("SET ROLE night_shift")
        with pytest.raises(Exception, match="permission denied"):
            sql("DELETE FROM pgqueue_jobs")
        sql(protect)
        with connection.cursor() as cursor:
            for query in QUERIES.values():
                assert copied(cursor, query) is not None
        sql("RESET ROLE")
        with pytest.raises(Exception, match="read-only"):
            sql("DELETE FROM pgqueue_jobs")
    finally:
        sql("RESET ROLE")
        sql("RESET default_transaction_read_only")
        sql("RESET statement_timeout")
        sql("DROP OWNED BY night_shift")
        sql("DROP ROLE night_shift")


def test_oldest_job_stands_for_its_queue_as_do_paused_ones(shop, ask):
    by_queue = {row["queue"]: row for row in ask("oldest_jobs")}
    assert by_queue["emials"]["oldest"].startswith("03:0")
    assert by_queue["imports"]["oldest"].startswith("00:2"), "its turn is of yesterday"
    assert [row["is_paused"] for row in by_queue.values()] == ["f", "t", "f"]


def test_wait_counts_from_run_at(shop, ask, sql):
    sql("UPDATE pgqueue_jobs SET enqueued_at = now() - interval '9 days' WHERE queue = 'emails'")
    [mails] = [row for row in ask("waits_of_ready_jobs") if row["queue"] == "emails"]
    assert (mails["ready"], mails["longest"][:4]) == ("100", "00:0")


def test_ends_of_buckets_are_those_that_workers_count_by(transactional_db):
    [query] = [query for query in QUERIES.values() if "ARRAY[" in query]
    [ends] = re.findall(r"ARRAY\[(.*?), 'Infinity'", query, flags=re.DOTALL)
    assert tuple(map(float, ends.split(","))) == BOUNDS


def test_steady_failures_are_no_spike_and_new_ones_are(shop, ask, sql):
    name = "new_failures"
    assert [row["task"] for row in ask(name)] == ["shop.tasks.send_receipt"]
    sql("UPDATE pgqueue_stats SET succeeded = 20, failed = 1 WHERE queue = 'emails'")
    assert ask(name) == []


def test_task_that_is_new_and_fails_is_a_spike(transactional_db, ask, sql):
    sql("INSERT INTO pgqueue_stats (minute, queue, task, failed) VALUES (now() - interval '2 minutes', 'q', 'new', 5)")
    [spike] = ask("new_failures")
    assert (spike["task"], spike["failures"], spike["percent_before"]) == ("new", "5", "0")


def test_job_of_a_worker_that_is_gone_has_a_lease_in_the_past(shop, ask):
    [lost] = [row for row in ask("running_jobs") if row["host"] == ""]
    assert lost["id"] == "81240004"
    assert lost["lease_left"].startswith("-")


def test_dead_rows_and_partitions_are_those_that_are_there(shop, ask, sql):
    with without_autovacuum(sql):  # it may come at any time
        sql("DELETE FROM pgqueue_jobs WHERE queue = 'imports'")
        sql("SELECT pg_stat_force_next_flush()")
        eventually(lambda: int(ask(TABLE)[0]["dead"]) >= 12_000)
    partitions = {row["partition"]: row for row in ask("partitions")}
    assert partitions["pgqueue_succeeded_jobs_default"]["holds"] == "what fits nowhere else"
    assert sum(int(row["rows"]) for row in partitions.values()) >= 101
    assert "pgqueue_jobs_claim" in {row["index"] for row in ask("indexes")}


# Who pins the horizon: on a server of its own, with a standby


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    settings = "max_prepared_transactions = 2\nhot_standby_feedback = on\nwal_receiver_status_interval = 1s\n"
    settings += "autovacuum = off\n"  # which may hold a snapshot, too
    with tempfile.TemporaryDirectory(prefix="horizon-") as folder:
        made = Cluster(Path(folder), settings)
        try:
            made.start()
            yield made
        finally:
            made.stop()


def session_of(cluster: Cluster, **options: str) -> psycopg.Connection:
    return psycopg.connect(host="127.0.0.1", port=cluster.primary.port, user="postgres", dbname="postgres", **options)


def test_every_session_that_pins_the_horizon_is_named(cluster):
    with (
        session_of(cluster, application_name="nightly export") as export,
        session_of(cluster) as asking,
    ):
        asking.autocommit = True

        def holders() -> dict[str, dict[str, str]]:
            return {row["kind"]: row for row in copied(asking.cursor(), QUERIES[HORIZON])}

        eventually(lambda: "standby" in holders())
        export.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        export.execute("SELECT count(*) FROM pg_class")
        assert "nightly export" in holders()["session"]["who"]
        assert holders()["session"]["doing"].startswith("idle in transaction: SELECT count(*)")
        asking.execute("CREATE TABLE IF NOT EXISTS moved (id int)")
        asking.autocommit = False
        asking.execute("INSERT INTO moved VALUES (1)")
        asking.execute("PREPARE TRANSACTION 'bank transfer'")
        asking.autocommit = True
        asking.execute("SELECT pg_create_physical_replication_slot('replica')")
        cluster.other.set("primary_slot_name", "replica")
        eventually(lambda: "replication slot" in holders())
        assert holders()["replication slot"]["who"] == "replica"
        assert holders()["prepared transaction"]["who"] == "bank transfer, postgres"
        asking.execute("ROLLBACK PREPARED 'bank transfer'")
        export.rollback()
        assert not {"session", "prepared transaction"} & set(holders())


# Plans

CROWD = """
INSERT INTO pgqueue_jobs (id, task, queue, status, run_at, concurrency_key, concurrency_limit, lease_token, worker_id)
SELECT
    200000000 + row_number() OVER (), 'x', 'crowd', kind, now() - interval '1 minute',
    CASE kind WHEN 'limited' THEN 'key ' || number % 200 END, CASE kind WHEN 'limited' THEN 1 END,
    CASE kind WHEN 'running' THEN 1 ELSE 0 END, CASE kind WHEN 'running' THEN 10 + number % 50 ELSE 0 END
FROM generate_series(1, 24000) AS number, unnest(ARRAY['queued', 'queued', 'scheduled', 'limited', 'running']) AS kind
"""


@pytest.fixture(params=["statistics taken", "vacuumed while empty"])
def crowd(request, shop, sql) -> Iterator[None]:
    """Put 120,000 more jobs into the table, with statistics that are right, or those of an empty table."""
    with without_autovacuum(sql):
        if request.param == "vacuumed while empty":
            sql("DELETE FROM pgqueue_jobs")
            sql("VACUUM ANALYZE pgqueue_jobs")
        sql("INSERT INTO pgqueue_queues (name) VALUES ('crowd')")
        sql(CROWD)
        if request.param == "statistics taken":
            sql("ANALYZE")
        yield


def test_no_query_reads_the_whole_table_and_each_leans_on_the_index_that_it_names(crowd, sql):
    for name, query in QUERIES.items():
        [(plan,)] = sql(f"EXPLAIN (FORMAT JSON) {query}")
        nodes = list(nodes_of(json.loads(plan) if isinstance(plan, str) else plan))
        scans = [node for node in nodes if node.get("Relation Name") == "pgqueue_jobs"]
        assert "Seq Scan" not in {node["Node Type"] for node in scans}, f"{name}: {json.dumps(nodes, indent=1)}"
        named = {index for line in re.findall(r"^-- Index: (.+)$", query, re.MULTILINE) for index in line.split(", ")}
        leant_on = {node["Index Name"] for node in nodes if "Index Name" in node}
        assert {index for index in named if index.startswith("pgqueue_jobs")} <= leant_on, name


def nodes_of(plan: list) -> Iterator[dict]:
    waiting = [plan[0]["Plan"]]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.get("Plans", [])
