"""Lists of jobs cost as much in big tables as in small ones, and count up to a limit."""

import json
import re
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.admin import changelist, keyset
from django_pgqueue.insights.bounded import bounded
from django_pgqueue.models import DeadJob, Job
from tests.support.admin_jobs import DEAD, FINISHED, JOBS, dead, queued

pytestmark = pytest.mark.django_db


@pytest.fixture
def big(sql):
    """50,000 jobs and as many dead and finished ones, on a few queues and tasks."""
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
        "INSERT INTO pgqueue_finished_jobs (id, task, queue, finished_at, enqueued_at, run_at, first_started_at, "
        "started_at, worker_id, run_seconds, priority, attempts, lost, backend, args, kwargs, metadata, errors) "
        f"SELECT n, 'shop.task_' || n % 7, 'queue_' || n % 5, {now} + n % 3 * interval '1 day', {now}, {now}, {now}, "
        f"{now}, 1, 0.5, 0, 1, 0, '', '[]', '{{}}', '{{}}', '[]' FROM generate_series(1, 50000) AS n"
    )
    for table in ("pgqueue_jobs", "pgqueue_dead_jobs", "pgqueue_finished_jobs"):
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
    f"{JOBS}?status=waiting",
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
    FINISHED,
    f"{FINISHED}?before=last",
    f"{FINISHED}?queue=queue_1",
    f"{FINISHED}?q=25000",
    f"{FINISHED}?q=shop.task_3",
    f"{FINISHED}?q=arg:none",
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
        assert '"args"' not in query or "q=arg:" in url or "label" in url
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
    for url in (JOBS, DEAD, FINISHED):
        assert re.search(r"<span>10,000\+ (dead |finished )?jobs</span>", viewer.get(url).content.decode())
    assert "<span>50 jobs</span>" in viewer.get(f"{JOBS}?status=running").content.decode()


def select_all_is_not_offered_beyond_what_one_action_takes(staff: Client) -> None:
    assert "Select all 1" not in staff.get(JOBS).content.decode()
    job_id = dead()
    DeadJob.objects.exclude(pk=job_id).filter(pk__gt=150).delete()
    assert re.search(r"Select all 15\d dead jobs", staff.get(DEAD).content.decode())


@pytest.mark.parametrize("count", [changelist.CAP - 1, changelist.CAP, changelist.CAP + 1])
def test_cap_is_exact_at_its_edge(count):
    enqueue_many(app.noop, [()] * count)
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
    found = changelist.names("queued_queues")
    assert (found[0], len(found)) == ("q0001", 100)
