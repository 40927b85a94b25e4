"""The overview: its numbers, and that they cost the same whatever the backlog."""

import datetime as dt
import html
import json
import re

import pytest
from django.test import Client
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import enqueue_many, pause_queue
from django_pgqueue.db.queries import statement
from django_pgqueue.insights import overview
from django_pgqueue.insights.formatting import short
from django_pgqueue.insights.overview import BoundedCount
from django_pgqueue.jobs.actions import kill
from django_pgqueue.models import Queue, Stat
from tests.support.plans import explain, fill
from tests.support.schedules import make
from tests.support.staff import FINISHED, user_with
from tests.support.waiting import eventually
from tests.support.worker_rows import forget_counters, worker

pytestmark = pytest.mark.django_db

PAGE = "/admin/django_pgqueue/overview/"
BIG = {"pgqueue_jobs", "pgqueue_dead_jobs", "pgqueue_finished_jobs"}


@pytest.fixture
def viewer() -> Client:
    return user_with("view_overview")


def lines() -> dict[str, overview.QueueLine]:
    return {line.name: line for line in overview.lines("default")}


def test_each_status_of_each_queue_is_counted(sql):
    enqueue_many(app.noop, [()] * 3)
    enqueue_many(app.noop.using(queue="mail", run_at=dt.timedelta(hours=1)), [()] * 2)
    enqueue_many(app.noop.using(queue="mail", concurrency_key="k"), [()] * 4)
    kill([app.noop.using(queue="gone").enqueue().id], by="eve")
    sql("UPDATE pgqueue_jobs SET status = 'running', lease_token = 1 WHERE id = (SELECT min(id) FROM pgqueue_jobs)")
    Queue.objects.create(name="mail")
    found = lines()
    assert list(found) == ["default", "gone", "mail"]
    numbers = ("queued", "scheduled", "waiting", "running", "dead")
    shown = {name: [getattr(line, number).value for number in numbers] for name, line in found.items()}
    assert shown == {"default": [2, 0, 0, 1, 0], "gone": [0, 0, 0, 0, 1], "mail": [0, 2, 4, 0, 0]}


def test_numbers_beyond_the_cap_say_that_there_are_more(monkeypatch):
    monkeypatch.setattr(overview, "CAPS", (3,))
    monkeypatch.setattr(overview, "MOST_LOOKED_AT", 3)
    enqueue_many(app.noop, [()] * 3)
    enqueue_many(app.noop.using(run_at=dt.timedelta(hours=1)), [()] * 2)
    assert lines()["default"].queued == BoundedCount(3, is_short=False)
    assert str(lines()["default"].scheduled) == "2"
    enqueue_many(app.noop, [()])
    enqueue_many(app.noop.using(run_at=dt.timedelta(hours=1)), [()] * 2)
    assert lines()["default"].queued == BoundedCount(3, is_short=True)
    assert str(lines()["default"].scheduled) == "3+"


def test_number_that_was_not_counted_at_all_is_no_zero(viewer, monkeypatch):
    """Scheduled jobs are looked at in the order in which they are due, over all queues."""
    monkeypatch.setattr(overview, "MOST_LOOKED_AT", 3)
    enqueue_many(app.noop.using(queue="first", run_at=dt.timedelta(hours=1)), [()] * 4)
    enqueue_many(app.noop.using(queue="later", run_at=dt.timedelta(hours=2)), [()] * 4)
    Queue.objects.bulk_create(Queue(name=name) for name in ("first", "later"))
    assert {name: str(line.scheduled) for name, line in lines().items()} == {"first": "3+", "later": "?"}
    assert "0+" not in viewer.get(PAGE).content.decode()


@pytest.mark.parametrize(
    ("failed", "succeeded", "words"),
    [(100, 0, "100 % failed"), (1, 2, "33 % failed"), (1, 999, "0.1 % failed"), (1234, 1, "100 % failed")],
)
def test_share_of_failures_is_a_number_that_people_read(viewer, sql, failed, succeeded, words):
    minute = timezone.now() - dt.timedelta(minutes=2)
    Stat.objects.create(
        minute=minute.replace(second=0, microsecond=0), queue="q", task="t", failed=failed, succeeded=succeeded
    )
    assert words in viewer.get(PAGE).content.decode()


@pytest.mark.parametrize(
    ("number", "digits", "words"),
    [(100, 2, "100"), (99.96, 2, "100"), (1234.5, 3, "1230"), (0.000012, 3, "0.000012"), (1.25, 3, "1.25")],
)
def test_short_numbers_have_no_exponent(number, digits, words):
    assert short(number, digits) == words


def test_chart_without_anything_to_draw_says_so(viewer):
    page = viewer.get(PAGE).content.decode()
    assert page.count("Nothing ran in this time, up to the last full minute.") == 2
    assert page.count("Nothing ran in this time, up to the last full 15 minutes.") == 2
    assert "pgqueue-plot" not in page


def test_finding_says_what_its_link_shows(viewer):
    staff = user_with("view_overview", "view_worker", "view_queue")
    assert '<a href="/admin/django_pgqueue/worker/">Show workers<span' in staff.get(PAGE).content.decode()
    app.noop.enqueue()
    assert '<a href="/admin/django_pgqueue/queue/default/change/">Show queue<span' in staff.get(PAGE).content.decode()
    assert "Show workers" not in viewer.get(PAGE).content.decode()


def test_counting_stops_earlier_where_there_are_many_queues():
    enqueue_many(app.noop, [()] * 101)
    few, many = ["default"], ["default", *(f"q{number}" for number in range(500))]
    assert overview.numbers_of(few, "default")["default"]["queued"] == BoundedCount(101)
    assert overview.numbers_of(many, "default")["default"]["queued"] == BoundedCount(100, is_short=True)


def test_oldest_job_that_could_run_is_found_at_any_priority(sql):
    for priority, minutes in ((5, 1), (0, 90), (-5, 3)):
        job = app.noop.using(priority=priority).enqueue()
        sql("UPDATE pgqueue_jobs SET run_at = now() - make_interval(mins => %s) WHERE id = %s", minutes, job.id)
    assert 90 * 60 <= lines()["default"].oldest_seconds < 91 * 60 + 120


def test_workers_serve_what_their_patterns_match():
    worker(queues=["m*", "-music"])
    worker(queues=[])
    worker(queues=["music"], lease_until=timezone.now() - dt.timedelta(seconds=1))
    for name in ("mail", "music"):
        Queue.objects.create(name=name)
    assert {name: line.workers for name, line in lines().items()} == {"mail": 2, "music": 1}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["queue_overview", "oldest_of_queues", "all_queues", "next_tasks"])
def test_counting_reads_indexes_up_to_its_limit(queue, name):
    fill(queue, 3000, "queued", "running", "scheduled")
    queue.autocommit().execute("ANALYZE pgqueue_jobs")
    parameters = {"names": ["default"], "limit": 100, "most": 100}
    nodes = explain(queue, statement(name), parameters)
    assert not [node for node in nodes if node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG]
    read = sum(node["Actual Rows"] for node in nodes if "Index Name" in node)
    assert read <= 10 * 100 + 400


def says(viewer, sql, words: str) -> bool:
    """Whether the page says so, once the last session of an earlier test has told what it did."""
    forget_counters(sql)
    return words in viewer.get(PAGE).content.decode()


def test_page_tells_the_verdict_numbers_and_links(viewer, sql):
    worker()
    enqueue_many(app.noop.using(queue="<b>mail"), [()] * 2)
    pause_queue("<b>mail", by="eve", reason="<i>moved")
    viewer_of_jobs = user_with("view_overview", "view_job", "view_queue")
    eventually(lambda: says(viewer, sql, "All is well."))
    text = viewer_of_jobs.get(PAGE).content.decode()
    assert "&lt;b&gt;mail" in text
    assert "&lt;i&gt;moved" in text
    assert "<b>mail" not in text
    assert "?status=queued&amp;queue=%3Cb%3Email" in text
    assert "?status=queued" not in viewer.get(PAGE).content.decode()


def test_every_link_leads_somewhere(admin_client, sql):
    worker(queues=["other"])
    make("hourly", last_error="refused")
    enqueue_many(app.noop.using(queue="m&il"), [()] * 2)
    enqueue_many(app.noop.using(queue="m&il", run_at=dt.timedelta(hours=1)), [()] * 2)
    enqueue_many(app.noop.using(queue="m&il", concurrency_key="k"), [()] * 2)
    kill([app.noop.using(queue="m&il").enqueue().id], by="eve")
    sql("UPDATE pgqueue_jobs SET status = 'running', lease_token = 1 WHERE id = (SELECT min(id) FROM pgqueue_jobs)")
    Queue.objects.create(name="m&il")
    minute = timezone.now().replace(second=0, microsecond=0) - dt.timedelta(minutes=2)
    Stat.objects.create(minute=minute, queue="m&il", task="t", failed=20)
    page = admin_client.get(PAGE).content.decode()
    assert page.count("/deadjob/causes/") == 2
    main = page[page.index('<div id="content-main">') :]
    addresses = sorted({html.unescape(address) for address in re.findall(r'href="(/[^"]*)"', main)})
    assert len(addresses) >= 8
    for address in addresses:
        assert admin_client.get(address).status_code == 200, address


def test_page_counts_its_findings(viewer, sql):
    enqueue_many(app.noop, [()])
    eventually(lambda: says(viewer, sql, "1 finding"))
    text = viewer.get(PAGE).content.decode()
    assert "No worker is alive, and jobs wait in: default." in text


def test_charts_tell_what_was_done_as_json_and_as_a_table(viewer, settings):
    minute = timezone.now().replace(second=0, microsecond=0) - dt.timedelta(minutes=2)
    Stat.objects.create(minute=minute, queue="mail", task="t", succeeded=6, failed=2, wait_seconds=4.0)
    text = viewer.get(PAGE).content.decode()
    island = json.loads(re.search(r'<script id="hour-throughput" type="application/json">(.*?)</script>', text)[1])
    at = island["times"].index(int(minute.timestamp()))
    assert [line["values"][at] for line in island["lines"]] == [6, 2]
    assert island["zone"] == settings.TIME_ZONE
    assert "<td>6</td><td>2</td>" in text
    assert "<td>0.5</td>" in text


def test_pages_are_shown_where_time_zones_are_off(admin_client, settings, sql):
    settings.USE_TZ = False
    enqueue_many(app.noop.using(queue="mail"), [()] * 3)
    Queue.objects.create(name="mail")
    pause_queue("mail", by="eve", resume_at=dt.timedelta(hours=1))
    schedule = make("nightly", cron="30 2 * * *", next_at=dt.datetime(2020, 1, 1))
    sql(FINISHED, schedule.pk, 1, 3)
    sql(
        "INSERT INTO pgqueue_stats (minute, queue, task, succeeded) "
        "VALUES (date_trunc('minute', now()) - interval '2 min', 'mail', 't', 5)"
    )
    overview = admin_client.get(PAGE)
    assert "schedules-late" in [finding.name for finding, _page in overview.context["findings"]]
    assert [values for _time, values in overview.context["charts"][0].rows()] == [["5", "0"]]
    for path in ("queue/", "queue/mail/change/", "schedule/", f"schedule/{schedule.pk}/change/"):
        assert admin_client.get(f"/admin/django_pgqueue/{path}").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_page_tells_what_it_can_while_counting_fails(viewer, settings, queue):
    settings.PGQUEUE = {**settings.PGQUEUE, "ADMIN_TIMEOUT_SECONDS": 0.5}
    make("hourly", next_at=timezone.now() - dt.timedelta(hours=1))

    def page_that_tells_more():  # a machine that stands still for half a second keeps it from reading that too
        response = viewer.get(PAGE)
        found = {finding.name for finding, _page in response.context["findings"]}
        return response if {"schedules-late", "not-looked-at"} <= found else None

    with queue.autocommit().transaction():
        queue.autocommit().execute("LOCK TABLE pgqueue_jobs IN ACCESS EXCLUSIVE MODE")
        response = eventually(page_that_tells_more)
    assert response.status_code == 200
    text = response.content.decode()
    assert "Counting the jobs took longer than 0.5 s and was stopped." in text
    assert "pgqueue-tiles" in text


def test_page_needs_its_permission_and_nothing_else():
    user = user_with("view_job", "view_queue")
    assert user.get(PAGE).status_code == 403
    assert PAGE not in user.get("/admin/").content.decode()
    assert Client().get(PAGE).status_code == 302


def test_page_costs_the_same_whatever_is_queued(viewer, django_assert_max_num_queries):
    worker()
    enqueue_many(app.noop, [()] * 50)
    with django_assert_max_num_queries(90):
        viewer.get(PAGE)
