"""Pages of the lists of jobs by keys: each job once, forth and back, whatever comes in meanwhile."""

import json
from urllib.parse import urlsplit

import pytest
from django.utils.http import urlencode

from django_pgqueue.models import Job
from tests.support.admin_jobs import DEAD, JOBS, SUCCEEDED
from tests.support.job_lists import finish, ids, listed, walk

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "url",
    [
        *(f"{JOBS}?status={status}" for status in ("queued", "running")),
        f"{JOBS}?queue=q1",
        DEAD,
        f"{DEAD}?task=shop.task_1",
        f"{DEAD}?reason=lost",
        f"{DEAD}?q=shop.task_2",
        SUCCEEDED,
    ],
)
def test_pages_show_each_job_once_forth_and_back(viewer, many, short, url):
    pages_forth = walk(viewer, url, "next")
    everything = [job_id for page in pages_forth for job_id in page]
    assert len(everything) == len(set(everything)) == listed(viewer, url).result_count > 7
    assert [len(page) for page in pages_forth[:-1]] == [7] * (len(pages_forth) - 1)
    last = urlsplit(url).path + listed(viewer, url).links["last"]
    pages_back = walk(viewer, last, "previous")
    assert [job_id for page in reversed(pages_back) for job_id in page][-7:] == everything[-7:]
    whole = pages_back[-2::-1]
    assert [job_id for page in whole for job_id in page] == everything[-sum(map(len, whole)) :]
    assert pages_back[-1] == pages_forth[0], "the first page is whole"


def test_lists_are_in_the_order_of_their_indexes(viewer, many):
    def keys(url, *names):
        return [tuple(getattr(job, name) for name in names) for job in listed(viewer, url).result_list]

    queued = keys(f"{JOBS}?status=queued", "queue", "priority", "run_at", "id")
    assert queued == sorted(queued, key=lambda key: (key[0], -key[1], *key[2:]))
    waiting = keys(f"{JOBS}?status=limited", "concurrency_key", "priority", "run_at", "id")
    assert waiting == sorted(waiting, key=lambda key: (key[0], -key[1], *key[2:]))
    for url, *names in ((f"{JOBS}?status=scheduled", "run_at"), (f"{JOBS}?status=running", "worker_id")):
        assert keys(url, *names) == sorted(keys(url, *names))
    for url, *names in ((JOBS, "id"), (DEAD, "died_at", "id"), (SUCCEEDED, "id")):
        assert keys(url, *names) == sorted(keys(url, *names), reverse=True)


def test_running_jobs_keep_their_places_when_they_are_written_to(viewer, many, short):
    """As by their progress: each write gives the row another place in the table, which the index need not know."""
    running = Job.objects.filter(status="running")
    running.filter(pk__in=list(running.order_by("-pk").values_list("pk", flat=True)[::2])).update(progress={"done": 1})
    pages = walk(viewer, f"{JOBS}?status=running", "next")
    assert [one for page in pages for one in page] == list(
        running.order_by("worker_id", "pk").values_list("pk", flat=True)
    )


def test_jobs_that_come_in_do_not_shift_the_next_page(viewer, many, short):
    first = listed(viewer, SUCCEEDED)
    finish(1000)
    assert ids(viewer, SUCCEEDED + first.links["next"]) == list(range(93, 86, -1))


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "7",
        "[]",
        "[7]",
        '["7", "8"]',
        '["x"]',
        '["99999999999999999999"]',
        '["9223372036854775808"]',
        '["7\\u0000"]',
        '["1; DROP TABLE pgqueue_jobs"]',
        "[" * 5000,
        '{"id": "7"}',
        "nan",
    ],
)
@pytest.mark.parametrize("name", ["after", "before", "below"])
def test_address_that_says_no_page_shows_the_first_and_says_so(viewer, many, short, name, cursor):
    response = viewer.get(f"{SUCCEEDED}?{urlencode({name: cursor})}")
    assert [job.pk for job in response.context["cl"].result_list] == list(range(100, 93, -1))
    assert "The address does not say where that page begins." in response.content.decode()


@pytest.mark.parametrize(
    ("url", "cursor"),
    [
        (f"{JOBS}?status=queued", ["\ud800", "1", "2026-01-01T00:00Z", "1"]),
        (f"{JOBS}?status=scheduled", ["2031-01-01", "(0,1)"]),
        (f"{JOBS}?status=scheduled", ["2031-01-01T00:00Z", "(0,99999)"]),
        (f"{JOBS}?status=scheduled", ["2031-13-01T00:00Z", "(0,1)"]),
        (f"{JOBS}?status=queued", ["q\0", "0", "2031-01-01T00:00Z", "1"]),
        (f"{JOBS}?status=queued", ["q", "99999", "2031-01-01T00:00Z", "1"]),
        (f"{JOBS}?status=running", ["1"]),
        (DEAD, ["2031-01-01T00:00", "1"]),
    ],
)
def test_key_of_another_kind_is_told_from_one_of_this_list(viewer, many, url, cursor):
    joint = "&" if "?" in url else "?"
    response = viewer.get(f"{url}{joint}{urlencode({'after': json.dumps(cursor)})}")
    assert "The address does not say where that page begins." in response.content.decode()
