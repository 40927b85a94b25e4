"""Links between the pages of the admin: each leads somewhere."""

import datetime as dt
import html
import re

import pytest
from django.contrib import admin
from django.contrib.admin import AdminSite
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from django.urls import path
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue.admin.links import Links
from django_pgqueue.jobs import kill
from django_pgqueue.models import Queue, Stat
from tests.support.admin_queues import ODD
from tests.support.schedules import make
from tests.support.staff import user_with
from tests.support.worker_rows import worker

pytestmark = pytest.mark.django_db


def test_every_link_leads_somewhere(admin_client, sql):
    worker(queues=["other"])
    make("hourly", last_error="refused")
    app.noop.using(queue="m&il").enqueue_many([()] * 2)
    app.noop.using(queue="m&il", delay=dt.timedelta(hours=1)).enqueue_many([()] * 2)
    app.noop.using(queue="m&il", limit_key="k").enqueue_many([()] * 2)
    kill([app.noop.using(queue="m&il").enqueue().id], by="eve")
    sql("UPDATE pgqueue_jobs SET status = 'running', lease_token = 1 WHERE id = (SELECT min(id) FROM pgqueue_jobs)")
    Queue.objects.create(name="m&il")
    minute = timezone.now().replace(second=0, microsecond=0) - dt.timedelta(minutes=2)
    Stat.objects.create(minute=minute, queue="m&il", task="t", failed=20)
    page = admin_client.get("/admin/pgqueue/overview/").content.decode()
    assert page.count("/deadjob/causes/") == 2
    main = page[page.index('<div id="content-main">') :]
    addresses = sorted({html.unescape(address) for address in re.findall(r'href="(/[^"]*)"', main)})
    assert len(addresses) >= 8
    for address in addresses:
        assert admin_client.get(address).status_code == 200, address


def links_of(*codenames: str) -> Links:
    request = RequestFactory().get("/")
    user_with(*codenames)
    request.user = User.objects.get()
    return Links(request, admin.site)


def test_link_to_what_the_user_may_not_see_is_none():
    links = links_of("view_job", "change_schedule")
    assert links.to_list("job") == "/admin/pgqueue/job/"
    assert links.to_row("job", 17) == "/admin/pgqueue/job/17/change/"
    assert links.to_row("schedule", 3) == "/admin/pgqueue/schedule/3/change/"
    assert links.to_list("deadjob") == links.to_row("deadjob", 17) == links.to_causes() == links.to_list("queue") == ""


def test_link_to_a_list_has_the_filters_that_say_something():
    links = links_of("view_job", "view_deadjob")
    assert links.to_list("job", status="queued", queue="m&il") == "/admin/pgqueue/job/?status=queued&queue=m%26il"
    assert links.to_list("job", status="queued", queue="") == "/admin/pgqueue/job/?status=queued"
    assert links.to_list("deadjob", queue="", cause=None) == "/admin/pgqueue/deadjob/"
    assert links.to_list("deadjob", cause=0) == "/admin/pgqueue/deadjob/?cause=0"


@pytest.mark.parametrize("name", [ODD, "shard_5F"])
def test_link_to_a_row_leads_to_it_whatever_its_name_is(name):
    Queue.objects.create(name=name)
    address = links_of("view_queue").to_row("queue", name)
    client = Client()
    client.force_login(User.objects.get())
    page = client.get(address)
    assert page.status_code == 200
    assert page.context["original"].name == name


def test_site_that_has_registered_less_has_no_links_to_the_rest(settings):
    links = links_of("view_job")
    assert links.to_row("job", 17)
    settings.ROOT_URLCONF = (path("admin/", AdminSite().urls),)
    assert links.to_list("job") == links.to_row("job", 17) == ""
