"""Lists of jobs: they cost as much in big tables as in small ones, and look through windows, page by page."""

import datetime as dt
import json
import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.http import urlencode

import tests.app.tasks as app
from django_pgqueue.admin import changelist, keyset
from django_pgqueue.db.queries import bounded
from django_pgqueue.models import DeadJob, Job, SucceededJob
from tests.support.admin_jobs import DEAD, JOBS, SUCCEEDED, dead, queued
from tests.support.job_lists import ids, listed, walk

pytestmark = pytest.mark.django_db


@pytest.fixture
def big(sql):
    """50,000 jobs and as many dead and succeeded ones, on a few queues and tasks."""
    now = "statement_timestamp()"
    sql(
        "INSERT INTO pgqueue_jobs (task, queue, priority, status, run_at, lease_token, worker_id) "
        "SELECT 'shop.task_' || n % 7, 'queue_' || n % 5, n % 3, "
        "CASE WHEN n % 1000 = 0 THEN 'running' WHEN n % 3 = 0 THEN 'scheduled' ELSE 'queued' END, "
        f"{now} + n * interval '1 second', CASE WHEN n % 1000 = 0 THEN n ELSE 0 END, n % 8 "
        "FROM generate_series(1, 50000) AS n"
    )
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, task, queue, reason, died_at, run_at, enqueued_at) "
        "SELECT n, 'shop.task_' || n % 7, 'queue_' || n % 5, CASE WHEN n % 10 = 0 THEN 'killed' ELSE 'exhausted' END, "
        f"{now} - n * 7919 % 50000 * interval '1 second', {now}, {now} FROM generate_series(1, 50000) AS n"
    )
    sql(
        "INSERT INTO pgqueue_succeeded_jobs (id, task, queue, succeeded_at, enqueued_at, run_at, first_started_at, "
        "started_at, worker_id, run_seconds, priority, attempts, lost, backend, args, kwargs, metadata, errors) "
        f"SELECT n, 'shop.task_' || n % 7, 'queue_' || n % 5, {now} + n % 3 * interval '1 day', {now}, {now}, {now}, "
        f"{now}, 1, 0.5, 0, 1, 0, '', '[]', '{{}}', '{{}}', '[]' FROM generate_series(1, 50000) AS n"
    )
    for table in ("pgqueue_jobs", "pgqueue_dead_jobs", "pgqueue_succeeded_jobs"):
        sql(f"ANALYZE {table}")


@pytest.fixture
def window() -> Iterator[pytest.MonkeyPatch]:
    """Look through fewer rows than there are, until it is undone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyset, "WINDOW", 5_000)
        yield patch


LISTS = [
    JOBS,
    f"{JOBS}?before=last",
    f'{JOBS}?after=["30000"]',
    f'{JOBS}?below=["30000"]',
    f"{JOBS}?status=queued",
    f"{JOBS}?status=scheduled",
    f"{JOBS}?status=running",
    f"{JOBS}?status=limited",
    f"{JOBS}?status=reserved",
    f"{JOBS}?status=scheduled&queue=queue_1",
    f"{JOBS}?queue=queue_1",
    f"{JOBS}?status=queued&queue=queue_1&before=last",
    f"{JOBS}?status=running&queue=queue_1",
    f"{JOBS}?q=25000",
    f"{JOBS}?q=key:none",
    f"{JOBS}?q=shop.task_1",
    f"{JOBS}?q=arg:none",
    f"{JOBS}?q=label%3Dnone&status=queued",
    DEAD,
    f"{DEAD}?before=last",
    f"{DEAD}?reason=exhausted",
    f"{DEAD}?reason=killed",
    f"{DEAD}?queue=queue_1",
    f"{DEAD}?task=shop.task_1",
    f"{DEAD}?task=shop.task_1&reason=killed",
    f"{DEAD}?cause=17",
    f"{DEAD}?q=25000",
    f"{DEAD}?q=key:none",
    f"{DEAD}?q=arg:none",
    f"{DEAD}?q=shop.task",
    f"{DEAD}?q=shop.task_3",
    SUCCEEDED,
    f"{SUCCEEDED}?before=last",
    f"{SUCCEEDED}?queue=queue_1",
    f"{SUCCEEDED}?q=25000",
    f"{SUCCEEDED}?q=shop.task_3",
    f"{SUCCEEDED}?q=arg:none",
]


def queries_of(client: Client, url: str) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(url).status_code == 200
    return [query["sql"] for query in captured if "pgqueue_" in query["sql"]]


def test_lists_of_big_tables_cost_as_much_as_those_of_small_ones(viewer, staff, big, window, sql):
    """One table for all claims, and each page once for each state of its statistics."""
    for url in LISTS:
        queries = queries_of(viewer, url)
        they_are_few_and_leave_heavy_columns(queries, url)
        for query in queries:
            it_reads_along_an_index(sql, query, url)
            it_reads_a_bounded_number_of_rows(sql, query, url)
    # Statistics of the hot table, which is rarely analyzed: taken when most jobs were queued.
    sql("UPDATE pgqueue_jobs SET status = 'scheduled' WHERE status = 'queued'")
    for url in LISTS:
        for query in queries_of(viewer, url):
            it_reads_a_bounded_number_of_rows(sql, query, url)
    window.undo()
    count_is_capped_and_says_so(viewer)
    select_all_is_not_offered_beyond_what_one_action_takes(staff)


def it_reads_along_an_index(sql, query: str, url: str) -> None:
    plan = explain(sql, query)
    assert "Seq Scan on pgqueue" not in plan, f"{url}\n{query}\n{plan}"
    # The few jobs of one worker process may be sorted, as the index hands them out.
    sorts = re.findall(r"\bSort +\(.*\n(?:.*Presorted Key: ([\w.]+))?", re.sub(r"\n *Sort Key.*", "", plan))
    assert set(sorts) <= ({"worker_id", "pgqueue_jobs.worker_id"} if "status=running" in url else set()), (
        f"{url}\n{query}\n{plan}"
    )


def they_are_few_and_leave_heavy_columns(queries: list[str], url: str) -> None:
    assert len(queries) <= 9, "\n".join(queries)
    for query in queries:
        assert "DISTINCT" not in query
        is_sized = 'pg_column_size("pgqueue_dead_jobs"."args")' in query  # small ones, to find sensitive values by
        assert '"args"' not in query or "q=arg:" in url or "label" in url or is_sized
        if "COUNT(" in query:
            assert "LIMIT 10001" in query


def it_reads_a_bounded_number_of_rows(sql, query: str, url: str) -> None:
    plan = explain(sql, query, "ANALYZE, FORMAT JSON")
    assert rows_read(plan[0]["Plan"]) <= 12_000, f"{url}\n{query}\n{json.dumps(plan, indent=1)}"


def explain(sql, query: str, options: str = "COSTS"):
    with bounded("default"):
        rows = sql(f"EXPLAIN ({options}) {query.replace('%', '%%')}")
    return rows[0][0] if "JSON" in options else "\n".join(line for (line,) in rows)


def rows_read(node: dict) -> float:
    """Return how many rows of tables a plan has looked at."""
    below = sum(rows_read(child) for child in node.get("Plans", ()))
    if "Relation Name" not in node:
        return below
    return below + (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]


def count_is_capped_and_says_so(viewer: Client) -> None:
    for url in (JOBS, DEAD, SUCCEEDED):
        assert re.search(r"<span>10,000\+ (dead |succeeded )?jobs</span>", viewer.get(url).content.decode())
    assert "<span>50 jobs</span>" in viewer.get(f"{JOBS}?status=running").content.decode()


def select_all_is_not_offered_beyond_what_one_action_takes(staff: Client) -> None:
    assert "Select all 1" not in staff.get(JOBS).content.decode()
    job_id = dead()
    DeadJob.objects.exclude(pk=job_id).filter(pk__gt=150).delete()
    assert re.search(r"Select all 15\d dead jobs", staff.get(DEAD).content.decode())


@pytest.mark.parametrize("count", [changelist.CAP - 1, changelist.CAP, changelist.CAP + 1])
def test_cap_is_exact_at_its_edge(count):
    app.noop.enqueue_many([()] * count)
    paginator = changelist.CappedPaginator(Job.objects.order_by("-pk"), 100)
    assert (paginator.count, paginator.is_capped) == (min(count, changelist.CAP), count > changelist.CAP)


def test_address_bar_does_not_order_the_list(viewer):
    first, second = queued(), queued()
    for order in ("o=1", "o=-2.3", "o=5"):
        assert [job.pk for job in viewer.get(f"{JOBS}?{order}").context["cl"].result_list] == [second, first]


def test_choices_of_filters_are_few(sql):
    sql(
        "INSERT INTO pgqueue_jobs (task, queue) SELECT 't', 'q' || lpad(n::text, 4, '0') FROM generate_series(1, 500) n"
    )
    found = changelist.names("queued_queues", "default")
    assert (found[0], len(found)) == ("q0001", 100)


def test_links_are_there_where_there_are_pages(viewer, many, short):
    first = listed(viewer, SUCCEEDED)
    assert set(first.links) == {"next", "last"}
    middle = listed(viewer, SUCCEEDED + first.links["next"])
    assert set(middle.links) == {"first", "previous", "next", "last"}
    assert set(listed(viewer, SUCCEEDED + first.links["last"]).links) == {"first", "previous"}
    assert ids(viewer, SUCCEEDED + middle.links["previous"]) == ids(viewer, SUCCEEDED + middle.links["first"])
    page = viewer.get(SUCCEEDED).content.decode()
    assert '<nav class="paginator pgqueue-pages" aria-label="Pages">' in page
    assert 'rel="next">Next</a>' in page
    SucceededJob.objects.filter(pk__gt=7).delete()
    assert listed(viewer, SUCCEEDED).links == {}


def test_filters_lead_to_a_first_page_and_search_keeps_them(viewer, many, short):
    page = viewer.get(f"{DEAD}?reason=lost&{urlencode({'before': 'last'})}").content.decode()
    assert '<input type="hidden" name="reason" value="lost">' in page
    assert 'name="before"' not in page
    assert 'href="?queue=q1&amp;reason=lost"' in page


def test_what_no_index_finds_is_looked_for_in_a_window(viewer, many, short):
    url = f"{SUCCEEDED}?q=shop.task_1"
    seen = []
    for first, last, rest in ((100, 61, True), (60, 21, True), (20, 1, False)):
        found = [job_id for page in walk(viewer, url, "next") for job_id in page]
        assert found == [number for number in range(first, last - 1, -1) if number % 3 == 1]
        cl = listed(viewer, url)
        assert cl.looked == (
            f"Searched the jobs {first} to {last}." if rest else f"Searched the jobs from {first} to the end."
        )
        assert bool(cl.further) is rest
        url = SUCCEEDED + cl.further
        seen += found
    assert len(seen) == 34


def test_window_of_dead_jobs_goes_back_in_time(viewer, many, short):
    cl = listed(viewer, f"{DEAD}?reason=killed&task=shop.task_1")
    assert (cl.looked, cl.result_count) == ("", 4), "one reads along the index of the task, which has only 34"
    cl = listed(viewer, f"{DEAD}?q=shop")
    assert cl.looked == "Searched the jobs Jan. 1, 2031, 01:00:00 to Jan. 1, 2031, 01:00:00."
    assert "Search older jobs" in viewer.get(f"{DEAD}?q=shop").content.decode()
    assert cl.result_count == 40


def test_window_that_has_nothing_says_so(viewer, many, short):
    SucceededJob.objects.filter(pk__gt=20).update(task="other")
    page = viewer.get(f"{SUCCEEDED}?q=shop").content.decode()
    for words in ("No matches here.", "Searched the jobs 100 to 61.", "Search older jobs"):
        assert words in page


def test_empty_lists_say_so(viewer):
    for url, rows in ((JOBS, "jobs"), (DEAD, "dead jobs"), (SUCCEEDED, "succeeded jobs")):
        assert f"There are no {rows}." in viewer.get(url).content.decode()
        assert f"No {rows} match." in viewer.get(f"{url}?q=shop").content.decode()


def test_window_of_ids_that_look_like_days_is_told_by_its_ids(viewer, short):
    now = dt.datetime.now(dt.UTC)
    Job.objects.bulk_create(Job(pk=20260101 + n, task="t", run_at=now, status="queued") for n in range(45))
    assert listed(viewer, f"{JOBS}?q=none").looked == "Searched the jobs 20,260,145 to 20,260,106."


def test_query_is_kept_in_links_to_pages(viewer, many, short):
    link = listed(viewer, f"{SUCCEEDED}?q=shop.task&queue=q1").links["next"]
    assert set(parse_qs(urlsplit(link).query)) == {"q", "queue", "after"}
