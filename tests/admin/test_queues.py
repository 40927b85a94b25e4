"""The list and the pages of queues: numbers, pauses, limits."""

import datetime as dt
import json
import re

import pytest
from django.contrib.admin.utils import quote
from django.test import Client
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.models import Queue, Stat
from django_pgqueue.queues import limit, pause, restore
from tests.support.admin_queues import ODD, QUEUES, change
from tests.support.staff import confirm, user_with
from tests.support.worker_rows import worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer() -> Client:
    return user_with("view_queue")


@pytest.fixture
def staff() -> Client:
    return user_with("view_queue", "pause_queue", "limit_queue")


def test_queue_that_no_worker_has_served_yet_has_its_page(staff):
    """Its row is made by the first worker that serves it; a pause or a limit makes it as well."""
    for name in ("new", ODD):
        app.noop.using(queue=name).enqueue()
    Queue.objects.create(name="served")
    page = staff.get(QUEUES).content.decode()
    assert "No worker has served these queues yet" in page
    for name in ("new", quote(ODD)):
        assert f'href="{QUEUES}{name.replace(" ", "%20")}/change/"' in page
    page = staff.get(f"{QUEUES}{quote(ODD)}/change/")
    assert page.status_code == 200
    assert not Queue.objects.filter(name=ODD).exists()
    change(staff, ODD, max_running="3", rate_limit="", rate_period_seconds="", rate_burst="")
    assert Queue.objects.get(name=ODD).max_running == 3
    confirm(staff, f"{QUEUES}pause/", "new", reason="", minutes="")
    assert Queue.objects.get(name="new").paused_at is not None
    assert "No worker has served" not in staff.get(QUEUES).content.decode()
    gone = staff.get(f"{QUEUES}gone/change/", follow=True)
    assert gone.redirect_chain


def test_pause_of_a_queue_that_no_worker_has_served_yet_names_it_and_leads_back_to_it(staff):
    app.noop.using(queue="new").enqueue()
    asked = staff.post(f"{QUEUES}pause/", {"ids": "new", "page": "1"})
    assert asked.context["rows"] == [("new", f"{QUEUES}new/change/")]
    assert asked.context["back"] == f"{QUEUES}new/change/"
    assert staff.post(f"{QUEUES}pause/", {"ids": "gone"}).context["rows"] == []


def test_queue_with_a_bound_says_how_many_jobs_may_wait(admin_client, settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "QUEUES": {"mail": {"max_backlog": 2000}}}
    app.noop.using(queue="mail").enqueue()
    Queue.objects.create(name="mail")
    for address in (QUEUES, f"{QUEUES}mail/change/", "/admin/pgqueue/overview/"):
        assert "1 / 2,000" in admin_client.get(address).content.decode()


def test_name_that_looks_quoted_is_that_of_the_queue(staff):
    for name in ("shard_23", "shard_5F"):
        app.noop.using(queue=name).enqueue()
        page = staff.get(f"{QUEUES}{quote(name)}/change/")
        assert page.status_code == 200
        assert page.context["original"].name == name


def test_list_shows_jobs_limits_and_who_has_paused_why(viewer, queues):
    app.noop.using(queue="mail").enqueue_many([()] * 3)
    limit("default", max_running=4, rate="60/m", burst=2)
    pause("mail", by="bob", reason="<b>provider</b> is down", resume_at=dt.timedelta(hours=1))
    page = viewer.get(QUEUES).content.decode()
    for words in (
        "4 at once; 60/m, burst 2",
        "paused",
        "by bob since",
        "&lt;b&gt;provider",
        "a, &quot;b&quot;/&lt;i&gt;",
    ):
        assert words in page
    assert '<div data-pgqueue-live="mail queued">3</div>' in page
    assert "<b>provider" not in page


def test_limits_of_the_code_are_told_from_those_set_by_hand_and_restored(staff, queues, settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "QUEUES": {"mail": {"max_running": 4, "rate": "60/m"}}}
    restore("mail")
    address = f"{QUEUES}mail/change/"
    page = staff.get(address).content.decode()
    assert "from the code" in page
    assert f"{QUEUES}restore/" not in page
    change(staff, "mail", max_running="9", rate_limit="60", rate_period_seconds="60.0", rate_burst="1")
    page = staff.get(address).content.decode()
    assert "by ann 3 since" in page
    assert "this wins over the code, which has: 4 at once; 60/m, burst 1" in page
    assert f"{QUEUES}restore/" in page
    assert "by ann 3 since" in staff.get(QUEUES).content.decode()
    confirm(staff, f"{QUEUES}restore/", "mail")
    row = Queue.objects.get(pk="mail")
    assert (row.max_running, row.limited_at) == (4, None)
    told = confirm(staff, f"{QUEUES}restore/", "mail", "default").content.decode()
    assert "as the code has them, or not in the code" in told


def test_save_without_a_change_leaves_the_limits_to_the_code(staff, settings):
    settings.PGQUEUE = {**settings.PGQUEUE, "QUEUES": {"mail": {"max_running": 4}}}
    restore("mail")
    given = {"rate_limit": "", "rate_period_seconds": "", "rate_burst": ""}
    change(staff, "mail", max_running="4", **given)
    assert Queue.objects.get(pk="mail").limited_at is None
    change(staff, "mail", max_running="5", **given)
    row = Queue.objects.get(pk="mail")
    assert (row.max_running, bool(row.limited_by)) == (5, True)


def test_list_shows_how_queues_get_on_and_where_their_jobs_are(queues, sql):
    worker(queues=["mail"])
    app.noop.using(queue="mail").enqueue_many([()] * 30)
    sql("UPDATE pgqueue_jobs SET run_at = now() - interval '10 min', enqueued_at = now() - interval '10 min'")
    minute = timezone.now().replace(second=0, microsecond=0) - dt.timedelta(minutes=2)
    buckets = {"wait_buckets": [0] * 15 + [15], "run_buckets": [15]}
    Stat.objects.create(minute=minute, queue="mail", task="t", succeeded=15, **buckets)
    staff = user_with("view_queue", "view_job", "view_deadjob", "view_worker")
    for page in (staff.get(QUEUES), staff.get(f"{QUEUES}mail/change/")):
        shown = dict(re.findall(r'<div data-pgqueue-live="mail (\w+)">(.*?)</div>', page.content.decode()))
        assert shown["queued"] == '<a href="/admin/pgqueue/job/?status=queued&amp;queue=mail">30</a>'
        assert [shown[name] for name in ("empty_in", "wait", "dead")] == ["10 min", "4 min 48 s", "0"]
        assert re.fullmatch(r"1\d min( \d+ s)?", shown["oldest"])  # it grows while the page is made
        assert re.sub("<.*?>", "", shown["workers"]) == "1"


def test_page_of_a_queue_has_charts_of_it_alone(viewer, queues):
    minute = timezone.now().replace(second=0, microsecond=0) - dt.timedelta(minutes=2)
    for name, number in (("mail", 7), ("default", 100)):
        Stat.objects.create(minute=minute, queue=name, task="t", succeeded=number)
    page = viewer.get(f"{QUEUES}mail/change/").content.decode()
    island = json.loads(re.search(r'<script id="hour-throughput" type="application/json">(.*?)</script>', page)[1])
    assert sum(island["lines"][0]["values"]) == 7


def test_pause_that_is_over_is_shown_as_none(viewer, queues):
    pause("mail", by="bob", resume_at=dt.timedelta(hours=1))
    Queue.objects.filter(pk="mail").update(resume_at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    assert "by bob" not in viewer.get(QUEUES).content.decode()


def test_user_who_may_only_look_changes_nothing(viewer, queues):
    assert 'name="max_running"' not in viewer.get(f"{QUEUES}mail/change/").content.decode()
    assert change(viewer, "mail", max_running="1").status_code == 403
    assert confirm(viewer, f"{QUEUES}pause/", "mail", reason="", minutes="").status_code == 403
    assert not Queue.objects.exclude(paused_at=None, max_running=None).exists()


def test_user_who_may_pause_queues_may_not_limit_them_and_the_other_way_round(queues):
    pauser, limiter = user_with("view_queue", "pause_queue"), user_with("view_queue", "limit_queue", name="bob")
    assert change(pauser, "mail", max_running="1").status_code == 403
    assert confirm(limiter, f"{QUEUES}pause/", "mail", reason="", minutes="").status_code == 403
    assert not Queue.objects.exclude(paused_at=None, max_running=None).exists()
    change(limiter, "mail", max_running="1")
    confirm(pauser, f"{QUEUES}pause/", "mail", reason="", minutes="")
    assert Queue.objects.get(pk="mail", max_running=1).paused_at is not None


def test_queues_are_neither_added_nor_removed_here(staff, queues):
    assert staff.get(f"{QUEUES}add/").status_code == 403
    assert staff.get(f"{QUEUES}mail/delete/").status_code == 403


def test_list_asks_as_often_whatever_there_is(staff, django_assert_max_num_queries):
    Queue.objects.bulk_create(Queue(name=f"q{number}") for number in range(60))
    with django_assert_max_num_queries(19):
        staff.get(QUEUES)


@pytest.mark.parametrize("name", ["never-heard-of", "a%00b"])
def test_queue_that_cannot_be_leads_away_as_one_that_is_unknown(viewer, name):
    answer = viewer.get(f"{QUEUES}{name}/change/")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")


def test_list_of_queues_is_not_asked_for_a_name_that_cannot_be(viewer):
    assert viewer.get(QUEUES, {"name": "a\0b"}).status_code == 400


def test_queue_that_may_be_paused_but_not_seen_is_neither_shown_nor_limited(db):
    Queue.objects.create(name="mail")
    client = user_with("pause_queue", "limit_queue")
    address = "/admin/pgqueue/queue/mail/change/"
    assert client.get(address).status_code == 403
    given = {"max_running": 1, "rate_limit": "", "rate_period_seconds": "", "rate_burst": ""}
    assert client.post(address, given).status_code == 403
    assert Queue.objects.get().max_running is None
