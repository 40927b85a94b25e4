"""Jobs are found by filters, page by page."""

import json

import pytest
from django.db import connection

import tests.app.tasks as app
from django_pgqueue.db.queries import along_an_index, statement
from django_pgqueue.jobs.search import MOST_LOOKED, STATEMENTS, Filter, Source, pages
from tests.support.job_tables import TABLES, TIMES
from tests.support.many import enqueued_ids


def found(source: Source, **chosen) -> list[int]:
    return [job_id for page in pages(source, Filter(**chosen)) for job_id in page.ids]


# Filters

each_source = pytest.mark.parametrize("source", list(Source), ids=lambda source: source.name)


@each_source
@pytest.mark.parametrize(
    ("column", "values", "chosen"),
    [
        ("queue", ("mail", "mails"), {"queues": ("mail", "other")}),
        ("task", ("shop.a", "shop.ab"), {"tasks": ("shop.a",)}),
        ("task", ("shop.a", "ashop.a"), {"task_prefix": "shop."}),
        ("task", ("a_%b", "axxb"), {"task_prefix": "a_%"}),
        ("tags", ("{a,b,c}", "{a,c}"), {"tags": ("b", "a")}),
        ("age", ("1 hour 1 s", "59 min"), {"older_than_seconds": 3600}),
        ("age", ("1 s", "-1 min"), {"older_than_seconds": 0}),
        ("errors", ('[{"error": "x.Late"}]', '[{"error": "x.TooLate"}]'), {"error": "Late"}),
        ("errors", ('[{"error": "x.Late"}]', '[{"error": "yx.Late"}]'), {"error": "x.Late"}),
        ("errors", ('[{"error": "A"}, {"error": "B"}]', '[{"error": "B"}, {"error": "A"}]'), {"error": "B"}),
        ("errors", ('[{"error": "worker lost"}]', "[]"), {"error": "worker lost"}),
    ],
)
def test_filter_takes_what_is_just_inside_and_leaves_what_is_just_outside(source, put, column, values, chosen):
    def columns(value):
        if column == "age":
            return {TIMES[source]: f"statement_timestamp() - interval '{value}'"}
        return {column: f"'{value}'"}

    inside, outside = values
    put(source, **columns(outside))
    wanted = put(source, **columns(inside))
    put(source, **columns(outside))
    assert found(source, **chosen) == [wanted]


@each_source
@pytest.mark.parametrize(
    ("args", "kwargs", "chosen"),
    [
        ([17, "x"], {}, {"argument": "17"}),
        (["17"], {}, {"argument": "17"}),
        ([], {"label": "17"}, {"argument": "17"}),
        ([17], {}, {"argument": "17", "argument_name": "label"}),
        ([], {"label": True}, {"argument": "true", "argument_name": "label"}),
        ([], {"other": 9007199254740993}, {"argument": "9007199254740993", "argument_name": "other"}),
        ([None], {}, {"argument": "null"}),
        (["n'ü$"], {}, {"argument": "n'ü$"}),
        ([0.5], {}, {"argument": "0.50"}),
    ],
    ids=str,
)
def test_filter_by_the_value_of_an_argument(source, put, args, kwargs, chosen):
    def columns(args, kwargs):
        return {"task": "'tests.app.tasks.record'", "args": literal(args), "kwargs": literal(kwargs)}

    put(source, **columns(["170"], {"labels": "1", "label": "0"}))
    put(source, **columns([], {"label": {"label": 17}}))
    put(source, **columns(args={"label": 17}, kwargs=[17]))  # as it should not have been inserted
    wanted = put(source, **columns(args, kwargs))
    put(source, **columns([["17"], 1], {"label": 1, "other": 9007199254740992}))
    assert found(source, **chosen) == [wanted]


def literal(value) -> str:
    return "'" + json.dumps(value).replace("'", "''") + "'"


@each_source
@pytest.mark.parametrize(
    ("task", "args", "kwargs"),
    [
        ("log_in", ["ann", "hunter22"], {}),
        ("log_in", ["ann"], {"password": "hunter22"}),
        ("record", ["ann"], {"label": {"token": "hunter22"}, "api_key": "hunter22"}),
        ("unknown", ["ann", "hunter22"], {}),
    ],
)
def test_what_may_not_be_seen_is_not_found_either(source, put, task, args, kwargs):
    put(source, task=f"'tests.app.tasks.{task}'", args=literal(args), kwargs=literal(kwargs))
    for name in (None, "password", "api_key", "token"):
        assert found(source, argument="hunter22", argument_name=name) == []
    assert found(source, argument="[redacted]") == []
    assert len(found(source, argument="ann")) == (task != "unknown")


def test_filter_by_cause_and_by_unique_key(put, sql):
    one = put(Source.DEAD, task="'a'", unique_key="'k'", unique_until="'end'")
    put(Source.DEAD, task="'b'")
    [(cause,)] = sql("SELECT cause FROM pgqueue_dead_jobs WHERE id = %s", one)
    assert found(Source.DEAD, cause=cause) == found(Source.DEAD, unique_key="k") == [one]
    live = put(Source.LIVE, unique_key="'k'", unique_until="'end'")
    put(Source.LIVE, unique_key="'kk'", unique_until="'end'")
    assert found(Source.LIVE, unique_key="k") == [live]


@each_source
def test_filter_by_stage(put, source):
    put(source, stage_id="65536")
    wanted = put(source, stage_id="65538")
    put(source)
    assert found(source, stage=65538) == [wanted]


def test_filter_by_day_of_succeeded_jobs(put):
    at = ("2031-05-01 00:00+00", "2031-05-01 23:59:59.999999+00", "2031-04-30 23:59:59+00", "2031-05-02 00:00+00")
    first, last, *_ = [put(Source.SUCCEEDED, succeeded_at=f"'{one}'") for one in at]
    assert found(Source.SUCCEEDED, day="2031-05-01") == [first, last]


@pytest.mark.parametrize(
    ("source", "chosen"),
    [
        (Source.LIVE, {"cause": 1}),
        (Source.LIVE, {"day": "2031-05-01"}),
        (Source.DEAD, {"day": "2031-05-01"}),
        (Source.SUCCEEDED, {"cause": 1}),
        (Source.SUCCEEDED, {"unique_key": "k"}),
    ],
)
def test_filter_by_what_a_table_does_not_have_is_refused(put, source, chosen):
    """Else it would match all of them."""
    put(source)
    with pytest.raises(ValueError, match=f"jobs cannot be chosen by {next(iter(chosen))}"):
        found(source, **chosen)


def test_filter_by_status_or_reason(put):
    later, lost = put(Source.LIVE, status="'scheduled'"), put(Source.DEAD, reason="'lost'")
    both = [put(Source.LIVE), put(Source.LIVE, status="'limited'")]
    put(Source.DEAD)
    assert found(Source.LIVE, kinds=("scheduled",)) == [later]
    assert found(Source.LIVE, kinds=("queued", "limited")) == both
    assert found(Source.DEAD, kinds=("lost",)) == [lost]
    assert len(found(Source.LIVE)) == 3


def test_filter_needs_all_of_its_parts(put):
    wanted = put(Source.LIVE, queue="'mail'", task="'a'", status="'scheduled'")
    for other in ({"queue": "'x'"}, {"task": "'b'"}, {"status": "'queued'"}):
        put(Source.LIVE, **{"queue": "'mail'", "task": "'a'", "status": "'scheduled'"} | other)
    assert found(Source.LIVE, queues=("mail",), tasks=("a",), kinds=("scheduled",), older_than_seconds=30) == [wanted]


# Pages


@each_source
def test_there_is_a_page_without_ids_where_there_are_no_jobs(db, source):
    [page] = pages(source, Filter())
    assert page == (None, None, 0, [])


def test_pages_end_with_the_job_that_was_the_newest_though_others_come_in(queue):
    ids = enqueued_ids(app.noop, [()] * 1000)
    seen = []
    for page in pages(Source.LIVE, Filter()):
        seen += page.ids
        app.noop.enqueue_many([()] * 1000)
    assert seen == ids


def test_page_is_full_with_a_thousand_jobs_and_the_next_begins_behind_it(db):
    ids = enqueued_ids(app.noop, [()] * 2001)
    assert [page.ids for page in pages(Source.LIVE, Filter())] == [ids[:1000], ids[1000:2000], ids[2000:]]
    assert [page.ids for page in pages(Source.LIVE, Filter(), after_id=ids[1999])] == [ids[2000:]]


def test_page_looks_at_ten_thousand_rows_and_no_more(db):
    app.noop.enqueue_many([()] * 10_000)
    last = app.noop.using(queue="mail").enqueue().id
    first, second = pages(Source.LIVE, Filter(queues=("mail",)))
    assert (first.next_id, first.looked, first.ids) == (last - 1, 10_000, [])
    assert (second.next_id, second.looked, second.ids) == (None, 1, [last])


@pytest.mark.parametrize("statistics", ["taken", "of the empty table"])
@each_source
def test_page_reads_along_the_primary_key_and_stops(queue, sql, put, source, statistics):
    columns = {TIMES[source]: "now()"}
    put(source, **columns)
    table = TABLES[source]
    names = [
        name
        for (name,) in sql(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 1 AND attgenerated = ''", table
        )
    ]
    if statistics != "taken":
        queue.autocommit().execute(f"VACUUM ANALYZE {table}")
    listed = ", ".join(names)
    override = "OVERRIDING SYSTEM VALUE " if source is Source.LIVE else ""
    sql(
        f"INSERT INTO {table} (id, {listed}) {override}"
        f"SELECT 1000 + n, {listed} FROM {table}, generate_series(1, 30000) AS n"
    )
    if statistics == "taken":
        sql(f"ANALYZE {table}")
    parameters = {**Filter(queues=("none",)).parameters(), "after_id": 500, "until_id": None, "most": MOST_LOOKED}
    with along_an_index("default"), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement(STATEMENTS[source])}", parameters)
        [(plan,)] = cursor.fetchall()
    scans = [node for node in nodes_of(plan[0]["Plan"]) if node.get("Relation Name", "").startswith(table[:-1])]
    assert {scan["Node Type"] for scan in scans} <= {"Index Scan", "Index Only Scan"}, json.dumps(plan, indent=1)
    assert sum(scan["Actual Rows"] * scan["Actual Loops"] for scan in scans) <= 10_100


def nodes_of(node):
    return [node] + [below for child in node.get("Plans", ()) for below in nodes_of(child)]


@pytest.mark.django_db
def test_live_job_with_a_unique_key_is_read_along_its_index():
    enqueued_ids(app.noop, [()] * 20)
    keyed = app.noop.using(unique_key="k", queue="mail").enqueue().id
    enqueued_ids(app.noop, [()] * 20)
    [page] = pages(Source.LIVE, Filter(unique_key="k"))
    assert (page.ids, page.looked) == ([keyed], 1)
    assert [page.ids for page in pages(Source.LIVE, Filter(unique_key="k", queues=("default",)))] == [[]]
    assert [*pages(Source.LIVE, Filter(unique_key="k"), after_id=keyed)] == []
    assert [*pages(Source.LIVE, Filter(unique_key="other"))] == []
