"""Lists of jobs in the admin: what is on a page, page after page, and jobs for them."""

import datetime as dt
from urllib.parse import urlsplit

from django.test import Client
from django.utils.http import urlencode

from django_pgqueue.models import SucceededJob


def listed(client: Client, url: str):
    response = client.get(url)
    assert response.status_code == 200, url
    return response.context["cl"]


def ids(client: Client, url: str, **query) -> list[int]:
    return [job.pk for job in listed(client, f"{url}?{urlencode(query)}" if query else url).result_list]


def walk(client: Client, url: str, link: str) -> list[list[int]]:
    """Follow a link from page to page; return the ids on each."""
    seen = []
    while url:
        cl = listed(client, url)
        seen.append([job.pk for job in cl.result_list])
        step = cl.links.get(link)
        url = urlsplit(url).path + step if step else ""
        assert len(seen) < 100, "it goes round in circles"
    return seen


def finish(number: int, **columns) -> int:
    """Make a succeeded job."""
    SucceededJob.objects.bulk_create([succeeded(number, **columns)])
    return number


def succeeded(number: int, **columns) -> SucceededJob:
    now = dt.datetime.now(dt.UTC)
    values = {
        **dict.fromkeys(("succeeded_at", "enqueued_at", "run_at", "first_started_at", "started_at"), now),
        **dict.fromkeys(("worker_id", "priority", "attempts", "lost"), 0),
        "run_seconds": 0.0125,
        "queue": "default",
        "task": "tests.app.tasks.record",
        "backend": "",
        "args": [],
        "kwargs": {},
        "metadata": {},
        "errors": [],
    }
    return SucceededJob(pk=number, **values | columns)
