"""Links between the pages of the admin: each leads somewhere."""

import datetime as dt
import html
import re

import pytest
from django.utils import timezone

import tests.app.tasks as app
from django_pgqueue import enqueue_many
from django_pgqueue.jobs.actions import kill
from django_pgqueue.models import Queue, Stat
from tests.support.schedules import make
from tests.support.worker_rows import worker

pytestmark = pytest.mark.django_db


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
    page = admin_client.get("/admin/django_pgqueue/overview/").content.decode()
    assert page.count("/deadjob/causes/") == 2
    main = page[page.index('<div id="content-main">') :]
    addresses = sorted({html.unescape(address) for address in re.findall(r'href="(/[^"]*)"', main)})
    assert len(addresses) >= 8
    for address in addresses:
        assert admin_client.get(address).status_code == 200, address
