"""Choose many jobs and do something to them, slice by slice."""

import datetime as dt
import json

import pytest
from django.db import connection, transaction

import tests.app.tasks as app
from django_pgqueue import enqueue_many, kill, move_jobs, purge, retry, set_priority
from django_pgqueue.db.queries import statement
from django_pgqueue.exceptions import InvalidJob
from django_pgqueue.jobs.actions import (
    SkipReason,
    lock_with_status,
    why_not_changed,
    why_not_killed,
    why_not_retried,
    why_skipped,
)
from django_pgqueue.jobs.bulk_actions import BulkActionResult, in_slices
from django_pgqueue.jobs.claim import claim
from django_pgqueue.jobs.search import Filter, Source, along_an_index, pages
from django_pgqueue.maintenance.promoter import promote
from django_pgqueue.models import DeadJob, FinishedJob, Job

TABLES = {Source.LIVE: "pgqueue_jobs", Source.DEAD: "pgqueue_dead_jobs", Source.FINISHED: "pgqueue_finished_jobs"}
TIMES = {Source.LIVE: "enqueued_at", Source.DEAD: "died_at", Source.FINISHED: "finished_at"}


@pytest.fixture
def put(sql):
    """Insert a row into one of the three tables, a minute old; returns its id."""
    ids = iter(range(1, 1000))

    def run(source, **columns) -> int:
        job_id = next(ids)
        values = {"id": str(job_id), "task": "'x'", TIMES[source]: "statement_timestamp() - interval '1 min'"}
        if source is not Source.LIVE:
            values |= {"queue": "'default'", "run_at": "now()", "enqueued_at": "now()"}
        if source is Source.DEAD:
            values["reason"] = "'exhausted'"
        if source is Source.FINISHED:
            zeros = ("worker_id", "run_seconds", "priority", "attempts", "lost")
            values |= dict.fromkeys(zeros, "0") | {"first_started_at": "now()", "started_at": "now()", "backend": "''"}
            values |= dict.fromkeys(("args", "errors"), "'[]'") | dict.fromkeys(("kwargs", "metadata"), "'{}'")
        values |= columns
        override = "OVERRIDING SYSTEM VALUE " if source is Source.LIVE else ""
        sql(f"INSERT INTO {TABLES[source]} ({', '.join(values)}) {override}VALUES ({', '.join(values.values())})")
        return job_id

    return run


def found(source: Source, **chosen) -> list[int]:
    return [job_id for page in pages(source, Filter(**chosen)) for job_id in page.ids]


@pytest.fixture
def dead(queue):
    def make(number: int) -> list[int]:
        ids = enqueue_many(app.record, [("x",)] * number)
        for start in range(0, number, 1000):
            kill(ids[start : start + 1000], by="eve")
        return ids

    return make


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
        ("age", ("61 s", "59 s"), {"older_than_seconds": 60}),
        ("age", ("1 s", "-1 s"), {"older_than_seconds": 0}),
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
    one = put(Source.DEAD, task="'a'", unique_key="'k'", unique_scope="'live'")
    put(Source.DEAD, task="'b'")
    [(cause,)] = sql("SELECT cause FROM pgqueue_dead_jobs WHERE id = %s", one)
    assert found(Source.DEAD, cause=cause) == found(Source.DEAD, unique_key="k") == [one]
    live = put(Source.LIVE, unique_key="'k'", unique_scope="'live'")
    put(Source.LIVE, unique_key="'kk'", unique_scope="'live'")
    assert found(Source.LIVE, unique_key="k") == [live]


def test_filter_by_day_of_finished_jobs(put):
    at = ("2031-05-01 00:00+00", "2031-05-01 23:59:59.999999+00", "2031-04-30 23:59:59+00", "2031-05-02 00:00+00")
    first, last, *_ = [put(Source.FINISHED, finished_at=f"'{one}'") for one in at]
    assert found(Source.FINISHED, day="2031-05-01") == [first, last]


@pytest.mark.parametrize(
    ("source", "chosen"),
    [
        (Source.LIVE, {"cause": 1}),
        (Source.LIVE, {"day": "2031-05-01"}),
        (Source.DEAD, {"day": "2031-05-01"}),
        (Source.FINISHED, {"cause": 1}),
        (Source.FINISHED, {"unique_key": "k"}),
    ],
)
def test_filter_by_what_a_table_does_not_have_is_refused(put, source, chosen):
    """Else it would match all of them."""
    put(source)
    with pytest.raises(ValueError, match=f"jobs cannot be chosen by {next(iter(chosen))}"):
        found(source, **chosen)


def test_filter_by_status_or_reason(put):
    later, lost = put(Source.LIVE, status="'scheduled'"), put(Source.DEAD, reason="'lost'")
    both = [put(Source.LIVE), put(Source.LIVE, status="'waiting'")]
    put(Source.DEAD)
    assert found(Source.LIVE, kinds=("scheduled",)) == [later]
    assert found(Source.LIVE, kinds=("queued", "waiting")) == both
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
    ids = enqueue_many(app.noop, [()] * 1000)
    seen = []
    for page in pages(Source.LIVE, Filter()):
        seen += page.ids
        enqueue_many(app.noop, [()] * 1000)
    assert seen == ids


def test_page_is_full_with_a_thousand_jobs_and_the_next_begins_behind_it(db):
    ids = enqueue_many(app.noop, [()] * 2001)
    assert [page.ids for page in pages(Source.LIVE, Filter())] == [ids[:1000], ids[1000:2000], ids[2000:]]
    assert [page.ids for page in pages(Source.LIVE, Filter(), after_id=ids[1999])] == [ids[2000:]]


def test_page_looks_at_ten_thousand_rows_and_no_more(db):
    enqueue_many(app.noop, [()] * 10_000)
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
    parameters = {**Filter(queues=("none",)).parameters(), "after_id": 500, "until_id": None}
    with along_an_index("default"), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement(source.value)}", parameters)
        [(plan,)] = cursor.fetchall()
    scans = [node for node in nodes_of(plan[0]["Plan"]) if node.get("Relation Name", "").startswith(table[:-1])]
    assert {scan["Node Type"] for scan in scans} <= {"Index Scan", "Index Only Scan"}, json.dumps(plan, indent=1)
    assert sum(scan["Actual Rows"] * scan["Actual Loops"] for scan in scans) <= 10_100


def nodes_of(node):
    return [node] + [below for child in node.get("Plans", ()) for below in nodes_of(child)]


# Slices


def moved(ids):
    return {"moved": move_jobs(ids, queue="new", by="eve")}


def run(source, act, why, **chosen) -> BulkActionResult:
    tally = BulkActionResult()
    batches = (page.ids for page in pages(source, Filter(**chosen)))
    for _ in in_slices(batches, act, why, tally=tally):
        pass
    return tally


def test_2500_jobs_are_moved_in_slices_each_a_transaction_of_its_own(queue):
    ids = enqueue_many(app.noop, [()] * 2500)
    tally, seen = BulkActionResult(), []
    batches = (page.ids for page in pages(Source.LIVE, Filter()))
    for _ in in_slices(batches, moved, why_not_changed, tally=tally):
        [(committed,)] = queue.rows("SELECT count(*) FROM pgqueue_jobs WHERE queue = 'new'", {})
        seen.append(committed)
    assert seen == [1000, 2000, 2500]
    assert (tally.done, tally.left) == ({"moved": 2500}, {})
    assert Job.objects.filter(queue="new").count() == len(ids)


def test_interrupted_slice_is_rolled_back_and_those_before_stay(queue):
    enqueue_many(app.noop, [()] * 2500)
    tally, slices = BulkActionResult(), []

    def act(ids):
        done = moved(ids)
        slices.append(ids)
        if len(slices) == 2:
            raise KeyboardInterrupt
        return done

    batches = (page.ids for page in pages(Source.LIVE, Filter()))
    with pytest.raises(KeyboardInterrupt):
        for _ in in_slices(batches, act, why_not_changed, tally=tally):
            pass
    assert tally.done == {"moved": 1000}
    assert Job.objects.filter(queue="new").count() == 1000


@pytest.mark.django_db(transaction=True)
def test_slices_refuse_to_be_part_of_a_transaction():
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        list(in_slices([[1]], moved, why_not_changed, tally=BulkActionResult()))


def test_what_is_locked_or_running_is_left_and_said(queue, other_queue):
    running, locked, free, gone = [*enqueue_many(app.noop, [()] * 3), 10**9]
    claim(other_queue, "default", limit=1, worker_id=1)
    tally = BulkActionResult()
    with other_queue.transaction():
        other_queue.rows("SELECT id FROM pgqueue_jobs WHERE id = %(id)s FOR UPDATE", {"id": locked})
        list(in_slices([[running, locked, free, gone]], moved, why_not_changed, tally=tally))
    assert tally.done == {"moved": 1}
    assert tally.examples == {SkipReason.RUNNING: [running], SkipReason.CHANGING: [locked], SkipReason.GONE: [gone]}
    assert Job.objects.get(queue="new").id == free


@pytest.mark.parametrize(
    "wrong", ["queue = repeat('q', 129)", "task = repeat('t', 501)", "enqueued_at = '1969-01-01Z'"]
)
def test_job_that_the_live_table_would_refuse_stays_dead_and_the_others_go(dead, sql, wrong):
    """As one that SQL has inserted before the table had its checks."""
    refused, free = dead(2)
    sql(f"UPDATE pgqueue_dead_jobs SET {wrong} WHERE id = %s", refused)
    tally = run(Source.DEAD, lambda ids: {"retried": retry(ids, by="eve").ids}, why_not_retried)
    assert (tally.done, tally.examples) == ({"retried": 1}, {SkipReason.OUT_OF_BOUNDS: [refused]})
    assert DeadJob.objects.get().pk == refused
    assert Job.objects.get().pk == free


def test_job_whose_unique_key_is_held_stays_dead_and_says_so(dead, sql):
    held, free = dead(2)
    sql("UPDATE pgqueue_dead_jobs SET unique_key = 'k', unique_scope = 'live' WHERE id = %s", held)
    sql("INSERT INTO pgqueue_jobs (task, unique_key, unique_scope) VALUES ('x', 'k', 'live')")
    tally = run(Source.DEAD, lambda ids: {"retried": retry(ids, by="eve").ids}, why_not_retried)
    assert (tally.done, tally.examples) == ({"retried": 1}, {SkipReason.KEY_HELD: [held]})
    assert Job.objects.filter(pk=free).exists()


def test_reserved_is_left_alone(put):
    held = put(Source.LIVE, status="'reserved'")
    assert moved([held]) == {"moved": []}
    assert set_priority([held], priority=1, by="eve") == []
    assert why_skipped([held], why_not_killed) == why_skipped([held], why_not_changed) == {held: SkipReason.RESERVED}


def test_job_that_began_meanwhile_has_no_longer_the_status_that_was_chosen(queue):
    first, second = enqueue_many(app.noop, [()] * 2)
    claim(queue, "default", limit=1, worker_id=1)
    with transaction.atomic():
        assert lock_with_status([first, second], ["queued", "scheduled"]) == [second]


# Verbs


def test_moved_jobs_are_claimed_from_their_new_queue_in_order(queue):
    low, high = app.noop.enqueue().id, app.noop.using(priority=5).enqueue().id
    later = app.noop.using(run_at=dt.timedelta(hours=1)).enqueue().id
    assert sorted(move_jobs([low, high, later], queue="new", by="eve")) == [low, high, later]
    assert claim(queue, "default", limit=9, worker_id=1) == []
    assert [job.id for job in claim(queue, "new", limit=9, worker_id=1)] == [high, low]
    assert Job.objects.get(pk=later).status == "scheduled"


def test_priority_changes_who_is_claimed_first(queue):
    first, second = enqueue_many(app.noop, [()] * 2)
    assert set_priority([second], priority=100, by="eve") == [second]
    assert [job.id for job in claim(queue, "default", limit=2, worker_id=1)] == [second, first]
    assert set_priority([first, second], priority=1, by="eve") == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("act", "payload", "told"),
    [
        (lambda ids: move_jobs(ids, queue="new", by="ann"), "new", "Moved to queue 'new'"),
        (lambda ids: set_priority(ids, priority=3, by="ann"), "old", "Given priority 3"),
    ],
)
def test_workers_are_woken_for_what_may_run_now(caplog, django_capture_on_commit_callbacks, act, payload, told):
    caplog.set_level("INFO", "django_pgqueue")
    later = app.noop.using(queue="old", run_at=dt.timedelta(hours=1)).enqueue().id
    now = Job.objects.create(task="t", queue="old").pk
    with django_capture_on_commit_callbacks() as hooks:
        act([later])
    assert hooks == []
    with django_capture_on_commit_callbacks() as hooks:
        act([now])
    assert [hook.payloads for hook in hooks] == [(payload,)]
    assert f"{told} by ann: jobs [{now}]" in caplog.text


def test_slot_is_kept_and_a_fair_job_is_promoted_anew(sql, put):
    slot = {"concurrency_key": "'k'", "concurrency_limit": "1", "concurrency_slot": "1"}
    slotted = put(Source.LIVE, fair_key="'f'", **slot)
    fair, plain = put(Source.LIVE, fair_key="'f'"), put(Source.LIVE)
    for act in (lambda ids: move_jobs(ids, queue="new", by="eve"), lambda ids: set_priority(ids, priority=9, by="eve")):
        sql("UPDATE pgqueue_jobs SET status = 'queued'")
        assert len(act([slotted, fair, plain])) == 3
        statuses = dict(Job.objects.values_list("id", "status"))
        assert statuses == {slotted: "queued", fair: "scheduled", plain: "queued"}
    assert Job.objects.get(pk=slotted).concurrency_slot == 1


def test_purge_removes_dead_jobs_or_finished_ones_and_never_live_ones(put, sql):
    live, gone, kept, done = put(Source.LIVE), put(Source.DEAD), put(Source.DEAD), put(Source.FINISHED)
    assert purge([live, gone, done], by="eve") == [gone]
    assert purge([live, kept, done], by="eve", finished=True) == [done]
    assert [list(model.objects.values_list("pk", flat=True)) for model in (Job, DeadJob, FinishedJob)] == [
        [live],
        [kept],
        [],
    ]


@pytest.mark.parametrize("source", [Source.DEAD, Source.FINISHED])
def test_purge_does_not_wait_for_a_locked_row(queue, other_queue, put, source):
    locked, free = put(source), put(source)
    with other_queue.transaction():
        other_queue.rows(f"SELECT id FROM {TABLES[source]} WHERE id = {locked} FOR UPDATE", {})
        assert purge([locked, free], by="eve", finished=source is Source.FINISHED) == [free]


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: move_jobs([1], queue="", by="eve"), "queue is a name of 1 to 128 characters, not ''"),
        (lambda: set_priority([1], priority=101, by="eve"), "from -100 to 100, not 101"),
    ],
)
def test_queue_or_priority_that_cannot_be_is_named(db, act, message):
    with pytest.raises(InvalidJob, match=message):
        act()


def test_fair_jobs_that_move_get_turns_between_those_that_are_there(queue):
    moved = enqueue_many(app.noop.using(queue="old", fair_key="a"), [()] * 3)
    there = enqueue_many(app.noop.using(queue="new", fair_key="b"), [()] * 3)
    move_jobs(moved, queue="new", by="eve")
    assert [job.id for job in claim(queue, "new", limit=1, worker_id=1)] == there[:1]
    promote(queue)
    order = [job.id for job in claim(queue, "new", limit=9, worker_id=1)]
    assert sorted(order) == moved + there[1:]
    assert {*order[:2]} == {moved[0], there[1]}
