"""Dead jobs are counted by cause, by the hour of the last day, and up to a limit."""

import datetime as dt
import json
import re

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from django_pgqueue.db.queries import bounded, statement
from django_pgqueue.insights import dead_groups
from tests.support.dead_groups import DEAD, PAGE, dead
from tests.support.staff import user_with

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer() -> Client:
    return user_with("view_deadjob")


def found(**options) -> dead_groups.DeadGroupPage:
    return dead_groups.dead_groups("default", now=timezone.now(), **options)


def test_jobs_that_died_of_the_same_are_one_cause(viewer):
    now = timezone.now()
    for number in range(3):
        latest = dead("shop.Refused", f"card 0x{number:08x} of order {number} is 'bad {number}'", at=now)
    dead("shop.Refused", "the till is shut", at=now - dt.timedelta(days=2))
    dead("shop.Refused", "the till is shut", at=now - dt.timedelta(days=3), reason="lost")
    first, second, third = found().causes
    assert (first.task, first.reason, first.error) == ("tests.app.tasks.record", "exhausted", "shop.Refused")
    assert (first.jobs, first.job_id, first.first_at) == (3, latest, first.last_at)
    assert first.message == "card 0x00000002 of order 2 is 'bad 2'"
    assert (second.message, second.reason, third.reason) == ("the till is shut", "exhausted", "lost")
    page = viewer.get(PAGE).content.decode()
    assert page.count('class="pgqueue-cause-what"') == 3
    assert f'href="{DEAD}?cause={first.number}"' in page
    assert viewer.get(f"{DEAD}?cause={first.number}").context["cl"].result_list[0].pk == latest
    assert f'<a href="{PAGE}">By cause</a>' in viewer.get(DEAD).content.decode()


def test_hours_are_those_of_the_clock(viewer, monkeypatch):
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)  # whichever hour begins meanwhile
    hour = now.replace(minute=0, second=0, microsecond=0)
    for at in (hour, hour - dt.timedelta(seconds=1), hour - dt.timedelta(hours=1), hour - dt.timedelta(hours=23)):
        dead(at=at)
    dead(at=hour - dt.timedelta(hours=23, seconds=1))
    [cause] = dead_groups.dead_groups("default", now=now).causes
    assert [one.number for one in cause.hours] == [1, *[0] * 21, 2, 1]
    assert (cause.jobs, sum(hour.number for hour in cause.hours), cause.most) == (5, 4, 2)
    assert cause.hours[-1].begins_at == hour
    page = viewer.get(PAGE).content.decode()
    assert re.search(r'role="img" aria-label="In the last 24 hours, by the hour: \d\d:00: 1, \d\d:00: 2, ', page)
    assert page.count("pgqueue-bar-8") == 1
    assert page.count("pgqueue-bar-4") == 2


@pytest.mark.parametrize("number", [dead_groups.CAP, dead_groups.CAP + 1])
def test_counting_stops(viewer, sql, number):
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, task, queue, reason, died_at, run_at, enqueued_at) SELECT n, 'x', "
        "'default', 'lost', now(), now(), now() FROM generate_series(1, %s) AS n",
        number,
    )
    [cause] = found().causes
    assert cause.jobs == number
    assert f"<dd>10,000{'+' if number > dead_groups.CAP else ''}</dd>" in viewer.get(PAGE).content.decode()


def test_pages_show_each_cause_once():
    now = timezone.now()
    ids = [dead(f"Error{chr(65 + number)}", at=now - number // 2 * dt.timedelta(minutes=1)) for number in range(10)]
    seen, behind = [], None
    while True:
        page = found(limit=4, behind=behind)
        seen += [cause.job_id for cause in page.causes]
        if not page.is_more:
            break
        behind = page.causes[-1].last_at.isoformat(), str(page.causes[-1].number)
    assert sorted(seen) == ids
    assert seen == sorted(seen, key=lambda job_id: ids.index(job_id) // 2)


def test_many_causes_are_told_from_all_of_them(viewer, sql):
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, task, queue, reason, died_at, run_at, enqueued_at) SELECT n, 'x' || n, "
        "'default', 'lost', now() - n * interval '1 s', now(), now() FROM generate_series(1, 2500) AS n"
    )
    page = found()
    assert [cause.job_id for cause in page.causes] == list(range(1, 51))
    assert page.is_partial
    assert "There are more than 1,000 causes." in viewer.get(PAGE).content.decode()


def test_it_reads_some_entries_of_each_cause_and_no_table(sql):
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, task, queue, reason, died_at, run_at, enqueued_at) SELECT n, 'x' || n % 3, "
        "'default', 'lost', now() - n * interval '1 s', now(), now() FROM generate_series(1, 60000) AS n"
    )
    sql("ANALYZE pgqueue_dead_jobs")
    parameters = {"died_at": None, "cause": None, "limit": 51}
    with bounded(), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement('dead_groups')}", parameters)
        [(plan,)] = cursor.fetchall()
    scans = [node for node in nodes_of(plan[0]["Plan"]) if node.get("Relation Name") == "pgqueue_dead_jobs"]
    assert {scan["Node Type"] for scan in scans} <= {"Index Scan", "Index Only Scan"}, json.dumps(plan, indent=1)
    read = sum((scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"] for scan in scans)
    assert read < 3 * 10_001 + 1_000 + 100, json.dumps(scans, indent=1)


def nodes_of(node):
    return [node] + [below for child in node.get("Plans", ()) for below in nodes_of(child)]
