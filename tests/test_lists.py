"""Lists of jobs in the admin: pages by keys, windows, and what is searched for."""

import datetime as dt
import json
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client, RequestFactory
from django.utils.http import urlencode

import tests.app.tasks as app
from django_pgqueue.admin import keyset
from django_pgqueue.admin.base import JobsAdmin
from django_pgqueue.jobs.actions import kill
from django_pgqueue.jobs.search import Filter, Source, pages
from django_pgqueue.models import DeadJob, FinishedJob, Job

pytestmark = pytest.mark.django_db

APP = "/admin/django_pgqueue/"
JOBS, DEAD, FINISHED = f"{APP}job/", f"{APP}deadjob/", f"{APP}finishedjob/"
SOURCES = {JOBS: Source.LIVE, DEAD: Source.DEAD, FINISHED: Source.FINISHED}


@pytest.fixture
def viewer() -> Client:
    user = User.objects.create_user("ann", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_job", "view_deadjob", "view_finishedjob"]))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def short(monkeypatch) -> None:
    """Have pages of 7 jobs and windows of 40."""
    monkeypatch.setattr(JobsAdmin, "list_per_page", 7)
    monkeypatch.setattr(keyset, "WINDOW", 40)


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
    """Make a finished job."""
    FinishedJob.objects.bulk_create([finished(number, **columns)])
    return number


def finished(number: int, **columns) -> FinishedJob:
    now = dt.datetime.now(dt.UTC)
    values = {
        **dict.fromkeys(("finished_at", "enqueued_at", "run_at", "first_started_at", "started_at"), now),
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
    return FinishedJob(pk=number, **values | columns)


def dead(*args, **values) -> int:
    job_id = app.record.enqueue(*args).id
    kill([job_id], by="ann")
    DeadJob.objects.filter(pk=job_id).update(**values)
    return job_id


@pytest.fixture
def many(sql) -> None:
    """Make 30 jobs of each status, as many dead and finished ones, with ties in each order."""
    sql(
        "INSERT INTO pgqueue_jobs (task, queue, status, run_at, priority, lease_token, worker_id, concurrency_key, "
        "concurrency_limit, concurrency_slot) SELECT 'shop.task_' || n % 3, 'q' || n % 2, kind, "
        "'2031-01-01T00:00Z'::timestamptz + n % 4 * interval '1 ms', n % 3, CASE kind WHEN 'running' THEN 1 ELSE 0 "
        "END, n % 5, CASE kind WHEN 'waiting' THEN 'key ' || n % 4 END, CASE kind WHEN 'waiting' THEN 1 END, NULL "
        "FROM generate_series(1, 30) AS n, "
        "unnest(ARRAY['scheduled', 'queued', 'waiting', 'running', 'reserved']) AS kind"
    )
    sql(
        "INSERT INTO pgqueue_dead_jobs (id, task, queue, reason, died_at, run_at, enqueued_at) SELECT n, "
        "'shop.task_' || n % 3, 'q' || n % 2, CASE WHEN n % 10 = 0 THEN 'killed' ELSE 'lost' END, "
        "'2031-01-01T00:00Z'::timestamptz + n % 4 * interval '1 ms', now(), now() FROM generate_series(1, 100) AS n"
    )
    FinishedJob.objects.bulk_create(
        [finished(number, task=f"shop.task_{number % 3}", queue=f"q{number % 2}") for number in range(1, 101)]
    )


# Pages


@pytest.mark.parametrize(
    "url",
    [
        *(f"{JOBS}?status={status}" for status in ("queued", "running")),
        f"{JOBS}?queue=q1",
        DEAD,
        f"{DEAD}?task=shop.task_1",
        f"{DEAD}?reason=lost",
        f"{DEAD}?q=shop.task_2",
        FINISHED,
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
    waiting = keys(f"{JOBS}?status=waiting", "concurrency_key", "priority", "run_at", "id")
    assert waiting == sorted(waiting, key=lambda key: (key[0], -key[1], *key[2:]))
    for url, *names in ((f"{JOBS}?status=scheduled", "run_at"), (f"{JOBS}?status=running", "worker_id")):
        assert keys(url, *names) == sorted(keys(url, *names))
    for url, *names in ((JOBS, "id"), (DEAD, "died_at", "id"), (FINISHED, "id")):
        assert keys(url, *names) == sorted(keys(url, *names), reverse=True)


def test_running_jobs_keep_their_places_when_they_are_written_to(viewer, many, short):
    """As by their progress: each write gives the row another place in the table, which the index need not know."""
    running = Job.objects.filter(status="running")
    running.filter(pk__in=list(running.order_by("-pk").values_list("pk", flat=True)[::2])).update(progress={"done": 1})
    pages = walk(viewer, f"{JOBS}?status=running", "next")
    assert [one for page in pages for one in page] == list(
        running.order_by("worker_id", "pk").values_list("pk", flat=True)
    )


def test_links_are_there_where_there_are_pages(viewer, many, short):
    first = listed(viewer, FINISHED)
    assert set(first.links) == {"next", "last"}
    middle = listed(viewer, FINISHED + first.links["next"])
    assert set(middle.links) == {"first", "previous", "next", "last"}
    assert set(listed(viewer, FINISHED + first.links["last"]).links) == {"first", "previous"}
    assert ids(viewer, FINISHED + middle.links["previous"]) == ids(viewer, FINISHED + middle.links["first"])
    page = viewer.get(FINISHED).content.decode()
    assert '<nav class="paginator pgqueue-pages" aria-label="Pages">' in page
    assert 'rel="next">Next</a>' in page
    FinishedJob.objects.filter(pk__gt=7).delete()
    assert listed(viewer, FINISHED).links == {}


def test_jobs_that_come_in_do_not_shift_the_next_page(viewer, many, short):
    first = listed(viewer, FINISHED)
    finish(1000)
    assert ids(viewer, FINISHED + first.links["next"]) == list(range(93, 86, -1))


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
    response = viewer.get(f"{FINISHED}?{urlencode({name: cursor})}")
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


def test_filters_lead_to_a_first_page_and_search_keeps_them(viewer, many, short):
    page = viewer.get(f"{DEAD}?reason=lost&{urlencode({'before': 'last'})}").content.decode()
    assert '<input type="hidden" name="reason" value="lost">' in page
    assert 'name="before"' not in page
    assert 'href="?queue=q1&amp;reason=lost"' in page


# Windows


def test_what_no_index_finds_is_looked_for_in_a_window(viewer, many, short):
    url = f"{FINISHED}?q=shop.task_1"
    seen = []
    for first, last, rest in ((100, 61, True), (60, 21, True), (20, 1, False)):
        found = [job_id for page in walk(viewer, url, "next") for job_id in page]
        assert found == [number for number in range(first, last - 1, -1) if number % 3 == 1]
        cl = listed(viewer, url)
        assert cl.looked == (
            f"Searched the jobs {first} to {last}." if rest else f"Searched the jobs from {first} to the end."
        )
        assert bool(cl.further) is rest
        url = FINISHED + cl.further
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
    FinishedJob.objects.filter(pk__gt=20).update(task="other")
    page = viewer.get(f"{FINISHED}?q=shop").content.decode()
    for words in ("No matches here.", "Searched the jobs 100 to 61.", "Search older jobs"):
        assert words in page


def test_empty_lists_say_so(viewer):
    for url, rows in ((JOBS, "jobs"), (DEAD, "dead jobs"), (FINISHED, "finished jobs")):
        assert f"There are no {rows}." in viewer.get(url).content.decode()
        assert f"No {rows} match." in viewer.get(f"{url}?q=shop").content.decode()


def test_job_that_is_not_here_is_looked_for_elsewhere(viewer):
    job_id = dead()
    page = viewer.get(f"{JOBS}?q={job_id}").content.decode()
    assert f'<a href="{DEAD}?q={job_id}">Search dead jobs</a>' in page
    assert ids(viewer, DEAD, q=job_id) == [job_id]


def test_reserved_of_unique_keys_are_shown_only_where_asked_for(viewer, many):
    assert {job.status for job in listed(viewer, JOBS).result_list} == {"scheduled", "queued", "waiting", "running"}
    assert {job.status for job in listed(viewer, f"{JOBS}?status=reserved").result_list} == {"reserved"}
    assert {job.status for job in listed(viewer, f"{JOBS}?status=scheduled").result_list} == {"scheduled"}


def test_finished_jobs_of_a_day(viewer):
    for number, at in enumerate(
        ("2031-04-30T23:59:59Z", "2031-05-01T00:00Z", "2031-05-01T23:59:59Z", "2031-05-02T00:00Z")
    ):
        finish(number, finished_at=at)
    assert ids(viewer, FINISHED, day="2031-05-01") == [2, 1]
    assert ids(viewer, FINISHED, day="2031-05-01", q="tests") == [2, 1]
    days = {dt.datetime.now(dt.UTC).date()}
    page = viewer.get(FINISHED).content.decode()
    days.add(dt.datetime.now(dt.UTC).date())  # midnight may be over by now
    assert any(f"?day={day}" in page for day in days)
    assert "13 ms" in page


def test_window_of_ids_that_look_like_days_is_told_by_its_ids(viewer, short):
    now = dt.datetime.now(dt.UTC)
    Job.objects.bulk_create(Job(pk=20260101 + n, task="t", run_at=now, status="queued") for n in range(45))
    assert listed(viewer, f"{JOBS}?q=none").looked == "Searched the jobs 20,260,145 to 20,260,106."


# Searches


@pytest.fixture
def three():
    """Make a job with arguments in each table; returns what makes one, and finds its list."""

    def make(url, args, kwargs, task="record"):
        name = f"tests.app.tasks.{task}"
        if url == FINISHED:
            return finish(len(FinishedJob.objects.all()) + 1, args=args, kwargs=kwargs, task=name)
        if url == DEAD:
            return dead(args=args, kwargs=kwargs, task=name)
        return Job.objects.create(task=name, args=args, kwargs=kwargs).pk

    return make


each_list = pytest.mark.parametrize("url", [JOBS, DEAD, FINISHED])


@each_list
def test_arguments_are_searched_by_value_and_by_name(viewer, three, url):
    by_place, by_name = three(url, [17], {}), three(url, [], {"label": "17"})
    other = three(url, ["n'ü%"], {"note": None, "flag": True})
    assert set(ids(viewer, url, q="arg:17")) == set(ids(viewer, url, q="label=17")) == {by_place, by_name}
    assert ids(viewer, url, q="label = n'ü%") == ids(viewer, url, q="arg:n'ü%") == [other]
    assert (
        ids(viewer, url, q="note=null") == ids(viewer, url, q="flag=true") == ids(viewer, url, q="arg:true") == [other]
    )
    assert ids(viewer, url, q="note=17") == ids(viewer, url, q="arg:") == ids(viewer, url, q="arg:1") == []


@each_list
@pytest.mark.parametrize(
    ("task", "args", "kwargs"),
    [
        ("log_in", ["ann", "hunter22"], {}),
        ("log_in", ["ann"], {"password": "hunter22"}),
        ("record", ["ann"], {"api_key": "hunter22"}),
        ("unknown", ["ann", "hunter22"], {}),
    ],
)
def test_arguments_that_are_not_shown_are_not_found(viewer, three, url, task, args, kwargs):  # noqa: PLR0917
    three(url, args, kwargs, task)
    for term in ("arg:hunter22", "password=hunter22", "api_key=hunter22", "arg:[redacted]"):
        cl = listed(viewer, f"{url}?{urlencode({'q': term})}")
        assert (list(cl.result_list), cl.result_count) == ([], 0)
    assert len(ids(viewer, url, q="arg:ann")) == (task != "unknown")


def test_unique_keys_are_searched(viewer):
    live = app.record.using(unique_key="receipt:7").enqueue().id
    parked = dead(unique_key="receipt:7", unique_scope="live")
    assert ids(viewer, JOBS, q="key:receipt:7") == [live]
    assert ids(viewer, DEAD, q="key: receipt:7") == [parked]
    Job.objects.update(status="reserved")
    assert ids(viewer, JOBS, q="key:receipt:7") == [live], "a reserved row has it too"
    assert ids(viewer, JOBS, q="key:receipt") == ids(viewer, FINISHED, q="key:receipt:7") == []


def test_job_that_has_started_and_given_up_its_key_is_not_acted_on_as_its_holder(viewer):
    started = app.record.using(unique_key="receipt:7", unique_scope="start").enqueue().id
    Job.objects.filter(pk=started).update(status="running", unique_scope="started", lease_token=1, worker_id=1)
    holder = app.record.using(unique_key="receipt:7", unique_scope="start").enqueue().id
    cl = listed(viewer, f"{JOBS}?q=key:receipt:7")
    chosen = cl.model_admin.chosen(RequestFactory().get(f"{JOBS}?q=key:receipt:7"))
    assert [job.pk for job in cl.result_list] == [holder]
    assert [one for page in pages(Source.LIVE, chosen) for one in page.ids] == [holder]


def test_prefixes_are_no_patterns(viewer, three):
    for url in (JOBS, DEAD, FINISHED):
        job_id = three(url, [], {}, "a_b")
        three(url, [], {}, "axb")
        assert ids(viewer, url, q="tests.app.tasks.a_") == [job_id]
        assert ids(viewer, url, q="tests%") == []
        assert len(ids(viewer, url, q="tests.app")) == 2


# What a list shows, for a user who acts on all of it


@pytest.mark.parametrize(
    "address",
    [
        JOBS,
        f"{JOBS}?status=waiting",
        f"{JOBS}?queue=q1",
        f"{JOBS}?status=scheduled&queue=q1",
        f"{JOBS}?q=shop.task_1",
        f"{JOBS}?q=shop.task_1&queue=q1",
        f"{JOBS}?status=reserved",
        f"{JOBS}?q=key:none",
        f"{JOBS}?q=arg:none",
        DEAD,
        f"{DEAD}?reason=killed&queue=q0&task=shop.task_1",
        f"{DEAD}?q=shop.task_2",
        f"{DEAD}?q=label%3Dnone",
        FINISHED,
        f"{FINISHED}?queue=q1&q=shop.task_1",
        f"{FINISHED}?day=today",
    ],
)
def test_filter_of_a_list_chooses_what_the_list_shows(viewer, many, monkeypatch, address):
    address = address.replace("today", str(dt.datetime.now(dt.UTC).date()))  # by now, not when tests were collected
    monkeypatch.setattr(JobsAdmin, "list_per_page", 1000)
    cl = listed(viewer, address)
    chosen = cl.model_admin.chosen(RequestFactory().get(address))
    source = SOURCES[urlsplit(address).path]
    assert sorted(job.pk for job in cl.result_list) == [one for page in pages(source, chosen) for one in page.ids]


def test_filter_of_a_cause_chooses_the_jobs_that_died_of_it(viewer, sql):
    one, other = dead(errors=[{"error": "A", "message": "1"}]), dead(errors=[{"error": "A", "message": "2"}])
    dead(errors=[{"error": "B"}])
    [(cause,)] = sql("SELECT cause FROM pgqueue_dead_jobs WHERE id = %s", one)
    assert ids(viewer, DEAD, cause=cause) == [other, one]
    cl = listed(viewer, f"{DEAD}?cause={cause}")
    assert cl.model_admin.chosen(RequestFactory().get(f"{DEAD}?cause={cause}")) == Filter(cause=cause)


def test_one_job_by_its_id_is_no_filter(viewer):
    job_id = app.record.enqueue().id
    cl = listed(viewer, f"{JOBS}?q={job_id}")
    assert cl.model_admin.chosen(RequestFactory().get(f"{JOBS}?q={job_id}")) is None


def test_unique_key_is_no_filter_of_finished_jobs(viewer):
    address = f"{FINISHED}?q=key:receipt:7"
    assert listed(viewer, address).model_admin.chosen(RequestFactory().get(address)) is None


def test_query_is_kept_in_links_to_pages(viewer, many, short):
    link = listed(viewer, f"{FINISHED}?q=shop.task&queue=q1").links["next"]
    assert set(parse_qs(urlsplit(link).query)) == {"q", "queue", "after"}
