"""The page of the overview: verdict, numbers, findings, links, and what it tells while counting fails."""

import datetime as dt
import threading

import pytest
from django.test import Client
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import queues
from django_pgqueue.admin import overview
from django_pgqueue.models import Queue, Stat
from tests.support.schedules import make
from tests.support.staff import SUCCEEDED, user_with
from tests.support.waiting import PATIENCE_SECONDS, eventually
from tests.support.worker_rows import forget_counters, worker
from tests.support.workflows import stuck

pytestmark = pytest.mark.django_db

PAGE = "/admin/pgqueue/overview/"


@pytest.fixture
def viewer() -> Client:
    return user_with("view_overview")


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


def test_finding_says_what_its_link_shows(viewer):
    staff = user_with("view_overview", "view_worker", "view_queue")
    assert '<a href="/admin/pgqueue/worker/">Show workers<span' in staff.get(PAGE).content.decode()
    app.noop.enqueue()
    assert '<a href="/admin/pgqueue/queue/default/change/">Show queue<span' in staff.get(PAGE).content.decode()
    assert "Show workers" not in viewer.get(PAGE).content.decode()


def says(viewer, sql, words: str) -> bool:
    """Whether the page says so, once the last session of an earlier test has told what it did."""
    forget_counters(sql)
    return words in viewer.get(PAGE).content.decode()


def test_finding_about_workflows_leads_to_them():
    staff = user_with("view_overview", "view_workflow")
    first = stuck()
    assert (
        f'<a href="/admin/pgqueue/workflow/{first.id}/change/">Show workflow<span' in staff.get(PAGE).content.decode()
    )
    stuck()
    assert '<a href="/admin/pgqueue/workflow/?status=stuck">Show workflows<span' in staff.get(PAGE).content.decode()


def test_page_tells_the_verdict_numbers_and_links(viewer, sql):
    worker()
    app.noop.using(queue="<b>mail").enqueue_many([()] * 2)
    queues.pause("<b>mail", by="eve", reason="<i>moved")
    viewer_of_jobs = user_with("view_overview", "view_job", "view_queue")
    eventually(lambda: says(viewer, sql, "All is well."))
    text = viewer_of_jobs.get(PAGE).content.decode()
    assert "&lt;b&gt;mail" in text
    assert "&lt;i&gt;moved" in text
    assert "<b>mail" not in text
    assert "?status=queued&amp;queue=%3Cb%3Email" in text
    assert "?status=queued" not in viewer.get(PAGE).content.decode()


def test_page_counts_its_findings(viewer, sql):
    app.noop.enqueue_many([()])
    eventually(lambda: says(viewer, sql, "1 finding"))
    text = viewer.get(PAGE).content.decode()
    assert "No worker is alive, and jobs wait in: default." in text


def test_pages_are_shown_where_time_zones_are_off(admin_client, settings, sql):
    settings.USE_TZ = False
    app.noop.using(queue="mail").enqueue_many([()] * 3)
    Queue.objects.create(name="mail")
    queues.pause("mail", by="eve", resume_at=dt.timedelta(hours=1))
    schedule = make("nightly", cron="30 2 * * *", next_at=dt.datetime(2020, 1, 1))
    sql(SUCCEEDED, schedule.pk, 1, 3)
    sql(
        "INSERT INTO pgqueue_stats (minute, queue, task, succeeded) "
        "VALUES (date_trunc('minute', now()) - interval '2 min', 'mail', 't', 5)"
    )
    overview = admin_client.get(PAGE)
    assert "schedules-late" in [row["finding"].name for row in overview.context["findings"]]
    assert [values for _time, values in overview.context["charts"][0].rows()] == [["5", "0"]]
    for path in ("queue/", "queue/mail/change/", "schedule/", f"schedule/{schedule.pk}/change/"):
        assert admin_client.get(f"/admin/pgqueue/{path}").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_page_tells_what_it_can_while_counting_fails(viewer, settings, queue):
    settings.PGQUEUE = {**settings.PGQUEUE, "READ_TIMEOUT_SECONDS": 0.5}
    make("hourly", next_at=timezone.now() - dt.timedelta(hours=1))

    def page_that_tells_more():  # a machine that stands still for half a second keeps it from reading that too
        response = viewer.get(PAGE)
        found = {row["finding"].name for row in response.context["findings"]}
        return response if {"schedules-late", "not-looked-at"} <= found else None

    with queue.autocommit().transaction():
        queue.autocommit().execute("LOCK TABLE pgqueue_jobs IN ACCESS EXCLUSIVE MODE")
        response = eventually(page_that_tells_more)
    assert response.status_code == 200
    text = response.content.decode()
    assert "Counting the jobs took longer than 0.5 s and was stopped." in text
    assert "pgqueue-tiles" in text


def test_one_database_is_told_of_no_others(viewer):
    assert "Other databases" not in viewer.get(PAGE).content.decode()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_other_databases_are_told_with_their_numbers_and_findings(viewer, shard, sql):
    worker()
    app.noop.using(database=shard).enqueue_many([()] * 3)
    eventually(lambda: says(viewer, sql, "1 finding"))
    response = viewer.get(PAGE)
    [row] = response.context["shards"]
    assert row.name == shard
    assert [cell.text for cell in row.cells[:5]] == ["3", "0", "0", "0", "0"]
    assert row.cells[-1].text == "0"
    [found] = response.context["findings"]
    assert found["finding"].what.startswith("On the database other: No worker is alive")
    assert "Other databases" in response.content.decode()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_other_databases_are_looked_at_at_the_same_time(viewer, shard, monkeypatch):
    both, living = threading.Barrier(2), overview.living_workers

    def together(alias):
        both.wait(PATIENCE_SECONDS)
        return living(alias)

    monkeypatch.setattr(overview, "living_workers", together)
    assert viewer.get(PAGE).context["shards"][0].cells


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_other_database_that_is_away_says_why_and_the_page_is_shown(viewer, far, other_server):
    assert viewer.get(PAGE).context["shards"][0].cells
    other_server.stop()
    for _ in range(2):  # with a connection that was cut off, and without one
        response = viewer.get(PAGE)
        assert response.status_code == 200
        text = response.content.decode()
        assert "does not answer" in text
        assert "On the database other: " in text
        assert "pgqueue-tiles" in text
        assert "All is well." not in text
    other_server.restart("fast")
    assert viewer.get(PAGE).context["shards"][0].cells


def test_page_needs_its_permission_and_nothing_else():
    user = user_with("view_job", "view_queue")
    assert user.get(PAGE).status_code == 403
    assert PAGE not in user.get("/admin/").content.decode()
    assert Client().get(PAGE).status_code == 302


def test_page_costs_the_same_whatever_is_queued(viewer, django_assert_max_num_queries):
    worker()
    app.noop.enqueue_many([()] * 50)
    with django_assert_max_num_queries(92):
        viewer.get(PAGE)
